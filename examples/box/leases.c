/* leases.c - see leases.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Durable changes   2 Wiping   3 Requests   4 Admission
              5 Reports to the manager */
#include "leases.h"
#include "log.h"
#include "hot_plug.h"
#include "p2p.h"
#include "shards.h"

enum { TEXT_BYTES = 160 };

/* ==== 1  Durable changes ====================================================================== */

/* Returns the change that begins with the slot as it is.  Nothing is under way for it. */
static lease_change change_of(const box *b, unsigned number, unsigned by)
{
    lease_change c = { .entry = b->entries[number - 1],
                       .phase = b->phase[number - 1],
                       .key = b->lease_key[number - 1] };
    c.by = by;
    return c;
}

static bool is_changing(const slot *s)
{
    return s->change.by != CHANGE_NONE;
}

/* Writes a change.  Until it is on disk the slot stays as it was, and an order for it is answered
   later (S-165). */
static unsigned change(box *b, unsigned number, const lease_change *c)
{
    slot *s = &b->slots[number - 1];
    bool is_left = c->by == CHANGE_WIPED && c->phase == DXPU_CONTROL_SLOT_WIPED &&
                   s->leaves; /* not erased: no start believes it */
    s->change = *c;
    state_want(b->state, &c->entry, c->phase, is_left ? 0 : b->medium[number - 1], &c->key);
    return REQUESTS_LATER;
}

/* ==== 2  Wiping =============================================================================== */

static void begin_wipe(slot *s)
{
    s->wipe_waits = false;
    s->wipe_begins = true;
    s->shard->wiping++;
}

enum { NOTHING_LASTS = 1 }; /* as a medium: what the device has ends with this process */

static bool is_of_a_tenant(uint8_t phase)
{
    return phase != DXPU_CONTROL_SLOT_EMPTY && phase != DXPU_CONTROL_SLOT_WIPED;
}

/* Returns the medium that a device shows as it is, regardless of whose data it has; 0: it has data
   of its own. */
static uint64_t shown_by(const device_kind *kind, const void *device)
{
    return kind->shown ? kind->shown(device) : 0;
}

static bool shows_data_of_others(const box *b, unsigned number)
{
    const slot *s = &b->slots[number - 1];
    uint64_t shown = shown_by(s->kind, s->device);
    return shown && state_promises(b->state, number, shown);
}

/* Is the record about the medium that is here?  Older files name none (0): then a lease goes on,
   but nothing shows what was wiped, or is to be. */
static bool speaks_of(uint8_t phase, uint64_t recorded, uint64_t now, bool pristine)
{
    switch (phase) {
    case DXPU_CONTROL_SLOT_EMPTY:
        return true;
    case DXPU_CONTROL_SLOT_WIPED:
        return recorded == now;
    case DXPU_CONTROL_SLOT_WIPING:
        return recorded == now || (!recorded && pristine);
    default:
        return !recorded || recorded == now;
    }
}

/* The record is about other data than are here.  These are neither lent nor wiped before an
   operator has looked.  The file stays unchanged, so that the lease is back with its medium. */
static void set_aside(box *b, unsigned number, uint64_t recorded)
{
    slot *s = &b->slots[number - 1];
    s->its_phase = b->phase[number - 1];
    s->its_medium = recorded;
    b->phase[number - 1] = DXPU_CONTROL_SLOT_EMPTY;
    s->broken = s->elsewhere = true;
}

static void do_not_serve(box *b, unsigned number, uint64_t recorded)
{
    log_warning(
        "slot %u: its lease (%s) has its data on another --file, --size or disk, and "
        "is not served from this one; start the box with that one, or, when it is gone, have "
        "this one wiped: dxpu repair (--state in dxpu-box(1): a medium that was moved)",
        number, dxpu_control_state_name(b->phase[number - 1]));
    set_aside(b, number, recorded);
}

/* Without a device the record says whose data are on which medium.  That medium is not in the slot:
   it does not count as wiped any longer. */
static void look_at_nothing(box *b, unsigned number)
{
    uint8_t *phase = &b->phase[number - 1];
    uint64_t recorded = b->medium[number - 1];
    if (*phase == DXPU_CONTROL_SLOT_WIPED)
        *phase = DXPU_CONTROL_SLOT_EMPTY;
    b->slots[number - 1].keeps =
        recorded > NOTHING_LASTS || (!recorded && *phase != DXPU_CONTROL_SLOT_EMPTY);
}

/* Compares what is recorded with what is in the slot.  False: that is not to be recorded. */
static bool compare(box *b, unsigned number)
{
    slot *s = &b->slots[number - 1];
    uint8_t *phase = &b->phase[number - 1];
    uint64_t recorded = b->medium[number - 1], now = 0;
    bool pristine = true, shows_own;
    if (s->kind == &no_device_kind) {
        look_at_nothing(b, number);
        return true;
    }
    if (s->kind->medium)
        now = s->kind->medium(s->device, &pristine);
    shows_own = is_of_a_tenant(*phase) && recorded && recorded == shown_by(s->kind, s->device);
    if (shows_own)
        now = recorded; /* it is that tenant's still */
    if (!now)
        now = NOTHING_LASTS;
    b->medium[number - 1] = now;
    if (s->unfit && *phase != DXPU_CONTROL_SLOT_WIPING && *phase != DXPU_CONTROL_SLOT_UNWIPED) {
        if (*phase == DXPU_CONTROL_SLOT_WIPED)
            *phase = DXPU_CONTROL_SLOT_EMPTY; /* what was wiped counts so no longer */
        set_aside(b, number, recorded);       /* create() has said why */
        return s->its_phase == DXPU_CONTROL_SLOT_EMPTY;
    }
    if (!speaks_of(*phase, recorded, now, pristine) ||
        (is_of_a_tenant(*phase) && !shows_own && shows_data_of_others(b, number))) {
        if (*phase != DXPU_CONTROL_SLOT_WIPED) {
            do_not_serve(b, number, recorded);
            return false;
        }
        *phase = DXPU_CONTROL_SLOT_EMPTY;
        if (!pristine)
            log_warning("slot %u: another --file, --size or disk was wiped; the owner of the data "
                        "on this one is unknown: dxpu repair wipes it",
                        number);
    }
    if (pristine && *phase == DXPU_CONTROL_SLOT_EMPTY)
        *phase = DXPU_CONTROL_SLOT_WIPED; /* it has no data */
    return true;
}

/* A medium does not count as wiped while the record of another slot, even one that this box no
   longer has, says that a tenant's data are on it, or that it could not be wiped (S-249). */
static void doubt(box *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        if (b->phase[i] == DXPU_CONTROL_SLOT_WIPED && b->medium[i] > NOTHING_LASTS &&
            state_promises(b->state, i + 1, b->medium[i]))
            b->phase[i] = DXPU_CONTROL_SLOT_EMPTY;
    }
}

void leases_look(box *b)
{
    doubt(b);
    for (unsigned i = 0; i < b->count; i++) {
        if (shows_data_of_others(b, i + 1))
            log_warning("slot %u: its disk, which it only reads, has the data of another slot's "
                        "tenant; it is not lent before that lease has ended and they are wiped",
                        i + 1);
        if (compare(b, i + 1))
            state_note(b->state, &b->entries[i], b->phase[i], b->medium[i], &b->lease_key[i]);
    }
}

static void report_medium(const box *b, unsigned i)
{
    if (b->slots[i].broken)
        manager_alarm(b->manager, i + 1, DXPU_CONTROL_ALARM_STORAGE, b->entries[i].epoch_seen,
                      b->slots[i].unfit ? "its layout is damaged, or belongs to other data"
                                        : "its lease was served from another file or disk");
}

void leases_tell(const box *b)
{
    for (unsigned i = 0; i < b->count; i++)
        report_medium(b, i);
}

/* A lease is admitted by its key, or, at a box without keys, by its epoch alone. */
static bool lease_fits(const box *b, unsigned i)
{
    return b->lease_key[i].known == !keys_plain(b->keys);
}

static void begin(box *b, unsigned i)
{
    dxpu_box_entry *e = &b->entries[i];
    if (b->phase[i] == DXPU_CONTROL_SLOT_HELD && !lease_fits(b, i)) {
        log_warning("slot %u: its lease %s; the slot waits for the manager's next one", i + 1,
                    b->lease_key[i].known ? "has a key, and this box runs with --plain"
                                          : "was granted without a key");
    } else if (b->phase[i] == DXPU_CONTROL_SLOT_HELD) {
        e->used = true;
        e->epoch = e->epoch_seen;
    } else if (b->phase[i] == DXPU_CONTROL_SLOT_WIPING) {
        b->slots[i].wipe_waits = true; /* the file may be an old copy: M-105 */
    }
}

void leases_begin(box *b)
{
    for (unsigned i = 0; i < b->count; i++)
        begin(b, i);
}

/* The phase says whether it is lent. */
static void begin_again(box *b, unsigned i)
{
    b->entries[i].used = false;
    b->entries[i].epoch = 0;
    begin(b, i);
}

/* The lease of a slot may have its data on another medium than is there: set_aside(). */
static bool is_elsewhere(const slot *s)
{
    return s->elsewhere && s->its_phase != DXPU_CONTROL_SLOT_EMPTY;
}

/* Keeps in its_* what the file says until the change by a device is written; if it cannot be, that
   stays. */
static void remember(box *b, unsigned number)
{
    b->slots[number - 1].its_phase = b->phase[number - 1];
    b->slots[number - 1].its_medium = b->medium[number - 1];
}

bool leases_forget(box *b, unsigned number)
{
    lease_change c = change_of(b, number, CHANGE_DEVICE);
    if (c.phase != DXPU_CONTROL_SLOT_WIPED)
        return false;
    c.phase = DXPU_CONTROL_SLOT_EMPTY;
    remember(b, number);
    (void)change(b, number, &c);
    return true;
}

void leases_unplugged(box *b, unsigned number)
{
    slot *s = &b->slots[number - 1];
    bool kept = s->keeps && !is_elsewhere(s); /* also what has no number as a medium */
    if (is_elsewhere(s)) {
        b->phase[number - 1] = s->its_phase;
        b->medium[number - 1] = s->its_medium;
    }
    look_at_nothing(b, number);
    s->keeps |= kept;
    s->broken = s->elsewhere = s->unfit = s->leaves = false;
    if (b->managed)
        begin_again(b, number - 1);
}

bool leases_plugged(box *b, unsigned number)
{
    bool is_recorded;
    lease_change c;
    remember(b, number);
    b->slots[number - 1].erased = b->slots[number - 1].erases = false; /* that was what is out */
    is_recorded = compare(b, number);
    begin_again(b, number - 1);
    report_medium(b, number - 1);
    if (!is_recorded)
        return false;
    c = change_of(b, number, CHANGE_DEVICE);
    (void)change(b, number, &c);
    return true;
}

static uint8_t phase_of(const box *b, unsigned i)
{
    return is_elsewhere(&b->slots[i]) ? b->slots[i].its_phase : b->phase[i];
}

/* Does slot i + 1 have the data of slot `number`?  A slot without a device does if its record says
   so.  Where a medium is unknown, the subsystem's name counts. */
static bool shares(const box *b, unsigned i, unsigned number)
{
    const slot *s = &b->slots[number - 1], *t = &b->slots[i];
    uint64_t medium = is_elsewhere(t) ? t->its_medium : b->medium[i];
    if (i == number - 1)
        return false;
    if (medium > NOTHING_LASTS && b->medium[number - 1] > NOTHING_LASTS)
        return medium == b->medium[number - 1];
    return s->subsystem[0] && !strcmp(t->subsystem, s->subsystem);
}

/* Is there another slot with its data for which is_such() holds?  All slots of a subsystem are in
   this loop. */
static bool any_other(const box *b, unsigned number, bool (*is_such)(const box *b, unsigned i))
{
    bool any = false;
    for (unsigned i = b->slots[number - 1].shard->index; !any && i < b->count; i += b->shard_count)
        any = is_such(b, i) && shares(b, i, number);
    return any;
}

static bool has_device(const box *b, unsigned i)
{
    return b->slots[i].kind != &no_device_kind;
}

static bool is_held(const box *b, unsigned i)
{
    return b->entries[i].used || phase_of(b, i) == DXPU_CONTROL_SLOT_HELD;
}

static bool is_kept(const box *b, unsigned i)
{
    return phase_of(b, i) == DXPU_CONTROL_SLOT_KEPT;
}

/* Does its lease go on, or are its tenant's data kept? */
static bool is_in_use(const box *b, unsigned i)
{
    return is_held(b, i) || is_kept(b, i);
}

/* Is another slot with its data in use, be it in another loop, or one that this box no longer
   has? */
static bool is_used_by_others(const box *b, unsigned number)
{
    uint64_t medium = b->medium[number - 1];
    return any_other(b, number, is_in_use) ||
           (medium > NOTHING_LASTS && state_uses(b->state, number, medium));
}

/* A bind is being written: it is lent, unless the disk is full. */
static bool is_being_lent(const box *b, unsigned i)
{
    return b->slots[i].change.by == CHANGE_BIND;
}

bool leases_wiping(const shard *sh)
{
    const box *b = sh->box;
    bool any = false;
    for (unsigned i = sh->index; sh->wiping && i < b->count; i += b->shard_count)
        any |= b->slots[i].wipe_begins && !is_changing(&b->slots[i]) &&
               !any_other(b, i + 1, is_being_lent); /* its write wakes the loop */
    return any || (sh->wiping && !b->pool);
}

/* Could its data not be wiped?  Not if they were erased through another slot since. */
static bool is_unwiped(const box *b, unsigned i)
{
    const slot *s = &b->slots[i];
    return phase_of(b, i) == DXPU_CONTROL_SLOT_UNWIPED && (s->kind != &no_device_kind || s->keeps);
}

/* Are its data being erased, or could they not be erased? */
static bool is_being_wiped(const box *b, unsigned i)
{
    return phase_of(b, i) == DXPU_CONTROL_SLOT_WIPING || is_unwiped(b, i);
}

/* Has this run of the box begun to erase its data, without success so far? */
static bool is_erasing(const box *b, unsigned i)
{
    return b->slots[i].erases && is_being_wiped(b, i);
}

static bool is_being_erased(const box *b, unsigned number)
{
    return b->slots[number - 1].erased && any_other(b, number, is_erasing);
}

/* It counts as wiped, but not all data are gone:
   - its own were left to others, of which none has them any more, or with which it is not to share
     them; or
   - another slot has the same data, which could not be wiped. */
static bool is_doubtful(const box *b, unsigned number)
{
    const slot *s = &b->slots[number - 1];
    return b->phase[number - 1] == DXPU_CONTROL_SLOT_WIPED &&
           ((s->leaves && (!s->subsystem[0] || !any_other(b, number, is_in_use))) ||
            any_other(b, number, is_unwiped));
}

/* Others may be doubtful since this one has changed: their manager is to lend them no longer. */
static void report_others(const box *b, unsigned number)
{
    for (unsigned i = b->slots[number - 1].shard->index; i < b->count; i += b->shard_count) {
        if (shares(b, i, number) || b->slots[i].leaves)
            manager_changed(b->manager, i + 1);
    }
}

/* From now on what it shares with others is no longer what any of them had. */
static void begin_erasing(box *b, unsigned number)
{
    b->slots[number - 1].erases = true;
    for (unsigned i = b->slots[number - 1].shard->index; i < b->count; i += b->shard_count) {
        if (shares(b, i, number) && !is_elsewhere(&b->slots[i]))
            b->slots[i].erased = true;
    }
}

/* No slot that shares what was erased has any tenant's data.  The device has made a new layout and
   found the medium good for all of its controllers. */
static void all_clean(box *b, unsigned number)
{
    b->slots[number - 1].erases = false;
    for (unsigned i = b->slots[number - 1].shard->index; i < b->count; i += b->shard_count) {
        slot *s = &b->slots[i];
        if (!shares(b, i, number))
            continue;
        s->erases = false;
        if (is_elsewhere(s) && s->its_phase == DXPU_CONTROL_SLOT_UNWIPED)
            s->its_phase = DXPU_CONTROL_SLOT_EMPTY;  /* what is there waits for a repair still */
        if (b->phase[i] != DXPU_CONTROL_SLOT_WIPING) /* one that is leaving ends so */
            s->leaves = false;
        if (s->kind == &no_device_kind)
            s->keeps = false;
        else if (s->unfit || !s->elsewhere)
            s->unfit = s->elsewhere = s->broken = false;
        manager_changed(b->manager, i + 1);
    }
}

bool leases_promised(const box *b, unsigned number, const device_kind *kind, void *device)
{
    bool pristine;
    uint64_t medium = kind->medium ? kind->medium(device, &pristine) : 0;
    uint64_t shown = shown_by(kind, device);
    if (!b->managed)
        return false;
    if (is_of_a_tenant(b->phase[number - 1]) && medium != b->medium[number - 1] &&
        any_other(b, number, has_device))
        return true; /* that those have a tenant's data would be forgotten */
    if (shown && state_promises(b->state, number, shown))
        return true;
    return medium > NOTHING_LASTS && state_promises(b->state, number, medium);
}

static void end_wipe(box *b, unsigned number)
{
    slot *s = &b->slots[number - 1];
    s->shard->wiping--;
    if (b->phase[number - 1] == DXPU_CONTROL_SLOT_WIPED) {
        if (!s->leaves)
            s->broken = s->elsewhere = s->unfit = false;
        else if (s->elsewhere && !s->unfit) /* a layout that does not fit waits for an erasure */
            s->broken = s->elsewhere = false;
        if (!s->leaves && s->kind != &no_device_kind)
            all_clean(b, number);
        return;
    }
    log_warning("slot %u: its data could not be wiped; it is not lent again", number);
    manager_alarm(b->manager, number, DXPU_CONTROL_ALARM_STORAGE, b->entries[number - 1].epoch_seen,
                  "the data could not be wiped");
    report_others(b, number);
}

/* A device that is out still has its data, unless they were erased through another slot. */
static int wipe_nothing(box *b, unsigned number)
{
    slot *s = &b->slots[number - 1];
    if (s->keeps)
        return DEVICE_UNWIPED;
    b->medium[number - 1] = NOTHING_LASTS;
    return DEVICE_WIPED;
}

/* Does not wipe a device that cannot leave its data to others. */
static int spare_data(unsigned number)
{
    log_warning("slot %u: a tenant's data of another slot are on its disk, and are not erased: end "
                "that slot's lease first",
                number);
    return DEVICE_UNWIPED;
}

/* Does not wipe a device that leaves its medium as it is. */
static int show_data(unsigned number)
{
    log_warning("slot %u: its tenant's data are on its disk, which it only reads: start the box "
                "without read-only to have them erased",
                number);
    return DEVICE_UNWIPED;
}

static int erase(slot *s, unsigned number)
{
    if (s->wipe_begins)
        begin_erasing(s->shard->box, number);
    return s->kind->wipe(s->device, s->wipe_begins);
}

static void go_on_wiping(slot *s, unsigned number)
{
    box *b = s->shard->box;
    int rc = DEVICE_WIPED; /* reset() leaves nothing */
    bool is_used;
    if (s->wipe_begins && any_other(b, number, is_being_lent))
        return;
    is_used = s->wipe_begins && is_used_by_others(b, number);
    if (s->wipe_begins)
        s->leaves = s->kind->leave && is_used; /* S-249 */
    if (s->kind == &no_device_kind)
        rc = wipe_nothing(b, number);
    else if (s->leaves)
        rc = s->kind->leave(s->device, s->wipe_begins);
    else if (s->kind->wipe && is_used)
        rc = spare_data(number);
    else if (b->medium[number - 1] == shown_by(s->kind, s->device))
        rc = show_data(number);
    else if (s->kind->wipe)
        rc = erase(s, number);
    s->wipe_begins = false;
    if (rc != DEVICE_WIPING) {
        lease_change c = change_of(b, number, CHANGE_WIPED);
        c.phase = rc == DEVICE_WIPED ? DXPU_CONTROL_SLOT_WIPED : DXPU_CONTROL_SLOT_UNWIPED;
        (void)change(b, number, &c);
    }
}

void leases_work(shard *sh)
{
    box *b = sh->box;
    for (unsigned i = sh->index; sh->wiping && i < b->count; i += b->shard_count) {
        if (b->phase[i] == DXPU_CONTROL_SLOT_WIPING && !b->slots[i].wipe_waits &&
            !is_changing(&b->slots[i]))
            go_on_wiping(&b->slots[i], i + 1);
    }
}

/* ==== 3  Requests ============================================================================= */

/* The key and the lease that a bind names. */
static state_key key_of(const dxpu_control_bind *m)
{
    state_key k;
    memset(&k, 0, sizeof k);
    k.known = m->keyed;
    if (m->keyed)
        memcpy(k.key, m->key, sizeof k.key);
    k.lease = m->lease;
    k.tenant = m->tenant;
    return k;
}

/* The slot's lease is not served, since the box was started with keys, or without: see
   leases_begin().  Its manager names the lease again. */
static bool waits(const box *b, const dxpu_control_bind *m)
{
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    return !e->used && b->phase[m->slot - 1] == DXPU_CONTROL_SLOT_HELD &&
           m->epoch == e->epoch_seen && m->host_node == e->host_node &&
           m->host_slot == e->host_slot;
}

/* A *wiped* slot is bound for a new tenant: it waits while data that it shares are to be wiped, or
   are kept for a tenant that has no slot lent.  A slot that is empty, or was to be wiped before the
   start, is bound only for the lease that goes on (M-77, M-105), whose data no other slot's wipe is
   to erase. */
static bool waits_for_others(const box *b, unsigned number)
{
    return b->phase[number - 1] == DXPU_CONTROL_SLOT_WIPED &&
           (any_other(b, number, is_being_wiped) ||
            (any_other(b, number, is_kept) && !any_other(b, number, is_held)));
}

/* M-60 to M-62, M-83, M-105 */
static unsigned refuse_bind(const box *b, const dxpu_control_bind *m)
{
    const slot *s = &b->slots[m->slot - 1];
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    uint8_t phase = b->phase[m->slot - 1];
    bool wipes = phase == DXPU_CONTROL_SLOT_WIPING && !s->wipe_waits;
    if (m->keyed != !keys_plain(b->keys))
        return DXPU_CONTROL_CODE_KEY;
    if (s->arrival)
        return DXPU_CONTROL_CODE_BUSY;
    if (m->epoch <= e->epoch_seen && !waits(b, m))
        return DXPU_CONTROL_CODE_EPOCH;
    bool goes_on = e->used && e->host_node == m->host_node && e->host_slot == m->host_slot;
    if (s->drained && phase != DXPU_CONTROL_SLOT_KEPT && !goes_on)
        return DXPU_CONTROL_CODE_DRAINED; /* it is a new one */
    bool busy = wipes || phase == DXPU_CONTROL_SLOT_UNWIPED || s->elsewhere || s->unfit ||
                is_doubtful(b, m->slot) || is_being_erased(b, m->slot) ||
                waits_for_others(b, m->slot) || shows_data_of_others(b, m->slot) ||
                (!s->subsystem[0] && is_used_by_others(b, m->slot));
    return busy ? DXPU_CONTROL_CODE_BUSY : DXPU_CONTROL_CODE_NONE;
}

static bool same_key(const state_key *x, const state_key *y)
{
    return x->known == y->known && !memcmp(x->key, y->key, sizeof x->key);
}

static bool same_host(const dxpu_box_entry *e, const dxpu_control_bind *m)
{
    return e->used && e->epoch == m->epoch && e->host_node == m->host_node &&
           e->host_slot == m->host_slot;
}

unsigned leases_bind(box *b, const dxpu_control_bind *m)
{
    dxpu_box_entry *e = &b->entries[m->slot - 1], was = *e;
    const lease_change *under = &b->slots[m->slot - 1].change;
    lease_change next = change_of(b, m->slot, CHANGE_BIND);
    state_key key = key_of(m);
    unsigned code;
    if (under->by == CHANGE_BIND && same_host(&under->entry, m) && same_key(&under->key, &key))
        return REQUESTS_LATER; /* M-54: asked again meanwhile */
    code = same_host(e, m) ? DXPU_CONTROL_CODE_NONE : refuse_bind(b, m);
    if (code || under->by)
        return code ? code : DXPU_CONTROL_CODE_BUSY;
    if (same_host(e, m)) /* M-54: asked again */
        return same_key(&key, &next.key) ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_KEY;
    if (dxpu_box_bind(&b->table, m->slot, m->host_node, m->host_slot, 0, m->epoch) != DXPU_OK)
        return DXPU_CONTROL_CODE_EMPTY; /* no device */
    next.entry = *e;
    *e = was;
    next.phase = DXPU_CONTROL_SLOT_HELD;
    next.key = key;
    return change(b, m->slot, &next);
}

/* Returns the phase of a slot whose lease ends, or that is not lent. */
static uint8_t after_unbind(const box *b, const dxpu_control_unbind *m)
{
    uint8_t phase = is_doubtful(b, m->slot) ? DXPU_CONTROL_SLOT_EMPTY : b->phase[m->slot - 1];
    /* The box never learned of that lease, and an older state file may have come back: then the
       slot was lent since. */
    bool unknown = m->epoch > b->entries[m->slot - 1].epoch_seen;
    if (phase == DXPU_CONTROL_SLOT_WIPING || (phase == DXPU_CONTROL_SLOT_WIPED && !unknown))
        return phase; /* M-64: there are no data any more */
    if (!m->keep)
        return DXPU_CONTROL_SLOT_WIPING;
    if (phase == DXPU_CONTROL_SLOT_UNWIPED)
        return phase;
    if (!b->slots[m->slot - 1].erased)
        return DXPU_CONTROL_SLOT_KEPT;
    return has_device(b, m->slot - 1u) ? DXPU_CONTROL_SLOT_WIPED : phase; /* M-64, too */
}

/* Whose data are kept is reported until they are wiped (M-176); the key of their lease admits no
   one. Under an epoch that the box has not seen the lease is another one. */
static state_key key_after(const box *b, const dxpu_control_unbind *m, uint8_t next_phase)
{
    const state_key *was = &b->lease_key[m->slot - 1];
    bool keeps =
        next_phase == DXPU_CONTROL_SLOT_KEPT && m->epoch == b->entries[m->slot - 1].epoch_seen;
    state_key k;
    memset(&k, 0, sizeof k);
    k.lease = keeps ? was->lease : 0;
    k.tenant = keeps ? was->tenant : 0;
    return k;
}

unsigned leases_unbind(box *b, const dxpu_control_unbind *m)
{
    slot *s = &b->slots[m->slot - 1];
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    lease_change next = change_of(b, m->slot, CHANGE_UNBIND);
    if (m->epoch < e->epoch_seen)
        return DXPU_CONTROL_CODE_EPOCH; /* M-63 */
    if (s->arrival)
        return DXPU_CONTROL_CODE_BUSY; /* its data come or go */
    if (s->change.by == CHANGE_WIPED && !e->used && m->epoch == e->epoch_seen && !m->keep)
        return DXPU_CONTROL_CODE_NONE; /* M-54: asked again, and it is done but for the file */
    if (is_changing(s))                /* as in leases_bind() */
        return s->change.by == CHANGE_UNBIND && s->change.entry.epoch_seen == m->epoch &&
                       s->change.keep == m->keep
                   ? REQUESTS_LATER
                   : DXPU_CONTROL_CODE_BUSY;
    if (m->keep && (s->elsewhere || is_being_erased(b, m->slot)))
        return DXPU_CONTROL_CODE_BUSY; /* what is here is not what is to be kept, or will be gone */
    if (m->epoch > e->epoch_seen) {    /* it never learned of that lease, which none may use */
        next.entry.epoch_seen = m->epoch;
        next.entry.host_node = 0;
        next.entry.host_slot = 0;
    }
    next.entry.used = false; /* it may be unassigned */
    next.entry.epoch = 0;
    next.keep = m->keep;
    next.phase = after_unbind(b, m);
    next.key = key_after(b, m, next.phase);
    if (e->used || next.phase != b->phase[m->slot - 1] || m->epoch != e->epoch_seen)
        return change(b, m->slot, &next);
    if (s->wipe_waits && !m->keep)
        begin_wipe(s);
    return DXPU_CONTROL_CODE_NONE; /* asked again */
}

void leases_written(box *b, unsigned number, bool kept)
{
    slot *s = &b->slots[number - 1];
    lease_change c = s->change;
    bool wipes = c.phase == DXPU_CONTROL_SLOT_WIPING &&
                 (s->wipe_waits ? !c.keep : b->phase[number - 1] != c.phase);
    /* of a wipe the file may say `wiping` still: it would only be done again */
    bool holds = kept || c.by == CHANGE_WIPED;
    bool ends_elsewhere = holds && is_elsewhere(s);
    s->change.by = CHANGE_NONE;
    if (c.by == CHANGE_DEVICE) {
        b->phase[number - 1] = kept ? c.phase : s->its_phase;
        if (!kept)
            b->medium[number - 1] = s->its_medium;
        s->its_phase = DXPU_CONTROL_SLOT_EMPTY;
        plug_written(s, kept);
        return;
    }
    if (holds) {
        s->its_phase = DXPU_CONTROL_SLOT_EMPTY; /* that lease is over */
        b->entries[number - 1] = c.entry;
        b->phase[number - 1] = c.phase;
        s->wipe_waits = s->wipe_waits && c.phase == DXPU_CONTROL_SLOT_WIPING;
        s->erased = s->erased && c.by != CHANGE_BIND;
        b->lease_key[number - 1] = c.key;
    }
    if (c.by == CHANGE_WIPED)
        end_wipe(b, number);
    else if (kept) /* of an older lease, or of this one */
        slots_end(s, c.by == CHANGE_BIND ? DXPU_REASON_REPLACED : DXPU_REASON_DETACH);
    if (kept && wipes)
        begin_wipe(s);
    if (c.by != CHANGE_WIPED)
        shards_answer(b, number, kept ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_STATE);
    if (ends_elsewhere) /* what others share with it is erased no more */
        report_others(b, number);
    if (holds)
        manager_changed(b->manager, number);
}

unsigned leases_reset(box *b, const dxpu_control_reset *m)
{
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    if (m->epoch != (e->used ? e->epoch : 0))
        return DXPU_CONTROL_CODE_EPOCH; /* M-66 */
    if (b->phase[m->slot - 1] == DXPU_CONTROL_SLOT_WIPING)
        return DXPU_CONTROL_CODE_BUSY;
    slots_end(&b->slots[m->slot - 1], DXPU_REASON_DETACH);
    manager_changed(b->manager, m->slot);
    return DXPU_CONTROL_CODE_NONE;
}

void leases_drain(box *b, unsigned number, bool on)
{
    b->slots[number - 1].drained = on;
}

void leases_direct(box *b, unsigned number, bool on)
{
    p2p_direct(&b->slots[number - 1], on);
}

/* ==== 4  Admission ============================================================================ */

/* A host that has missed the end of its lease dials repeatedly: that is reported once. */
static void fenced(box *b, unsigned number, uint32_t node, uint64_t epoch)
{
    slot *s = &b->slots[number - 1];
    char text[TEXT_BYTES];
    if (s->fenced_node == node && s->fenced_epoch == epoch)
        return;
    s->fenced_node = node;
    s->fenced_epoch = epoch;
    snprintf(text, sizeof text, "node %u requested it under epoch %llu, which is not its lease",
             (unsigned)node, (unsigned long long)epoch);
    manager_alarm(b->manager, number, DXPU_CONTROL_ALARM_FENCED, b->entries[number - 1].epoch,
                  text);
}

uint8_t leases_admit(box *b, unsigned number, uint32_t node, uint64_t epoch)
{
    const dxpu_box_entry *e = &b->entries[number - 1];
    if (e->used && e->epoch == epoch && e->host_node == node)
        return DXPU_REASON_NONE;
    fenced(b, number, node, epoch);
    return DXPU_REASON_EPOCH;
}

/* ==== 5  Reports to the manager =============================================================== */

/* To the manager a server that is back in time was never gone: only the lease's channel has ended.
   A server that has not yet said what it is, is not a device. */
static uint8_t health_of(const slot *s, const device_ids *ids)
{
    if (s->broken)
        return DXPU_CONTROL_HEALTH_BROKEN;
    return s->missing || (s->absent && !ids->vendor) ? DXPU_CONTROL_HEALTH_NONE
                                                     : DXPU_CONTROL_HEALTH_GOOD;
}

uint8_t leases_state(const box *b, unsigned number)
{
    uint8_t state = slots_state(&b->slots[number - 1]);
    bool may_hold_data = is_doubtful(b, number) ||
                         (state == DXPU_CONTROL_SLOT_WIPED && shows_data_of_others(b, number));
    return may_hold_data ? DXPU_CONTROL_SLOT_EMPTY : state;
}

void leases_device(const box *b, unsigned number, dxpu_control_device *out)
{
    const slot *s = &b->slots[number - 1];
    const dxpu_box_entry *e = &b->entries[number - 1];
    device_ids ids = s->ids;
    out->state = leases_state(b, number);
    if (s->kind->ids)
        (void)s->kind->ids(s->device, &ids);
    out->health = health_of(s, &ids);
    out->vendor = ids.vendor;
    out->device = ids.device;
    out->class_code = ids.class_code;
    out->group = b->group_slots ? (number - 1) / b->group_slots + 1 : 0;
    out->epoch_seen = e->epoch_seen;
    out->port_offset = (uint16_t)s->shard->index;
    out->data = s->keeps ? DXPU_CONTROL_DATA_PERSISTENT : DXPU_CONTROL_DATA_NONE;
    out->medium = b->medium[number - 1];
    if (e->used) {
        out->epoch = e->epoch;
        out->peer_node = e->host_node;
        out->peer_slot = e->host_slot;
    }
    if (e->used || out->state == DXPU_CONTROL_SLOT_KEPT) {
        out->lease = b->lease_key[number - 1].lease;
        out->tenant = b->lease_key[number - 1].tenant;
    }
    snprintf(out->model, sizeof out->model, "%s", s->model);
    snprintf(out->attributes, sizeof out->attributes, "%s", s->attributes);
    snprintf(out->serial, sizeof out->serial, "%s", s->serial);
}

void leases_fault(void *user, const char *what)
{
    slot *s = user;
    box *b = s->shard->box;
    unsigned number = slots_number(s);
    s->broken = true;
    log_note("slot %u: %s", number, what);
    manager_changed(b->manager, number);
    manager_alarm(b->manager, number, DXPU_CONTROL_ALARM_STORAGE, b->entries[number - 1].epoch,
                  what);
}
