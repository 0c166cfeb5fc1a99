/* dxpu-direct - one NVMe controller for a virtual machine, with no fabric: to compare with
   SPDX-License-Identifier: MIT

   What dxpu-host and dxpu-box do together, in one process: their vfio-user function, virtual
   switch, slot and device model, compiled from the same files.  Only the channel is missing: the
   slot's TLPs go to the model, and the model's to the slot, by a queue in memory.  So there is no
   frame, no CRC, no credit and no datagram.  The event loop is that of the proxies, its UDP port
   carries nothing.

   CONTENTS   1 The wire in place of a channel   2 The proxy's slot on it   3 The program */
#include "examples/box_proxy/devices/nvme.h"
#include "examples/host_proxy/guest.h"
#include "examples/host_proxy/slot.h"
#include "options.h"

#include <signal.h>
#include <stdlib.h>

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
    fabric_channel channel; /* what the slot takes for its channel: only its address is used */
    dxpu_tags *tags;
    device_port port;
    void *device;
    wire_tlp *head, **tail;
    uint64_t taken;
    unsigned waiting;
} wire;

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
    if (dxpu_tlp_decode(tlp, &t) != DXPU_OK || (dxpu_tlp_class(&t) == DXPU_COMPLETION &&
                                                dxpu_tags_complete(wire.tags, &t, &r) != DXPU_OK)) {
        free(w); /* as a channel drops what nobody asked for */
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

static int wire_submit(dxpu_channel *ch, dxpu_bytes tlp, uint64_t now, uint64_t user)
{
    dxpu_tlp t;
    int rc = dxpu_tlp_decode(tlp, &t);
    (void)ch;
    if (rc == DXPU_OK && dxpu_tlp_class(&t) == DXPU_NONPOSTED)
        rc = dxpu_tags_track(wire.tags, &t, now, user);
    if (rc == DXPU_OK)
        nvme_kind.tlp(wire.device, &t, tlp);
    return rc;
}

static int wire_submit_event(dxpu_channel *ch, const dxpu_event *e)
{
    (void)ch;
    nvme_kind.event(wire.device, e);
    return DXPU_OK;
}

/* One queue in the order of emission keeps every ordering rule. */
static dxpu_delivery wire_peek(const dxpu_channel *ch, unsigned cls)
{
    dxpu_delivery d = { { NULL, 0 }, 0, false };
    const wire_tlp *w = wire.head;
    (void)ch;
    if (w && w->cls == cls) {
        d.tlp.ptr = w->bytes;
        d.tlp.len = w->len;
        d.user = w->user;
        d.last = w->last;
    }
    return d;
}

static int wire_take(dxpu_channel *ch, unsigned cls, uint64_t now)
{
    wire_tlp *w = wire.head;
    (void)ch;
    (void)cls;
    (void)now;
    wire.taken++;
    wire.head = w->next;
    if (!wire.head)
        wire.tail = &wire.head;
    wire.waiting--;
    free(w);
    return DXPU_OK;
}

/* The device says nothing else, and the wire is never closed. */
static bool wire_peek_event(const dxpu_channel *ch, dxpu_event *out)
{
    (void)ch;
    (void)out;
    return false;
}

static int wire_close(dxpu_channel *ch, uint8_t reason)
{
    (void)ch;
    (void)reason;
    return DXPU_OK;
}

static fabric_channel *wire_dial(fabric *f, const dxpu_channel_config *cfg, const uint8_t *key,
                                 const dxpu_udp_path *path, unsigned paths, uint64_t now)
{
    (void)f;
    (void)key;
    (void)path;
    (void)paths;
    (void)now;
    wire.tags = cfg->tags;
    return &wire.channel;
}

/* ==== 2  The proxy's slot on it =============================================================== */

static void channel_tick(guest_slot *s, uint64_t now);
static uint64_t channel_next_ns(const guest_slot *s);

#define dxpu_channel_submit       wire_submit
#define dxpu_channel_submit_event wire_submit_event
#define dxpu_channel_peek         wire_peek
#define dxpu_channel_take         wire_take
#define dxpu_channel_peek_event   wire_peek_event
#define dxpu_channel_close        wire_close
#define fabric_dial               wire_dial
#define slot_tick                 channel_tick
#define slot_next_ns              channel_next_ns
#include "examples/host_proxy/slot.c"
#undef slot_tick
#undef slot_next_ns

/* The fabric calls this whenever anything happened; it has no channel whose work it could do. */
void slot_tick(guest_slot *s, uint64_t now)
{
    uint64_t taken;
    if (!s->channel)
        return;
    if (!s->up)
        slot_up(s, now);
    do {
        taken = wire.taken;
        while (slot_work(s, now))
            continue;
        nvme_kind.tick(wire.device, now);       /* it goes on when its TLPs have left */
    } while (wire.head && wire.taken != taken); /* else it waits for room to its client */
    channel_tick(s, now);
}

uint64_t slot_next_ns(const guest_slot *s)
{
    return s->channel && !s->up ? 0 : channel_next_ns(s); /* what waits does so for its client */
}

/* ==== 3  The program ========================================================================== */

static struct {
    guest_settings guest;
    fabric_settings fabric;
    device_settings device;
} set = {
    { NULL, "1=127.0.0.1:1/1", 0, 8, 64u << 20, (uint64_t)64 << 30, NULL, 1, NULL, 0 },
    FABRIC_SETTINGS_DEFAULT("127.0.0.1:0"),
    { .memory_bytes = 64u << 20, .mps_bytes = 512, .identity = 0xd1ec7, .timeout_ns = DXPU_NEVER }
};

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
      &set.fabric.wait, 0, 0 },
};

static void on_stop(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    guest_stop(user);
}

static int run(guest *g)
{
    struct event *interrupted = evsignal_new(guest_base(g), SIGINT, on_stop, g);
    struct event *terminated = evsignal_new(guest_base(g), SIGTERM, on_stop, g);
    int rc = -1;
    if (interrupted && terminated && !event_add(interrupted, NULL) && !event_add(terminated, NULL))
        rc = guest_run(g);
    if (interrupted)
        event_free(interrupted);
    if (terminated)
        event_free(terminated);
    return rc;
}

int main(int argc, char **argv)
{
    option_program program = { "dxpu-direct",
                               "an NVMe controller for a virtual machine, with no fabric",
                               DXPU_VERSION,
                               rows,
                               sizeof rows / sizeof rows[0],
                               "exit status: 0 stopped as asked, 2 usage, 3 system error\n" };
    guest *g;
    int rc = options_parse(&program, argc, argv);
    if (rc != OPTIONS_GO)
        return rc == OPTIONS_SHOWN ? 0 : 2;
    if (!set.guest.socket) {
        fprintf(stderr, "dxpu-direct: --vfio-user SOCKET is missing; see dxpu-direct --help\n");
        return 2;
    }
    set.fabric.keys = keys_none(); /* no frame leaves it */
    wire.tail = &wire.head;
    wire.port.emit = wire_emit;
    wire.port.waiting = wire_waits;
    wire.device = nvme_kind.create(&set.device, &wire.port);
    if (!wire.device) {
        fprintf(stderr, "dxpu-direct: no device: no memory, or --file cannot be used\n");
        return 3;
    }
    g = guest_open(&set.guest, &set.fabric, &rc);
    rc = g ? run(g) : -1;
    if (g)
        rc |= guest_close(g);
    while (wire.head)
        (void)wire_take(NULL, 0, 0);
    nvme_kind.destroy(wire.device);
    return rc ? 3 : 0;
}
