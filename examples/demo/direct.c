/* dxpu-direct - one NVMe controller for a virtual machine, with no fabric: to compare with
   SPDX-License-Identifier: MIT

   What dxpu-host and dxpu-box do together, in one process: their vfio-user function, virtual
   switch, slot and device model.  Only the channel is missing: the slot's line is a queue in memory
   to the model and back.  So there is no frame, no CRC, no credit and no datagram.  The event loop
   is that of the proxies, its UDP port carries nothing.

   CONTENTS   1 The wire in place of a channel   2 The loop   3 The program */
#include "nvme.h"
#include "log.h"
#include "bridge.h"
#include "dxpu_libevent.h"
#include "options.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HOLD_NS 1000000000u /* as the proxies have it */

/* ==== 1  The wire in place of a channel ======================================================= */

/* A TLP of the device on its way to the slot. */
typedef struct wire_tlp {
    struct wire_tlp *next;
    uint64_t user; /* a completion's: as dxpu_delivery has it */
    bool last;
    unsigned cls;
    size_t len;
    uint8_t bytes[];
} wire_tlp;

/* There is one device, so there is one wire. */
static struct {
    dxpu_tags *tags;
    device_port port;
    void *device;
    jobs_pool *pool; /* waits for its disk, as in dxpu-box */
    jobs_lane *lane;
    jobs jobs;
    int wake; /* eventfd: jobs are over */
    wire_tlp *head, **tail;
    uint64_t taken;
    unsigned waiting;
} wire = { .wake = -1 };

/* device_port.emit: nothing is called from here, so the device is never entered again. */
static void wire_emit(void *user, dxpu_bytes tlp)
{
    wire_tlp *w = malloc(sizeof *w + tlp.len);
    dxpu_request r = { .user = 0 };
    dxpu_tlp t;
    (void)user;
    if (!w)
        abort(); /* a lost completion would be a silent fault */
    memcpy(w->bytes, tlp.ptr, tlp.len);
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK ||
        (dxpu_tlp_class(&t) == DXPU_COMPLETION &&
         dxpu_tags_complete(wire.tags, &t, &r) != DXPU_OK)) {
        free(w); /* as a channel drops unsolicited completions */
        return;
    }
    w->next = NULL;
    w->user = r.user;
    w->last = r.done;
    w->cls = dxpu_tlp_class(&t);
    w->len = tlp.len;
    *wire.tail = w;
    wire.tail = &w->next;
    wire.waiting++;
}

/* device_port.waiting */
static unsigned wire_waits(void *user)
{
    (void)user;
    return wire.waiting;
}

static int wire_submit(void *user, dxpu_bytes tlp, uint64_t now, uint64_t request)
{
    dxpu_tlp t;
    int rc = dxpu_tlp_receive(tlp, &t);
    (void)user;
    if (rc == DXPU_OK && dxpu_tlp_class(&t) == DXPU_NONPOSTED)
        rc = dxpu_tags_track(wire.tags, &t, now, request);
    if (rc == DXPU_OK)
        nvme_kind.tlp(wire.device, &t, tlp);
    return rc;
}

static int wire_submit_event(void *user, const dxpu_event *e)
{
    (void)user;
    nvme_kind.event(wire.device, e);
    return DXPU_OK;
}

/* One queue in the order of emission keeps every ordering rule. */
static dxpu_delivery wire_peek(void *user, unsigned cls)
{
    dxpu_delivery d = { { NULL, 0 }, { NULL, 0 }, 0, 0, false };
    const wire_tlp *w = wire.head;
    (void)user;
    if (w && w->cls == cls) {
        d.tlp.ptr = w->bytes;
        d.tlp.len = w->len;
        d.user = w->user;
        d.last = w->last;
    }
    return d;
}

static void wire_take(void *user, unsigned cls, uint64_t now)
{
    wire_tlp *w = wire.head;
    (void)user;
    (void)cls;
    (void)now;
    wire.taken++;
    wire.head = w->next;
    if (!wire.head)
        wire.tail = &wire.head;
    wire.waiting--;
    free(w);
}

/* The device says nothing else, and the wire is never closed. */
static bool wire_take_event(void *user)
{
    (void)user;
    return false;
}

static bool wire_contain(void *user, dxpu_request *out)
{
    (void)user;
    return dxpu_tags_pop(wire.tags, out);
}

static void wire_end(void *user, uint8_t reason)
{
    (void)user;
    (void)reason;
}

static const slot_line the_wire = { NULL,         wire_submit, wire_submit_event,
                                    wire_peek,    wire_take,   wire_take_event,
                                    wire_contain, wire_end,    wire_end };

/* ==== 2  The loop ============================================================================= */

static struct {
    dxpu_udp *udp;
    guest *guest;
    bool failed;
} loop;

/* Until the model and the guest have nothing more for each other. */
static void loop_run(void *user, uint64_t now)
{
    uint64_t taken;
    (void)user;
    nvme_kind.tick(wire.device, now); /* its jobs may be over */
    do {
        taken = wire.taken;
        while (guest_work(loop.guest, 1, now))
            continue;
        nvme_kind.tick(wire.device, now);       /* it goes on when its TLPs have left */
    } while (wire.head && wire.taken != taken); /* else it waits for room to its client */
    guest_tick(loop.guest, now);
}

static uint64_t loop_next_ns(void *user)
{
    (void)user;
    return guest_next_ns(loop.guest);
}

static void loop_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                          unsigned flags)
{
    (void)user;
    (void)buf;
    (void)len;
    (void)from;
    (void)flags;
}

static void on_guest(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
    loop.failed |= guest_process(loop.guest) < 0;
    if (loop.failed)
        dxpu_udp_stop(loop.udp);
}

/* loop_run() follows. */
static void on_wake(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    (void)user;
    jobs_woken(fd);
}

static void on_stop(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
    dxpu_udp_stop(loop.udp);
}

static int loop_forever(void)
{
    static const dxpu_udp_callbacks cb = { NULL, loop_datagram, loop_next_ns, loop_run };
    struct event_base *base = dxpu_udp_base(loop.udp);
    struct event *events[] = {
        event_new(base, guest_fd(loop.guest), EV_READ | EV_PERSIST, on_guest, NULL),
        event_new(base, wire.wake, EV_READ | EV_PERSIST, on_wake, NULL),
        evsignal_new(base, SIGINT, on_stop, NULL), evsignal_new(base, SIGTERM, on_stop, NULL)
    };
    enum { COUNT = sizeof events / sizeof events[0] };
    bool ready = true;
    int rc = -1;
    for (unsigned i = 0; i < COUNT; i++)
        ready = ready && events[i] && !event_add(events[i], NULL);
    if (ready) {
        guest_up(loop.guest, 1, "the model", dxpu_udp_now_ns());
        rc = dxpu_udp_loop(loop.udp, &cb);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (events[i])
            event_free(events[i]);
    }
    return loop.failed ? -1 : rc;
}

/* ==== 3  The program ========================================================================== */

static struct {
    guest_settings guest;
    unsigned wait; /* DXPU_UDP_ADAPTIVE.. */
    device_settings device;
} set = { { NULL, 0, 8, 64u << 20, (uint64_t)64 << 30, GUEST_SOCKET_OWNER, 0, &bridge_form, NULL,
            false, false },
          DXPU_UDP_ADAPTIVE,
          { .memory_bytes = 64u << 20,
            .mps_bytes = 4096,
            .mrrs_bytes = 4096, /* the story's boxes have --mrrs 4096 */
            .identity = 0xd1ec7,
            .timeout_ns = DXPU_NEVER } };

static const option_row rows[] = {
    { "vfio-user", "SOCKET", "serve a virtual machine that connects here", OPTION_TEXT,
      &set.guest.socket, 0, 0 },
    { "slots", "N", "how many slots it sees; the first is filled (8)", OPTION_NUMBER,
      &set.guest.slots, 1, 28 },
    { "topology", "root-ports|switch", "as dxpu-host has it (root-ports)", OPTION_CHOICE,
      &set.guest.topology, 0, 0 },
    { "file", "FILE", "the blocks (in memory)", OPTION_TEXT, &set.device.file, 0, 0 },
    { "size", "SIZE", "of the namespace (the file's, or 64M)", OPTION_SIZE, &set.device.file_bytes,
      1u << 20, (uint64_t)1 << 44 },
    { "wait", "adaptive|block|busy", "as dxpu-host and dxpu-box wait (adaptive)", OPTION_CHOICE,
      &set.wait, 0, 0 },
};

/* 0, or -1 after a message. */
static int open_device(void)
{
    wire.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    wire.pool = jobs_pool_new(JOBS_SHARE);
    if (wire.wake >= 0 && wire.pool)
        wire.lane = jobs_lane_new(wire.pool, wire.wake, &wire.jobs);
    set.device.jobs = &wire.jobs;
    if (wire.lane)
        wire.device = nvme_kind.create(&set.device, &wire.port);
    if (wire.device)
        return 0;
    log_error("cannot create a device: out of memory, or --file cannot be used");
    return -1;
}

static void close_device(void)
{
    if (wire.device)
        nvme_kind.destroy(wire.device);
    jobs_lane_free(wire.lane);
    jobs_pool_free(wire.pool);
    if (wire.wake >= 0)
        (void)close(wire.wake);
}

/* The port, the model, and the guest in front of it. */
static int open_all(void)
{
    static const slot_line *lines[DXPU_VSWITCH_SLOTS_MAX];
    dxpu_udp_config cfg;
    const char *why;
    dxpu_udp_config_default(&cfg);
    cfg.wait = set.wait;
    cfg.sockets = 1;
    wire.tail = &wire.head;
    wire.port.emit = wire_emit;
    wire.port.waiting = wire_waits;
    if (open_device())
        return -1;
    loop.udp = dxpu_udp_parse("127.0.0.1:0", &cfg.local[0]) ? NULL : dxpu_udp_open(&cfg, &why);
    if (!loop.udp) {
        log_error("cannot create an event loop");
        return -1;
    }
    for (unsigned i = 0; i < DXPU_VSWITCH_SLOTS_MAX; i++)
        lines[i] = &the_wire; /* only the first one's comes up */
    loop.guest = guest_open(&set.guest, lines, HOLD_NS);
    if (!loop.guest)
        return -1;
    wire.tags = guest_tags(loop.guest, 1);
    log_note("waiting for a guest at %s", set.guest.socket);
    return 0;
}

int main(int argc, char **argv)
{
    option_program program = { "dxpu-direct",
                               "an NVMe controller for a virtual machine, with no fabric",
                               DXPU_VERSION,
                               rows,
                               sizeof rows / sizeof rows[0],
                               "exit status: 0 stopped as asked, 2 usage, 3 system error\n",
                               NULL,
                               0,
                               NULL };
    int rc = options_parse(&program, argc, argv, NULL);
    if (rc != OPTIONS_GO)
        return options_status(rc);
    if (!set.guest.socket)
        return options_wrong("--vfio-user SOCKET is required");
    rc = open_all() ? -1 : loop_forever();
    if (loop.guest)
        guest_close(loop.guest);
    dxpu_udp_close(loop.udp);
    while (wire.head)
        wire_take(NULL, 0, 0);
    close_device();
    return rc ? 3 : 0;
}
