/* keeper.c - see keeper.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Messages to the parent   2 A slot's line   3 What the worker says   4 The worker's
              end   5 What status and reports show   6 The loop */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll, open_memstream */
#endif
#include "keeper_internal.h"
#include "attachment.h"
#include "fd_message.h"
#include "log.h"
#include "dxpu_libevent.h"
#include "plugger.h"
#include "program.h"
#include "sandbox.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SPIN_NS = 50000,       /* of looking again before it blocks, as the fabric's loop does */
    LOOK_NS = 1000000,     /* how often a busy loop looks at the parent and who speaks QMP */
    VIEWS_NS = 10000000,   /* how often a busy one shows its counters */
    RECORDS = 256,         /* a turn */
    TURNS_AT_END = 64,     /* to take what came before a line's end */
    PLUG_MARGIN_MS = 2000, /* behind PLUG_WAIT_MS, for the process that speaks QMP */
    PLUG_UNSAID = 0xff
};

/* ==== 1  Messages to the parent =============================================================== */

_Static_assert((int)CROSSING_FDS <= (int)FD_MESSAGE_MAX, "a message has all of crossing_fds");

int keeper_tell(int socket, char kind, const int *fds, unsigned count)
{
    return fd_message_send(socket, (unsigned char)kind, fds, count);
}

int keeper_hear(int socket, int *fds, unsigned *count)
{
    unsigned char kind = 0;
    ssize_t n = fd_message_receive(socket, &kind, fds, count);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    return n == 1 && kind ? (char)kind : -1;
}

/* ==== 2  A slot's line ======================================================================== */

static crossing_record record_of(const keeper_slot *s, unsigned kind, unsigned arg)
{
    crossing_record r = { 0, (uint8_t)kind, (uint8_t)arg, s->number, s->life, 0 };
    return r;
}

static int line_submit(void *user, dxpu_bytes tlp, uint64_t now, uint64_t request)
{
    keeper_slot *s = user;
    crossing_record r;
    dxpu_tlp t;
    int rc = dxpu_tlp_receive(tlp, &t);
    unsigned cls;
    if (rc != DXPU_OK)
        return rc;
    cls = dxpu_tlp_class(&t);
    if (!crossing_room(&s->keeper->cross, s->number, cls))
        return DXPU_E_AGAIN;
    if (cls == DXPU_NONPOSTED)
        rc = dxpu_tags_track(guest_tags(s->keeper->guest, s->number), &t, now, request);
    if (rc != DXPU_OK)
        return rc;
    r = record_of(s, CROSSING_TLP, cls);
    r.bytes = (uint16_t)tlp.len;
    (void)crossing_put(&s->keeper->cross, &r,
                       tlp.ptr); /* there is room, or the worker's end comes */
    return DXPU_OK;
}

static int line_submit_event(void *user, const dxpu_event *e)
{
    keeper_slot *s = user;
    crossing_record r = record_of(s, CROSSING_EVENT, 0);
    if (!crossing_room(&s->keeper->cross, s->number, CROSSING_EVENTS))
        return DXPU_E_AGAIN;
    r.bytes = sizeof *e;
    (void)crossing_put(&s->keeper->cross, &r, e);
    return DXPU_OK;
}

static void drop_first(keeper_slot *s, unsigned cls)
{
    queue_pop(&s->in, cls);
    crossing_return(&s->keeper->cross, s->number, cls);
}

/* Find the request that the first completion answers; drop those that answer none. */
static void match(keeper_slot *s)
{
    const queue_item *w;
    while (!s->matched && (w = queue_peek(&s->in, DXPU_COMPLETION)) != NULL) {
        dxpu_bytes tlp = { w->bytes, w->len };
        dxpu_request req;
        dxpu_tlp t;
        if (dxpu_tlp_receive(tlp, &t) == DXPU_OK &&
            dxpu_tags_complete(guest_tags(s->keeper->guest, s->number), &t, &req) == DXPU_OK) {
            s->matched = true;
            s->request = req.user;
            s->last = req.done;
        } else {
            s->unexpected++;
            drop_first(s, DXPU_COMPLETION);
        }
    }
}

static dxpu_delivery line_peek(void *user, unsigned cls)
{
    keeper_slot *s = user;
    dxpu_delivery d = { { NULL, 0 }, { NULL, 0 }, 0, 0, false };
    const queue_item *w;
    if (cls == DXPU_COMPLETION)
        match(s);
    w = queue_peek(&s->in, cls);
    if (!w)
        return d;
    d.tlp.ptr = w->bytes;
    d.tlp.len = w->len;
    if (cls == DXPU_COMPLETION) {
        d.user = s->request;
        d.last = s->last;
    }
    return d;
}

static void line_take(void *user, unsigned cls, uint64_t now)
{
    keeper_slot *s = user;
    (void)now;
    if (cls == DXPU_COMPLETION)
        s->matched = false;
    drop_first(s, cls);
}

/* A box says nothing by events that concerns the guest: the worker takes them. */
static bool line_take_event(void *user)
{
    (void)user;
    return false;
}

static bool line_contain(void *user, dxpu_request *out)
{
    keeper_slot *s = user;
    return dxpu_tags_pop(guest_tags(s->keeper->guest, s->number), out);
}

static void line_end(keeper_slot *s, unsigned kind, uint8_t reason)
{
    const crossing_record r = record_of(s, kind, reason);
    if (!s->ending)
        s->ending = crossing_put(&s->keeper->cross, &r, NULL);
}

static void line_close(void *user, uint8_t reason)
{
    line_end(user, CROSSING_CLOSE, reason);
}

static void line_reset(void *user, uint8_t reason)
{
    keeper_slot *s = user;
    s->ending = false; /* what is closing in order is ended */
    line_end(s, CROSSING_RESET, reason);
}

int keeper_open_slot(keeper *k, unsigned i)
{
    keeper_slot *s = &k->slots[i];
    const slot_line line = { s,         line_submit,     line_submit_event, line_peek,
                             line_take, line_take_event, line_contain,      line_close,
                             line_reset };
    int rc = 0;
    s->keeper = k;
    s->number = i + 1;
    s->line = line;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        rc |= queue_init(&s->in, cls, CROSSING_TLPS, SLOT_ROOM_BYTES);
    return rc;
}

/* ==== 3  What the worker says ================================================================= */

/* It is not believed any more: its end is asked for, once. */
static void distrust(keeper *k, const char *why)
{
    if (k->killed)
        return;
    k->killed = true;
    log_warning("worker process: %s: killed", why);
    (void)keeper_tell(k->parent, KEEPER_KILL, NULL, 0);
}

static int open_guest(keeper *k)
{
    const slot_line *lines[DXPU_VSWITCH_SLOTS_MAX];
    char first[GUEST_SOCKET_BYTES];
    for (unsigned i = 0; i < k->set->guest->slots; i++)
        lines[i] = &k->slots[i].line;
    k->guest = guest_open(k->set->guest, lines, k->set->hold_ms * 1000000ull);
    if (!k->guest || sandbox_enter_as(SANDBOX_KEEPER))
        return -1;
    log_note("%llu slots, waiting for a guest at %s", (unsigned long long)k->set->guest->slots,
             guest_socket(k->set->guest, 0, first));
    (void)keeper_tell(k->parent, KEEPER_OPEN, NULL, 0);
    return 0;
}

/* S-183 */
static void on_hello(keeper *k, const crossing_record *r)
{
    crossing_hello h;
    crossing_record answer = { 0, CROSSING_READY, 0, 0, 0, 0 };
    memset(&h, 0, sizeof h);
    memcpy(&h, k->cross.payload, r->bytes < sizeof h ? r->bytes : sizeof h);
    if (r->bytes < sizeof h || h.version != CROSSING_VERSION || h.slots != k->set->guest->slots ||
        h.record_bytes != sizeof(crossing_record) || h.memory_bytes != sizeof(crossing_memory)) {
        distrust(k, "another version, or other sizes");
        return;
    }
    if (!k->guest && open_guest(k)) {
        k->over = k->failed = true;
        return;
    }
    k->agreed = true;
    for (unsigned i = 0; i < k->set->guest->slots; i++) {
        const keeper_slot *s = &k->slots[i];
        crossing_record memory = record_of(s, CROSSING_REMEMBER, 0);
        memory.bytes = s->memory_bytes;
        if (memory.bytes)
            (void)crossing_put(&k->cross, &memory, s->memory);
    }
    (void)crossing_put(&k->cross, &answer, NULL);
}

static void forget_queue(keeper_slot *s)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (queue_first(&s->in, cls))
            drop_first(s, cls);
    }
    s->matched = false;
}

/* V-47: the guest lets go first, where it can be asked.  False: it cannot. */
static bool begin_leaving(keeper_slot *s, uint8_t reason)
{
    keeper *k = s->keeper;
    if (k->plugger < 0 || reason == DXPU_REASON_SHUTDOWN ||
        guest_plug(k->guest, s->number).state < PLUG_OFFERED)
        return false;
    s->leaving = true;
    s->leave_reason = reason;
    s->leave_ns = dxpu_udp_now_ns() + (PLUG_WAIT_MS + PLUG_MARGIN_MS) * 1000000ull;
    return true;
}

static void end_leaving(keeper_slot *s)
{
    if (s->leaving && s->up)
        guest_detach(s->keeper->guest, s->number, s->leave_reason);
    s->leaving = false;
}

/* The line is over; what came before its end is taken first. */
static void end_line(keeper_slot *s)
{
    guest *g = s->keeper->guest;
    s->leaving = false;
    if (!s->up)
        return;
    for (unsigned n = 0; n < TURNS_AT_END && guest_work(g, s->number, dxpu_udp_now_ns()); n++)
        continue;
    s->up = false;
    guest_down(g, s->number);
    forget_queue(s);
}

/* Where the device is, as far as other boxes are to know (B-10). */
static void place_slot(keeper_slot *s)
{
    dxpu_p2p_place p = { 0 };
    attachment_memory m;
    if (s->memory_bytes == sizeof m)
        memcpy(&m, s->memory, sizeof m);
    if (s->memory_bytes == sizeof m && m.epoch && m.box_slot) {
        p.slot = (uint8_t)s->number;
        p.epoch = m.epoch;
        p.box_slot = m.box_slot;
        memcpy(p.key, m.box_key, sizeof p.key);
        if (m.box[0].u.any.sa_family == AF_INET) {
            p.family = 4;
            p.port = ntohs(m.box[0].u.v4.sin_port);
            memcpy(p.address, &m.box[0].u.v4.sin_addr, 4);
        } else {
            p.family = 6;
            p.port = ntohs(m.box[0].u.v6.sin6_port);
            memcpy(p.address, &m.box[0].u.v6.sin6_addr, sizeof p.address);
        }
    }
    guest_place(s->keeper->guest, s->number, &p);
}

static void begin_line(keeper_slot *s, const crossing_record *r)
{
    keeper *k = s->keeper;
    char whose[SLOT_WHOSE_BYTES];
    size_t len = r->bytes < sizeof whose ? r->bytes : sizeof whose - 1;
    if (s->up) {
        distrust(k, "a line came up twice");
        return;
    }
    memcpy(whose, k->cross.payload, len);
    whose[len] = '\0';
    for (size_t i = 0; i < len; i++) { /* S-181: it is printed */
        if (whose[i] < ' ' || whose[i] > '~')
            whose[i] = '?';
    }
    s->life = r->life;
    s->known = s->up = true;
    s->ending = s->matched = false;
    guest_up(k->guest, s->number, whose, dxpu_udp_now_ns());
}

static void take_tlp(keeper_slot *s, const crossing_record *r)
{
    dxpu_bytes tlp = { s->keeper->cross.payload, r->bytes };
    dxpu_tlp t;
    /* a class that is not its own would pass another's order and room */
    if (!s->up || r->life != s->life || dxpu_tlp_decode_header(tlp, &t) != DXPU_OK ||
        dxpu_tlp_class(&t) != r->arg || !queue_push(&s->in, r->arg, tlp, 0))
        crossing_return(&s->keeper->cross, s->number, r->arg);
}

static void on_record(keeper *k, const crossing_record *r)
{
    keeper_slot *s = r->slot && r->slot <= k->set->guest->slots ? &k->slots[r->slot - 1] : NULL;
    if (r->kind == CROSSING_HELLO && !k->agreed) {
        on_hello(k, r);
        return;
    }
    if (!k->agreed || (!s && r->kind != CROSSING_NUMBERS)) {
        distrust(k, "breaks the protocol");
        return;
    }
    switch (r->kind) {
    case CROSSING_TLP:
        take_tlp(s, r);
        break;
    case CROSSING_UP:
        begin_line(s, r);
        break;
    case CROSSING_DOWN:
        end_line(s);
        break;
    case CROSSING_BEGIN:
        s->memory_bytes = r->bytes <= sizeof s->memory ? r->bytes : 0;
        memcpy(s->memory, k->cross.payload, s->memory_bytes);
        place_slot(s);
        guest_begin(k->guest, s->number);
        break;
    case CROSSING_DETACH:
        if (!begin_leaving(s, r->arg))
            guest_detach(k->guest, s->number, r->arg);
        break;
    case CROSSING_FORGET:
        s->memory_bytes = 0;
        break;
    case CROSSING_NUMBERS: /* once for all that asked: a ring of these would be minutes of it */
        k->asked = true;
        break;
    default:
        distrust(k, "breaks the protocol");
        break;
    }
}

static void write_numbers(keeper *k);

/* Take what the worker has sent; true: there was something. */
bool keeper_hear_worker(keeper *k, bool about_to_block)
{
    crossing_record r;
    bool any;
    if (!k->linked || k->killed)
        return false;
    any = crossing_news(&k->cross, about_to_block);
    for (unsigned n = 0;
         any && n < RECORDS && !k->killed && !k->over && crossing_get(&k->cross, &r); n++)
        on_record(k, &r);
    if (k->asked && !k->killed && !k->over)
        write_numbers(k);
    k->asked = false;
    if (k->linked && k->cross.broken)
        distrust(k, "impossible records");
    k->stirred |= any;
    return any;
}

/* ==== 4  The worker's end ===================================================================== */

/* V-30: all that the guest waits for is answered now, every slot is empty. */
void keeper_lose_worker(keeper *k)
{
    crossing_record r;
    if (!k->linked)
        return;
    while (!k->killed && !k->over && crossing_get(&k->cross, &r)) /* its last words */
        on_record(k, &r);
    for (unsigned i = 0; k->guest && i < k->set->guest->slots; i++) {
        end_line(&k->slots[i]);
        k->slots[i].life = 0;
    }
    k->stirred = true;
    crossing_close(&k->cross);
    k->linked = k->agreed = k->killed = k->asked = false;
}

void keeper_on_link(keeper *k, const int *fds, unsigned count)
{
    crossing_fds link;
    if (count != CROSSING_FDS) {
        k->over = k->failed = true;
        return;
    }
    link.memory = fds[0];
    memcpy(link.keeper, fds + 1, sizeof link.keeper);
    memcpy(link.worker, fds + 3, sizeof link.worker);
    keeper_lose_worker(k);
    if (crossing_open(&k->cross, &link, true)) {
        log_error("cannot map memory for the worker: %s", strerror(errno));
        k->over = k->failed = true;
        return;
    }
    k->linked = true;
    k->workers++;
    k->unread_ns = 0;
}

/* A worker that reads nothing for the hold time is as good as gone. */
void keeper_watch_worker(keeper *k, uint64_t now)
{
    uint64_t unread = k->linked ? crossing_unread(&k->cross) : 0, tail = k->cross.head - unread;
    if (!unread) {
        k->unread_ns = 0;
    } else if (!k->unread_ns || tail != k->unread_tail) {
        k->unread_tail = tail;
        k->unread_ns = now;
    } else if (now - k->unread_ns >= k->set->hold_ms * 1000000ull) {
        distrust(k, "reads nothing for the hold time");
        keeper_lose_worker(k);
    }
}

void keeper_close_plugger(keeper *k)
{
    if (k->plugger >= 0)
        close(k->plugger);
    k->plugger = -1;
    for (unsigned i = 0; i < k->set->guest->slots; i++) {
        k->slots[i].plugged.state = PLUG_UNSAID;
        end_leaving(&k->slots[i]); /* it cannot be asked any more */
    }
}

void keeper_on_plug(keeper *k, const int *fds, unsigned count)
{
    keeper_close_plugger(k);
    if (count == 1)
        k->plugger = fds[0];
}

/* What is to be plugged in or out is said when it changes. */
void keeper_share_plugs(keeper *k, uint64_t now)
{
    for (unsigned i = 0; k->plugger >= 0 && i < k->set->guest->slots; i++) {
        keeper_slot *s = &k->slots[i];
        plug_view v = guest_plug(k->guest, i + 1);
        v.leaving = s->leaving;
        if ((v.state != s->plugged.state || v.msix != s->plugged.msix ||
             v.leaving != s->plugged.leaving) &&
            plugger_tell(k->plugger, i + 1, v))
            s->plugged = v;
        if (s->leaving && now >= s->leave_ns)
            end_leaving(s);
    }
}

/* Who let go of a device.  It costs a system call, so it is read as often as the parent is. */
void keeper_hear_plugger(keeper *k)
{
    int slot = 0;
    while (k->plugger >= 0 && (slot = plugger_hear(k->plugger)) > 0) {
        if ((unsigned)slot <= k->set->guest->slots)
            end_leaving(&k->slots[slot - 1]);
    }
    if (slot < 0)
        keeper_close_plugger(k);
}

uint64_t keeper_next_leave_ns(const keeper *k)
{
    uint64_t next = DXPU_NEVER;
    for (unsigned i = 0; i < k->set->guest->slots; i++) {
        const keeper_slot *s = &k->slots[i];
        next = s->leaving && s->leave_ns < next ? s->leave_ns : next;
    }
    return next;
}

static void hear_parent(keeper *k)
{
    int fds[CROSSING_FDS];
    unsigned count = CROSSING_FDS;
    int kind;
    while (!k->over && (kind = keeper_hear(k->parent, fds, &count)) != 0) {
        if (kind == KEEPER_LINK) {
            keeper_on_link(k, fds, count);
        } else if (kind == KEEPER_PLUG) {
            keeper_on_plug(k, fds, count);
        } else if (kind == KEEPER_LOST) {
            keeper_lose_worker(k);
        } else { /* ordered to stop, or no parent is left to start a worker */
            keeper_lose_worker(k);
            k->over = true;
        }
        count = CROSSING_FDS;
    }
}

/* ==== 5  What status and reports show ========================================================= */

/* What people, and a manager, see of a slot.  True: its state is another one. */
static bool show(keeper *k, unsigned i)
{
    keeper_slot *s = &k->slots[i];
    crossing_view *out = &k->cross.mem->view[i];
    const guest_view v = guest_look(k->guest, i + 1);
    bool changed = s->shown != v.state || atomic_load(&out->life) != s->life;
    if (changed)
        memcpy(out->note, v.note, sizeof out->note);
    atomic_store_explicit(&out->to_device, v.to_device, memory_order_relaxed);
    atomic_store_explicit(&out->from_device, v.from_device, memory_order_relaxed);
    atomic_store_explicit(&out->dropped, v.dropped, memory_order_relaxed);
    atomic_store_explicit(&out->msis_refused, v.msis_refused, memory_order_relaxed);
    atomic_store_explicit(&out->state, v.state, memory_order_relaxed);
    atomic_store_explicit(&out->life, s->life, memory_order_release);
    s->shown = v.state;
    return changed;
}

void keeper_show_all(keeper *k)
{
    bool changed = false;
    for (unsigned i = 0; k->agreed && i < k->set->guest->slots; i++) {
        if (k->slots[i].life)
            changed |= show(k, i);
    }
    if (changed)
        crossing_nudge(&k->cross);
}

static void report_all(keeper *k, report *r)
{
    report_open(r, "guest");
    report_number(r, "workers", k->workers);
    guest_report(k->guest, r);
    report_close(r);
    for (unsigned i = 0; i < k->set->guest->slots; i++) {
        char name[16];
        if (!k->slots[i].memory_bytes && !k->slots[i].known)
            continue;
        snprintf(name, sizeof name, "slot_%u", i + 1);
        report_open(r, name);
        guest_report_slot(k->guest, i + 1, r);
        report_number(r, "unexpected", k->slots[i].unexpected);
        report_close(r);
    }
    report_open(r, "server");
    guest_report_server(k->guest, r);
    report_close(r);
}

static void write_numbers(keeper *k)
{
    crossing_memory *m = k->cross.mem;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    report r;
    if (out) {
        report_begin_tape(&r, out);
        report_all(k, &r);
        fclose(out);
    }
    if (!text || bytes > sizeof m->tape)
        bytes = 0;
    if (bytes)
        memcpy(m->tape, text, bytes);
    free(text);
    atomic_store_explicit(&m->tape_bytes, (uint32_t)bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->tapes, 1, memory_order_release);
}

/* ==== 6  The loop ============================================================================= */

/* The parent holds the connections, too, so that it can end them gracefully whatever becomes of
   this process (V-33). */
static void share_clients(keeper *k)
{
    for (unsigned i = 0; i < guest_sockets(k->set->guest); i++) {
        uint64_t number;
        int fd = guest_client(k->guest, i, &number);
        if (fd < 0)
            number = 0;
        if (number == k->client[i])
            continue;
        k->client[i] = number;
        (void)keeper_tell(k->parent, (char)(KEEPER_CLIENT + i), &fd, number ? 1 : 0);
    }
}

/* One turn; true: something happened. */
bool keeper_turn(keeper *k, uint64_t now)
{
    int n = k->guest ? guest_process(k->guest) : 0;
    bool any = keeper_hear_worker(k, false) || n > 0 || k->stirred, left = false;
    k->stirred = false;
    if (n < 0)
        k->over = k->failed = true;
    if (!k->guest || k->over)
        return any;
    share_clients(k);
    keeper_share_plugs(k, now);
    if (any || now >= guest_next_ns(k->guest))
        guest_tick(k->guest, now);
    for (unsigned i = 0; any && i < k->set->guest->slots; i++) {
        if (k->slots[i].up)
            left |= guest_work(k->guest, i + 1, now);
    }
    k->stirred |= left; /* the next turn goes on, without news */
    return any || left;
}

/* Until there is something to do; at once, where there is already. */
static void block(keeper *k, uint64_t now)
{
    struct pollfd fds[4] = { { k->parent, POLLIN, 0 },
                             { k->guest ? guest_fd(k->guest) : -1, POLLIN, 0 },
                             { k->linked && !k->cross.deaf ? k->cross.wake : -1, POLLIN, 0 },
                             { k->guest ? k->plugger : -1, POLLIN, 0 } };
    uint64_t until = k->guest ? guest_next_ns(k->guest) : DXPU_NEVER, most,
             leave = keeper_next_leave_ns(k);
    struct timespec wait;
    keeper_show_all(k);
    most = k->linked && crossing_unread(&k->cross) ? k->set->hold_ms * 1000000ull : DXPU_NEVER;
    until = leave < until ? leave : until;
    until = until > now ? until - now : 0;
    until = until < most ? until : most;
    wait.tv_sec = (time_t)(until / 1000000000u);
    wait.tv_nsec = (long)(until % 1000000000u);
    if (keeper_hear_worker(k, true) || k->over)
        return;
    (void)ppoll(fds, 4, until == DXPU_NEVER ? NULL : &wait, NULL);
    if (k->linked && fds[2].revents)
        crossing_woken(&k->cross);
    if (fds[0].revents)
        hear_parent(k);
    if (fds[3].revents)
        keeper_hear_plugger(k);
}

static void loop(keeper *k)
{
    uint64_t last = dxpu_udp_now_ns(), looked = last, shown = last;
    bool any = true;
    while (!k->over) {
        uint64_t now = dxpu_udp_now_ns();
        any = keeper_turn(k, now);
        last = any ? now : last;
        keeper_watch_worker(k, now);
        if (now - shown >= VIEWS_NS) {
            shown = now;
            keeper_show_all(k);
        }
        if (any || k->set->wait == DXPU_UDP_BUSY ||
            (k->set->wait == DXPU_UDP_ADAPTIVE && now - last < SPIN_NS)) {
            if (!any) /* whoever it waits for may need this processor */
                (void)sched_yield();
            if (now - looked < LOOK_NS)
                continue;
            looked = now;
            hear_parent(k);
            keeper_hear_plugger(k);
        } else {
            block(k, now);
            looked = dxpu_udp_now_ns();
        }
    }
}

int keeper_run(const keeper_settings *set, int parent)
{
    keeper k = { .set = set, .parent = parent, .plugger = -1 };
    int rc = 0;
    k.slots = calloc(set->guest->slots, sizeof *k.slots);
    for (unsigned i = 0; k.slots && i < set->guest->slots; i++)
        rc |= keeper_open_slot(&k, i);
    if (k.slots && !rc)
        loop(&k);
    else
        k.failed = true;
    if (k.guest)
        guest_close(k.guest); /* it shuts the connection down, and reads it empty */
    crossing_close(&k.cross);
    if (k.plugger >= 0)
        close(k.plugger);
    for (unsigned i = 0; k.slots && i < set->guest->slots; i++)
        queue_free(&k.slots[i].in);
    free(k.slots);
    return k.failed ? PROGRAM_SYSTEM : PROGRAM_GOOD;
}
