/* host.c - see host.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Fabric   2 Keeper   3 Control   4 Attachments of the command line   5 Opening */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* strdup */
#endif
#include "host.h"
#include "log.h"
#include "attachment.h"
#include "control.h"
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
    RECORD_TURN = 256,
    NUMBERS_MS = 300,               /* that a report waits for the keeper */
    LEAVE_MS = PLUG_WAIT_MS + 5000, /* the keeper gives it up before */
    HOLD_MS_MAX = 2400, /* QEMU breaks off after 5 s: one hold not read, one not answered */
    FEW_CHANNELS = 8    /* up to which a turn serves all of its channels */
};

struct host {
    const host_settings *set;
    fabric fabric;
    crossing cross;          /* to the keeper */
    struct event *event;     /* of it */
    bool lost;               /* it is not to be believed */
    attachment *attachments; /* of each slot */
    requests *requests;      /* NULL: neither port nor manager */
    control *control;        /* NULL: none */
    manager_link *manager;   /* NULL: none */
    struct {
        uint8_t state;
        uint16_t code;
        uint64_t epoch;
        uint8_t reach;
    } * told;                        /* of each slot, to the manager */
    uint8_t key[CROSSING_KEY_BYTES]; /* of what the keeper remembers */
    uint64_t forged;                 /* of that, what no worker made */
    bool again, stopping;
};

/* ==== 1  Fabric =============================================================================== */

static attachment *attachment_of(host *h, const fabric_channel *c)
{
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        if (h->attachments[i].channel == c)
            return &h->attachments[i];
    }
    return NULL;
}

/* fabric_callbacks.allowed */
static bool on_allowed(void *user, const fabric_channel *c, const uint8_t *key)
{
    const attachment *a = attachment_of(user, c);
    return !a || attachment_allows(a, key);
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    host *h = user;
    attachment *a = attachment_of(h, c);
    (void)now;
    if (a)
        attachment_up(a);
}

/* GUEST_*: how the guest takes the device, GUEST_LOOKS while unknown. */
static uint32_t view_of(const host *h, const attachment *a)
{
    const crossing_view *v = &h->cross.mem->view[a->number - 1];
    return a->up && atomic_load_explicit(&v->life, memory_order_acquire) == a->life
               ? atomic_load_explicit(&v->state, memory_order_relaxed)
               : (uint32_t)GUEST_LOOKS;
}

/* DXPU_CONTROL_SLOT_* */
static uint8_t slot_state(const host *h, const attachment *a)
{
    /* while its BARs are sized it is unknown whether the guest will be shown it */
    bool known = view_of(h, a) != GUEST_LOOKS;
    return a->attached  ? known ? DXPU_CONTROL_SLOT_UP : DXPU_CONTROL_SLOT_DIALING
           : a->channel ? DXPU_CONTROL_SLOT_CLOSING
                        : DXPU_CONTROL_SLOT_EMPTY;
}

/* Why the guest is not shown a device that is there: DXPU_CONTROL_CODE_*. */
static uint16_t slot_code(const host *h, const attachment *a)
{
    uint32_t state = view_of(h, a);
    return state == GUEST_UNREADABLE ? DXPU_CONTROL_CODE_UNREADABLE
           : state == GUEST_NO_ROOM  ? DXPU_CONTROL_CODE_NO_ROOM
                                     : DXPU_CONTROL_CODE_NONE;
}

/* M-53 */
static void tell_changes(host *h)
{
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        const attachment *a = &h->attachments[i];
        uint64_t epoch = a->epoch;
        uint8_t state = slot_state(h, a);
        uint8_t reach = attachment_reached(a);
        uint16_t code = slot_code(h, a);
        if (state == h->told[i].state && code == h->told[i].code && epoch == h->told[i].epoch &&
            reach == h->told[i].reach)
            continue;
        h->told[i].state = state;
        h->told[i].code = code;
        h->told[i].epoch = epoch;
        h->told[i].reach = reach;
        manager_changed(h->manager, i + 1);
    }
}

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    attachment *a = attachment_of(user, c);
    return a && attachment_work(a, now);
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    attachment *a = attachment_of(user, c);
    if (a)
        attachment_down(a, now);
}

static uint64_t on_next(void *user)
{
    host *h = user;
    uint64_t next = DXPU_NEVER;
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        uint64_t at = attachment_next_ns(&h->attachments[i]);
        next = at < next ? at : next;
    }
    return next;
}

static void on_tick(void *user, uint64_t now)
{
    host *h = user;
    for (unsigned i = 0; i < h->set->guest.slots; i++)
        attachment_tick(&h->attachments[i], now);
    if (h->manager)
        tell_changes(h);
    if (h->stopping && !fabric_busy(&h->fabric))
        fabric_stop(&h->fabric);
}

/* ==== 2  Keeper =============================================================================== */

/* V-32: what was attached when an earlier worker ended.  With a manager that says it, by new
   epochs (M-75). */
static void on_remembered(host *h, attachment *a, const crossing_record *r)
{
    if (!h->again || h->set->manager || h->stopping)
        return;
    int rc = attachment_recall(a, h->cross.payload, r->bytes, dxpu_udp_now_ns());
    h->forged += rc == ATTACHMENT_FORGED;
    if (rc == ATTACHMENT_FORGED)
        log_error("slot %u: keeper process of %s: it has an attachment that no worker made: not "
                  "attached; stop dxpu-host and its guest, which may control the keeper",
                  a->number, h->set->guest.socket);
    else if (rc)
        log_warning("slot %u: cannot restore its attachment", a->number);
}

static void on_record(host *h, const crossing_record *r)
{
    attachment *a = r->slot && r->slot <= h->set->guest.slots ? &h->attachments[r->slot - 1] : NULL;
    switch (r->kind) {
    case CROSSING_TLP:
    case CROSSING_EVENT:
    case CROSSING_CLOSE:
    case CROSSING_RESET:
        if (a)
            attachment_hear(a, r, h->cross.payload);
        break;
    case CROSSING_REMEMBER:
        if (a)
            on_remembered(h, a, r);
        break;
    default: /* CROSSING_READY */
        break;
    }
}

/* The loop's look at the keeper. */
static bool on_look(void *user, bool about_to_block)
{
    host *h = user;
    crossing_record r;
    uint32_t returned = h->cross.returned;
    bool any = !h->lost && crossing_news(&h->cross, about_to_block);
    if (h->cross.returned != returned) /* the keeper has room again, for any slot's */
        fabric_stir(&h->fabric);
    for (unsigned n = 0; any && n < RECORD_TURN && crossing_get(&h->cross, &r); n++)
        on_record(h, &r);
    if (h->cross.broken && !h->lost) {
        h->lost = true;
        log_warning("keeper process of %s: impossible records: its slots are detached",
                    h->set->guest.socket);
        host_abandon(h);
    }
    return any;
}

static void on_woken(evutil_socket_t fd, short what, void *user)
{
    host *h = user;
    (void)fd;
    (void)what;
    crossing_woken(&h->cross);
    if (h->cross.deaf) /* the parent says what became of the keeper */
        (void)event_del(h->event);
}

static int open_keeper(host *h, const crossing_fds *link)
{
    const crossing_hello hello = { CROSSING_VERSION, (uint32_t)h->set->guest.slots,
                                   sizeof(crossing_record), sizeof(crossing_memory) };
    const crossing_record r = { sizeof hello, CROSSING_HELLO, 0, 0, 0, 0 };
    unsigned slots = (unsigned)h->set->guest.slots;
    int rc = 0;
    if (crossing_open(&h->cross, link, false)) {
        log_error("cannot map memory for the keeper: %s", strerror(errno));
        return -1;
    }
    h->attachments = calloc(slots, sizeof *h->attachments);
    for (unsigned i = 0; h->attachments && i < slots; i++) {
        rc |= attachment_init(&h->attachments[i], i + 1, (uint32_t)h->set->node, &h->fabric,
                              &h->cross, h->key);
        h->attachments[i].leave_ms = h->set->guest.qmp ? LEAVE_MS : 0;
    }
    h->event =
        event_new(dxpu_udp_base(h->fabric.udp), h->cross.wake, EV_READ | EV_PERSIST, on_woken, h);
    if (!h->attachments || rc || !h->event || event_add(h->event, NULL))
        return -1;
    dxpu_udp_watch(h->fabric.udp, on_look, h);
    return crossing_put(&h->cross, &r, &hello) ? 0 : -1;
}

/* ==== 3  Control ============================================================================== */

/* What prevents an attach, besides the slot itself. */
static unsigned check_attach(const host *h, const dxpu_control_attach *m,
                             const dxpu_udp_address *box, unsigned paths)
{
    if (h->stopping)
        return DXPU_CONTROL_CODE_STOPPING;
    if (m->keyed && keys_plain(h->fabric.keys))
        return DXPU_CONTROL_CODE_KEY; /* M-83 */
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        const attachment *a = &h->attachments[i];
        if (i + 1 != m->slot && (a->attached || a->channel) && a->box_slot == m->box_slot &&
            attachment_reaches(a, box, paths, m->keyed ? m->key : NULL))
            return DXPU_CONTROL_CODE_TWICE; /* each would take it from the other, for ever */
    }
    return DXPU_CONTROL_CODE_NONE;
}

static unsigned on_attach(void *user, const dxpu_control_attach *m)
{
    host *h = user;
    attachment *a = &h->attachments[m->slot - 1];
    dxpu_udp_address box[DXPU_CONTROL_PATHS_MAX];
    unsigned code, paths = control_box_from(m, box);
    if (a->attached && a->box_slot == m->box_slot && a->epoch == m->epoch &&
        attachment_is_at(a, box, paths) && attachment_has_key(a, m->keyed ? m->key : NULL))
        return DXPU_CONTROL_CODE_NONE; /* M-31, M-85: asked again */
    code = check_attach(h, m, box, paths);
    if (code)
        return code;
    switch (attachment_begin(a, box, paths, m->box_slot, m->keyed ? m->key : NULL, m->epoch,
                             dxpu_udp_now_ns())) {
    case 0:
        return DXPU_CONTROL_CODE_NONE;
    case ATTACHMENT_CLOSING:
        return DXPU_CONTROL_CODE_CLOSING;
    case ATTACHMENT_FAMILY:
        return DXPU_CONTROL_CODE_ADDRESS;
    case ATTACHMENT_ALIKE:
        return DXPU_CONTROL_CODE_MALFORMED;
    case ATTACHMENT_PLAIN:
    case ATTACHMENT_NO_KEY:
        return DXPU_CONTROL_CODE_KEY;
    default:
        return DXPU_CONTROL_CODE_BUSY;
    }
}

static unsigned on_detach(void *user, const dxpu_control_detach *m)
{
    host *h = user;
    attachment *a = &h->attachments[m->slot - 1];
    if (!a->attached)
        return a->channel ? DXPU_CONTROL_CODE_CLOSING : DXPU_CONTROL_CODE_EMPTY;
    if (m->epoch && m->epoch != a->epoch)
        return DXPU_CONTROL_CODE_EPOCH;
    attachment_end(a, m->reason);
    return DXPU_CONTROL_CODE_NONE;
}

static void on_describe(void *user, unsigned number, dxpu_control_slot *out)
{
    const host *h = user;
    const attachment *a = &h->attachments[number - 1];
    const crossing_view *v = &h->cross.mem->view[number - 1];
    out->state = slot_state(h, a);
    out->error = (int16_t)a->last_error;
    out->reason = a->last_reason;
    out->attempts = a->attempts;
    out->incarnations = a->incarnations;
    out->to_device = atomic_load(&v->to_device);
    out->from_device = atomic_load(&v->from_device);
    out->dropped = atomic_load(&v->dropped);
    out->msis_refused = (uint32_t)atomic_load(&v->msis_refused);
    if (out->state == DXPU_CONTROL_SLOT_EMPTY)
        return;
    out->epoch = a->epoch;
    out->peer_slot = a->box_slot;
    control_address_from(a->channel ? fabric_peer(a->channel) : &a->path[0].remote, &out->peer);
    out->code = slot_code(h, a);
    if (out->code == DXPU_CONTROL_CODE_NO_ROOM)
        snprintf(out->note, sizeof out->note, "%.63s", v->note);
    else if (!out->code && a->channel)
        fabric_paths_text(a->channel, out->note);
}

static manager_link *open_link(host *h, struct event_base *base, const manager_proxy *link,
                               int *status)
{
    uint8_t identity[IDENTITY_BYTES];
    int rc = identity_file_open(h->set->manager->identity, identity);
    if (rc) {
        *status = rc;
        return NULL;
    }
    return manager_open(base, h->set->manager, identity, h->fabric.keys, h->requests, link);
}

/* manager_proxy.device */
static void on_device(void *user, unsigned number, dxpu_control_device *out)
{
    const host *h = user;
    const attachment *a = &h->attachments[number - 1];
    out->state = slot_state(h, a);
    if (out->state == DXPU_CONTROL_SLOT_EMPTY)
        return;
    out->code = slot_code(h, a);
    out->reach = attachment_reached(a);
    out->epoch = a->epoch;
    out->peer_slot = a->box_slot;
    if (a->channel)
        out->peer_node = a->channel->ch.cfg.remote.node;
}

/* manager_proxy.node: what was attached before can dial now (M-56). */
static void on_node(void *user, uint32_t node)
{
    host *h = user;
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        attachment *a = &h->attachments[i];
        a->node = node;
        if (a->attached && !a->channel)
            a->dial_ns = dxpu_udp_now_ns();
    }
}

static int open_control(host *h, int *status)
{
    control_proxy proxy = { .user = h,
                            .name = "dxpu-host",
                            .role = DXPU_CONTROL_ROLE_HOST,
                            .node = (uint32_t)h->set->node,
                            .slots = (uint16_t)h->set->guest.slots,
                            .attach = on_attach,
                            .detach = on_detach,
                            .slot = on_describe };
    manager_proxy link = { .user = h, .device = on_device, .node = on_node };
    struct event_base *base = dxpu_udp_base(h->fabric.udp);
    if (!h->set->control && !h->set->manager)
        return 0;
    h->requests = requests_open(&proxy);
    h->told = calloc(h->set->guest.slots, sizeof *h->told);
    if (!h->requests || !h->told)
        return -1;
    if (h->set->control)
        h->control =
            control_open(base, h->set->control, h->set->number, h->fabric.keys, h->requests);
    if (h->set->manager)
        h->manager = open_link(h, base, &link, status);
    return (h->set->control && !h->control) || (h->set->manager && !h->manager) ? -1 : 0;
}

/* ==== 4  Attachments of the command line ====================================================== */

/* One of --attach. */
typedef struct attachment_text {
    unsigned long long slot, box_slot, epoch;
    dxpu_udp_address box[DXPU_PATHS_MAX];
    unsigned paths;
} attachment_text;

/* Digits only; 0 for what is not a number or too large.  A sign, or an overflow, would become
   the highest epoch, above which a box never grants another one. */
static unsigned long long number_at(char *text, char **end)
{
    unsigned long long v = 0;
    *end = text + strspn(text, "0123456789");
    errno = 0;
    if (*end != text)
        v = strtoull(text, NULL, 10);
    return errno ? 0 : v;
}

/* One "N=ADDR:PORT[,ADDR:PORT...]/SLOT[/EPOCH]".  NULL, or what is wrong with it. */
static const char *parse_attachment(char *text, uint64_t slots, attachment_text *out)
{
    char *address = strchr(text, '='), *slot, *epoch, *end;
    out->epoch = 1;
    out->slot = number_at(text, &end);
    if (!address || end != address || out->slot < 1 || out->slot > slots)
        return "must be SLOT=ADDR:PORT[,ADDR:PORT...]/BOX-SLOT[/EPOCH], and SLOT within --slots";
    slot = strchr(++address, '/');
    if (!slot)
        return "the box's slot is required: ADDR:PORT/BOX-SLOT";
    *slot++ = 0;
    out->box_slot = number_at(slot, &epoch);
    end = epoch;
    if (*epoch == '/')
        out->epoch = number_at(epoch + 1, &end);
    if (out->box_slot < 1 || out->box_slot > 0xffff || *end || out->epoch < 1)
        return "BOX-SLOT is 1..65535, EPOCH at least 1";
    return dxpu_udp_parse_list(address, out->box, DXPU_PATHS_MAX, &out->paths);
}

/* Cut the first slot off a list: up to the comma in front of the next "N=". */
static char *next_attach(char **rest)
{
    char *one = *rest, *comma = one ? strchr(one, ',') : NULL;
    while (comma && comma[1 + strspn(comma + 1, "0123456789")] != '=')
        comma = strchr(comma + 1, ',');
    *rest = comma ? comma + 1 : NULL;
    if (comma)
        *comma = '\0';
    return one;
}

/* Each attachment of the list to `each`, until that says what is wrong.  NULL, or that. */
static const char *for_attachments(const host_settings *set, void *user,
                                   const char *(*each)(void *user, const attachment_text *a))
{
    char *list = set->attach ? strdup(set->attach) : NULL, *rest = list;
    const char *wrong = set->attach && !list ? "out of memory" : NULL;
    for (char *one; !wrong && (one = next_attach(&rest)) != NULL;) {
        attachment_text a;
        wrong = parse_attachment(one, set->guest.slots, &a);
        if (!wrong)
            wrong = each(user, &a);
    }
    free(list);
    return wrong;
}

/* What check_one() compares with. */
typedef struct attach_check {
    uint32_t slots; /* named so far, bit slot - 1 */
    const char *listen;
} attach_check;

static bool listens_like(const char *listen, const dxpu_udp_address *box)
{
    char one[300];
    dxpu_udp_address local;
    for (size_t len; *listen; listen += len + (listen[len] != 0)) {
        len = strcspn(listen, ",");
        snprintf(one, sizeof one, "%.*s", (int)len, listen);
        if (!dxpu_udp_parse(one, &local) && local.u.any.sa_family == box->u.any.sa_family)
            return true;
    }
    return false;
}

static const char *check_one(void *user, const attachment_text *a)
{
    attach_check *c = user;
    uint32_t bit = 1u << (a->slot - 1);
    if (c->slots & bit)
        return "a slot is named twice";
    c->slots |= bit;
    for (unsigned i = 0; i < a->paths; i++) {
        if (!listens_like(c->listen, &a->box[i]))
            return "--listen has no address of this kind";
        for (unsigned k = 0; k < i; k++) {
            if (dxpu_udp_same(&a->box[i], &a->box[k]))
                return "an address is named twice";
        }
    }
    return NULL;
}

const char *host_check(const host_settings *set, const char *listen)
{
    static char text[400];
    attach_check c = { 0, listen };
    const char *wrong = for_attachments(set, &c, check_one);
    if (!wrong)
        return NULL;
    snprintf(text, sizeof text, "--attach %.200s: %s", set->attach, wrong);
    return text;
}

static const char *attach_one(void *user, const attachment_text *t)
{
    host *h = user;
    switch (attachment_begin(&h->attachments[t->slot - 1], t->box, t->paths, (uint16_t)t->box_slot,
                             NULL, t->epoch, dxpu_udp_now_ns())) {
    case 0:
        return NULL;
    case ATTACHMENT_FAMILY:
        return "--listen has no address of this kind";
    case ATTACHMENT_ALIKE:
        return "an address is named twice";
    case ATTACHMENT_PLAIN:
        return "--plain dials only this machine, unless --plain-network is given too";
    case ATTACHMENT_NO_KEY:
        return "the box's public key is required";
    default:
        return "this slot is named twice";
    }
}

static int attach_all(host *h)
{
    const char *wrong = for_attachments(h->set, h, attach_one);
    if (wrong)
        log_error("--attach %s: %s", h->set->attach, wrong);
    return wrong ? -1 : 0;
}

/* ==== 5  Opening ============================================================================== */

host *host_open(const host_settings *set, const fabric_settings *net, const crossing_fds *link,
                bool again, const uint8_t key[CROSSING_KEY_BYTES], int *status)
{
    const uint8_t number[] = { (uint8_t)set->number };
    fabric_callbacks cb = {
        NULL, NULL, on_up, on_work, on_down, on_next, on_tick, NULL, on_allowed
    };
    host *h = calloc(1, sizeof *h);
    crossing_fds own = *link;
    *status = PROGRAM_SYSTEM;
    if (!h) {
        crossing_close_fds(&own);
        return NULL;
    }
    h->set = set;
    h->again = again;
    (void)crypto_generichash(h->key, sizeof h->key, number, sizeof number, key, CROSSING_KEY_BYTES);
    cb.user = h;
    if (fabric_open(&h->fabric, net, (unsigned)set->guest.slots * 2 + 2, &cb) ||
        open_keeper(h, link) || (!again && attach_all(h)) || open_control(h, status)) {
        (void)host_close(h);
        return NULL;
    }
    h->fabric.few = FEW_CHANNELS;
    if (net->hold_ms > HOLD_MS_MAX && !set->number && !again)
        log_warning("--hold-ms %llu: QEMU breaks off when an access takes 5 s; use %d or "
                    "less",
                    (unsigned long long)net->hold_ms, HOLD_MS_MAX);
    return h;
}

int host_run(host *h)
{
    return fabric_run(&h->fabric);
}

void host_abandon(host *h)
{
    for (unsigned i = 0; i < h->set->guest.slots; i++)
        attachment_end(&h->attachments[i], DXPU_REASON_SHUTDOWN);
}

void host_stop(host *h)
{
    if (h->stopping)
        fabric_stop(&h->fabric);
    else
        host_abandon(h);
    h->stopping = true;
}

void host_keys_changed(host *h)
{
    fabric_keys_changed(&h->fabric);
    control_recheck(h->control);
}

/* The keeper's numbers, which it writes when it is asked; NULL: it does not. */
static const char *ask_numbers(host *h, size_t *bytes)
{
    const crossing_record r = { 0, CROSSING_NUMBERS, 0, 0, 0, 0 };
    crossing_memory *m = h->cross.mem;
    const struct timespec moment = { 0, 100000 };
    uint32_t before = atomic_load(&m->tapes), there;
    uint64_t until = dxpu_udp_now_ns() + NUMBERS_MS * 1000000ull;
    if (!crossing_put(&h->cross, &r, NULL))
        return NULL;
    while (atomic_load_explicit(&m->tapes, memory_order_acquire) == before) {
        if (dxpu_udp_now_ns() >= until)
            return NULL;
        (void)nanosleep(&moment, NULL);
    }
    there = atomic_load(&m->tape_bytes);
    *bytes = there < sizeof m->tape ? there : sizeof m->tape;
    return m->tape;
}

void host_report(host *h, report *r)
{
    size_t bytes = 0;
    const char *tape = ask_numbers(h, &bytes);
    report_play(r, tape, bytes, "guest");
    report_number(r, "attachments_forged", h->forged);
    for (unsigned i = 0; i < h->set->guest.slots; i++) {
        char name[16];
        if (!h->attachments[i].box[0]) /* it was never attached */
            continue;
        snprintf(name, sizeof name, "slot_%u", i + 1);
        report_open(r, name);
        report_play(r, tape, bytes, name);
        attachment_report(&h->attachments[i], r);
        report_close(r);
    }
    report_play(r, tape, bytes, "server");
    control_report(h->control, h->requests, r);
    manager_report(h->manager, r);
    fabric_report(&h->fabric, r);
}

struct event_base *host_base(host *h)
{
    return dxpu_udp_base(h->fabric.udp);
}

fabric *host_fabric(host *h)
{
    return &h->fabric;
}

int host_close(host *h)
{
    int rc;
    if (h->event)
        event_free(h->event);
    manager_close(h->manager);
    control_close(h->control);
    requests_close(h->requests);
    rc = fabric_close(&h->fabric);
    for (unsigned i = 0; h->attachments && i < h->set->guest.slots; i++)
        attachment_free(&h->attachments[i]);
    crossing_close(&h->cross);
    free(h->attachments);
    free(h->told);
    free(h);
    return rc;
}
