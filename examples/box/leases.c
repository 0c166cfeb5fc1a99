/* leases.c - see leases.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Durable changes   2 Wiping   3 Requests   4 Admission
              5 Reports to the manager */
#include "leases.h"
#include "log.h"
#include "state.h"

enum { TEXT_BYTES = 160 };

/* ==== 1  Durable changes ====================================================================== */

/* What can be undone when the file cannot be written. */
typedef struct before {
    dxpu_box_entry entry;
    uint8_t phase;
    state_key key;
} before;

static before keep(const box *b, unsigned number)
{
    before was = { b->entries[number - 1], b->phase[number - 1], b->lease_key[number - 1] };
    return was;
}

/* DXPU_CONTROL_CODE_NONE: the slot is as it now stands for good; else it is as it was. */
static unsigned settle(box *b, unsigned number, const before *was)
{
    if (!state_keep(&b->entries[number - 1], b->phase[number - 1], b->medium[number - 1],
                    &b->lease_key[number - 1])) {
        manager_changed(b->manager, number);
        return DXPU_CONTROL_CODE_NONE;
    }
    b->entries[number - 1] = was->entry;
    b->phase[number - 1] = was->phase;
    b->lease_key[number - 1] = was->key;
    return DXPU_CONTROL_CODE_STATE;
}

/* ==== 2  Wiping =============================================================================== */

static void begin_wipe(box *b, unsigned number)
{
    b->slots[number - 1].wipe_begins = true;
    b->slots[number - 1].shard->wiping++;
}

enum { NOTHING_LASTS = 1 }; /* as a medium: what the device has ends with this process */

/* Older files name no medium, 0: a lease goes on, but nothing says what was, or is to be, wiped. */
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

/* The data of another medium are neither lent nor wiped before an operator has looked; the file
   is unchanged, so that the lease is back with the medium. */
static void do_not_serve(box *b, unsigned number)
{
    log_warning(
        "slot %u: its lease (%s) has its data on another --file, --size or disk, and "
        "is not served from this one; start the box with that one, or, when it is gone, have "
        "this one wiped: dxpu repair (--state in dxpu-box(1): a medium that was moved)",
        number, dxpu_control_state_name(b->phase[number - 1]));
    b->phase[number - 1] = DXPU_CONTROL_SLOT_EMPTY;
    b->slots[number - 1].broken = b->slots[number - 1].elsewhere = true;
}

static void look(box *b, unsigned number)
{
    slot *s = &b->slots[number - 1];
    uint8_t *phase = &b->phase[number - 1];
    uint64_t recorded = b->medium[number - 1], now = 0;
    bool pristine = true;
    if (s->kind->medium)
        now = s->kind->medium(s->device, &pristine);
    if (!now)
        now = NOTHING_LASTS;
    b->medium[number - 1] = now;
    if (s->unfit && *phase != DXPU_CONTROL_SLOT_WIPING && *phase != DXPU_CONTROL_SLOT_UNWIPED) {
        *phase = DXPU_CONTROL_SLOT_EMPTY; /* create() has said why; as in do_not_serve() */
        s->broken = s->elsewhere = true;
        return;
    }
    if (!speaks_of(*phase, recorded, now, pristine)) {
        if (*phase != DXPU_CONTROL_SLOT_WIPED && *phase != DXPU_CONTROL_SLOT_UNWIPED) {
            do_not_serve(b, number);
            return;
        }
        *phase = DXPU_CONTROL_SLOT_EMPTY;
        if (!pristine)
            log_warning("slot %u: not this --file, --size or disk was wiped; whose data it "
                        "has is not known: dxpu repair wipes it",
                        number);
    }
    if (pristine && *phase == DXPU_CONTROL_SLOT_EMPTY)
        *phase = DXPU_CONTROL_SLOT_WIPED; /* it has no data */
    state_note(&b->entries[number - 1], *phase, now, &b->lease_key[number - 1]);
}

void leases_look(box *b)
{
    for (unsigned i = 0; i < b->count; i++)
        look(b, i + 1);
}

void leases_tell(const box *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        if (b->slots[i].broken)
            manager_alarm(b->manager, i + 1, DXPU_CONTROL_ALARM_STORAGE, b->entries[i].epoch_seen,
                          b->slots[i].unfit ? "the layout of its data is damaged, or not of them"
                                            : "its lease was served from another file or disk");
    }
}

/* A lease is admitted by its key, or, at a box without keys, by its epoch alone. */
static bool lease_fits(const box *b, unsigned i)
{
    return b->lease_key[i].known == !keys_plain(b->keys);
}

void leases_begin(box *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        dxpu_box_entry *e = &b->entries[i];
        if (b->phase[i] == DXPU_CONTROL_SLOT_HELD && !lease_fits(b, i)) {
            log_warning("slot %u: its lease %s; it waits for its manager's next one", i + 1,
                        b->lease_key[i].known ? "has a key, and this box is run --plain"
                                              : "is from before there were keys");
        } else if (b->phase[i] == DXPU_CONTROL_SLOT_HELD) {
            e->used = true;
            e->epoch = e->epoch_seen;
        } else if (b->phase[i] == DXPU_CONTROL_SLOT_WIPING) {
            begin_wipe(b, i + 1);
        }
    }
}

static void end_wipe(box *b, unsigned number, bool wiped)
{
    slot *s = &b->slots[number - 1];
    before was;
    s->shard->wiping--;
    b->phase[number - 1] = wiped ? DXPU_CONTROL_SLOT_WIPED : DXPU_CONTROL_SLOT_UNWIPED;
    was = keep(b, number);
    if (settle(b, number, &was)) /* the file says `wiping` still: it would only be done again */
        manager_changed(b->manager, number);
    if (wiped) {
        s->broken = s->elsewhere = s->unfit = false;
        return;
    }
    log_warning("slot %u: its data could not be wiped; it is not lent again", number);
    manager_alarm(b->manager, number, DXPU_CONTROL_ALARM_STORAGE, b->entries[number - 1].epoch_seen,
                  "the data could not be wiped");
}

bool leases_wiping(const shard *sh)
{
    const box *b = sh->box;
    bool any = false;
    for (unsigned i = sh->index; sh->wiping && i < b->count; i += b->shard_count)
        any |= b->slots[i].wipe_begins;
    return any || (sh->wiping && !b->pool);
}

static void go_on_wiping(slot *s, unsigned number)
{
    int rc = DEVICE_WIPED; /* reset() leaves nothing */
    if (s->kind->wipe)
        rc = s->kind->wipe(s->device, s->wipe_begins);
    s->wipe_begins = false;
    if (rc != DEVICE_WIPING)
        end_wipe(s->shard->box, number, rc == DEVICE_WIPED);
}

void leases_work(shard *sh)
{
    box *b = sh->box;
    for (unsigned i = sh->index; sh->wiping && i < b->count; i += b->shard_count) {
        if (b->phase[i] == DXPU_CONTROL_SLOT_WIPING)
            go_on_wiping(&b->slots[i], i + 1);
    }
}

/* ==== 3  Requests ============================================================================= */

/* The key that a bind names. */
static state_key key_of(const dxpu_control_bind *m)
{
    state_key k;
    memset(&k, 0, sizeof k);
    k.known = m->keyed;
    if (m->keyed)
        memcpy(k.key, m->key, sizeof k.key);
    return k;
}

/* The slot's lease is not served since the box was started with keys, or without: see
   leases_begin().  Its manager names it again. */
static bool waits(const box *b, const dxpu_control_bind *m)
{
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    return !e->used && b->phase[m->slot - 1] == DXPU_CONTROL_SLOT_HELD &&
           m->epoch == e->epoch_seen && m->host_node == e->host_node &&
           m->host_slot == e->host_slot;
}

/* M-60 to M-62, M-83 */
static unsigned refuse_bind(const box *b, const dxpu_control_bind *m)
{
    const dxpu_box_entry *e = &b->entries[m->slot - 1];
    uint8_t phase = b->phase[m->slot - 1];
    if (m->keyed != !keys_plain(b->keys))
        return DXPU_CONTROL_CODE_KEY;
    if (m->epoch <= e->epoch_seen && !waits(b, m))
        return DXPU_CONTROL_CODE_EPOCH;
    bool goes_on = e->used && e->host_node == m->host_node && e->host_slot == m->host_slot;
    if (b->slots[m->slot - 1].drained && phase != DXPU_CONTROL_SLOT_KEPT && !goes_on)
        return DXPU_CONTROL_CODE_DRAINED; /* it is a new one */
    return phase == DXPU_CONTROL_SLOT_WIPING || phase == DXPU_CONTROL_SLOT_UNWIPED ||
                   b->slots[m->slot - 1].elsewhere
               ? DXPU_CONTROL_CODE_BUSY
               : DXPU_CONTROL_CODE_NONE;
}

unsigned leases_bind(box *b, const dxpu_control_bind *m)
{
    dxpu_box_entry *e = &b->entries[m->slot - 1];
    before was = keep(b, m->slot);
    state_key key = key_of(m);
    unsigned code;
    if (e->used && e->epoch == m->epoch && e->host_node == m->host_node &&
        e->host_slot == m->host_slot) /* M-54: asked again */
        return memcmp(&key, &was.key, sizeof key) ? DXPU_CONTROL_CODE_KEY : DXPU_CONTROL_CODE_NONE;
    code = refuse_bind(b, m);
    if (code)
        return code;
    if (dxpu_box_bind(&b->table, m->slot, m->host_node, m->host_slot, 0, m->epoch) != DXPU_OK)
        return DXPU_CONTROL_CODE_EMPTY; /* no device */
    b->phase[m->slot - 1] = DXPU_CONTROL_SLOT_HELD;
    b->lease_key[m->slot - 1] = key;
    code = settle(b, m->slot, &was);
    if (!code)
        slots_end(&b->slots[m->slot - 1], DXPU_REASON_REPLACED); /* of an older lease */
    return code;
}

/* The phase of a slot whose lease ends, or that is not lent.  unknown: it never learned of
   that lease, and an older state file may have come back: then the slot was lent since. */
static uint8_t after_unbind(uint8_t phase, bool keep_data, bool unknown)
{
    if (phase == DXPU_CONTROL_SLOT_WIPING || (phase == DXPU_CONTROL_SLOT_WIPED && !unknown))
        return phase; /* M-64: there are no data any more */
    if (!keep_data)
        return DXPU_CONTROL_SLOT_WIPING;
    return phase == DXPU_CONTROL_SLOT_UNWIPED ? phase : DXPU_CONTROL_SLOT_KEPT;
}

unsigned leases_unbind(box *b, const dxpu_control_unbind *m)
{
    dxpu_box_entry *e = &b->entries[m->slot - 1];
    before was = keep(b, m->slot);
    unsigned code;
    if (m->epoch < e->epoch_seen)
        return DXPU_CONTROL_CODE_EPOCH; /* M-63 */
    if (m->keep && b->slots[m->slot - 1].elsewhere)
        return DXPU_CONTROL_CODE_BUSY; /* what is here is not what is to be kept */
    if (m->epoch > e->epoch_seen) {    /* it never learned of that lease, which none may use */
        e->epoch_seen = m->epoch;
        e->host_node = 0;
        e->host_slot = 0;
    }
    (void)dxpu_box_release(&b->table, m->slot); /* it may be unassigned */
    memset(&b->lease_key[m->slot - 1], 0, sizeof b->lease_key[0]);
    b->phase[m->slot - 1] = after_unbind(was.phase, m->keep, m->epoch > was.entry.epoch_seen);
    if (!was.entry.used && was.phase == b->phase[m->slot - 1] &&
        was.entry.epoch_seen == e->epoch_seen)
        return DXPU_CONTROL_CODE_NONE; /* asked again */
    code = settle(b, m->slot, &was);
    if (code)
        return code;
    slots_end(&b->slots[m->slot - 1], DXPU_REASON_DETACH);
    if (b->phase[m->slot - 1] == DXPU_CONTROL_SLOT_WIPING && was.phase != DXPU_CONTROL_SLOT_WIPING)
        begin_wipe(b, m->slot);
    return DXPU_CONTROL_CODE_NONE;
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

/* ==== 4  Admission ============================================================================ */

/* A host that has missed the end of its lease asks again and again: reported once. */
static void fenced(box *b, unsigned number, uint32_t node, uint64_t epoch)
{
    slot *s = &b->slots[number - 1];
    char text[TEXT_BYTES];
    if (s->fenced_node == node && s->fenced_epoch == epoch)
        return;
    s->fenced_node = node;
    s->fenced_epoch = epoch;
    snprintf(text, sizeof text, "node %u wanted it under epoch %llu, which is not its lease",
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

void leases_device(const box *b, unsigned number, dxpu_control_device *out)
{
    const slot *s = &b->slots[number - 1];
    const dxpu_box_entry *e = &b->entries[number - 1];
    out->state = slots_state(s);
    out->health = s->broken ? DXPU_CONTROL_HEALTH_BROKEN : DXPU_CONTROL_HEALTH_GOOD;
    out->vendor = s->kind->vendor;
    out->device = s->kind->device;
    out->class_code = s->kind->class_code;
    out->group = b->group_slots ? (number - 1) / b->group_slots + 1 : 0;
    out->epoch_seen = e->epoch_seen;
    out->port_offset = (uint16_t)s->shard->index;
    out->data = s->kind->wipe ? DXPU_CONTROL_DATA_PERSISTENT : DXPU_CONTROL_DATA_NONE;
    if (e->used) {
        out->epoch = e->epoch;
        out->peer_node = e->host_node;
        out->peer_slot = e->host_slot;
    }
    snprintf(out->model, sizeof out->model, "%s", b->model ? b->model : s->kind->name);
    snprintf(out->serial, sizeof out->serial, "%s", s->serial);
}

void leases_fault(void *user, const char *what)
{
    slot *s = user;
    box *b = s->shard->box;
    unsigned number = (unsigned)(s - b->slots) + 1;
    s->broken = true;
    log_note("slot %u: %s", number, what);
    manager_changed(b->manager, number);
    manager_alarm(b->manager, number, DXPU_CONTROL_ALARM_STORAGE, b->entries[number - 1].epoch,
                  what);
}
