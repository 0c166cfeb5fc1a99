/* measure.c - instructions of a box in firmware: what one frame, one TLP, one idle poll costs
   SPDX-License-Identifier: MIT

   Host and box are one image and pass frames to each other directly, so that nothing but
   dxpu_fw_poll() is between two looks at the counter.  It means something only under QEMU's
   -icount shift=0, where a nanosecond is an instruction; tests/firmware/footprint.py runs it. */
#include "board.h"
#include "dxpu_portable.h"

enum {
    RING = 64,
    FRAME_BYTES = 1520,
    TLP_BYTES = 4132,
    CHANNEL_BYTES = 256 * 1024,
    WINDOW = 16, /* frames, and TLPs a class: dxpu_fw_config_default() */
    TICK_NS = 50000
};

typedef struct tlp_ring {
    dxpu_fw_ring ring;
    volatile uint32_t lengths[RING];
    uint32_t bytes[RING * TLP_BYTES / 4];
} tlp_ring;

typedef struct frame_ring {
    dxpu_fw_ring ring;
    volatile uint32_t lengths[RING];
    uint32_t bytes[RING * FRAME_BYTES / 4];
} frame_ring;

static const dxpu_fw_address host_at = { { 2, 0, 0, 0, 0, 2 }, { 10, 9, 3, 1 }, 4458 };
static frame_ring rx, tx;
static tlp_ring to_device, from_device;
static dxpu_fw node;
static dxpu_fw_slot slots[1];
static uint64_t channels[2 * CHANNEL_BYTES / 8], host_memory[CHANNEL_BYTES / 8];
static dxpu_channel host;
static uint64_t now_ns = 1000;
static uint32_t given; /* TLPs the device took: what was measured did happen */
static uint8_t tlp_bytes[TLP_BYTES], data[DXPU_TLP_PAYLOAD_MAX_BYTES];

/* ==== Host and box ============================================================================ */

static uint32_t hook_random(void *user)
{
    static uint32_t last = 0x1000;
    (void)user;
    return ++last;
}

static bool hook_reset(void *user, uint16_t slot)
{
    (void)user;
    (void)slot;
    dxpu_fw_ring_drop(&to_device.ring);
    return true;
}

static const dxpu_fw_hooks hooks = { hook_random, hook_reset, NULL, NULL };

static bool start(void)
{
    dxpu_fw_config cfg;
    dxpu_channel_config other;
    (void)dxpu_fw_ring_init(&rx.ring, (uint8_t *)rx.bytes, rx.lengths, RING, FRAME_BYTES);
    (void)dxpu_fw_ring_init(&tx.ring, (uint8_t *)tx.bytes, tx.lengths, RING, FRAME_BYTES);
    (void)dxpu_fw_ring_init(&to_device.ring, (uint8_t *)to_device.bytes, to_device.lengths, RING,
                            TLP_BYTES);
    (void)dxpu_fw_ring_init(&from_device.ring, (uint8_t *)from_device.bytes, from_device.lengths,
                            RING, TLP_BYTES);
    dxpu_fw_config_default(&cfg);
    cfg.own = host_at;
    cfg.own.mac[5] = cfg.own.ip[3] = 1;
    cfg.rx = &rx.ring;
    cfg.tx = &tx.ring;
    cfg.hooks = &hooks;
    slots[0].to_device = &to_device.ring;
    slots[0].from_device = &from_device.ring;
    dxpu_channel_config_default(&other);
    other.local_id = 7;
    other.epoch = 1;
    other.remote.slot = 1;
    other.lossless = true; /* no window of congestion control holds back what is measured */
    return dxpu_fw_init(&node, &cfg, slots, 1, channels, sizeof channels) == DXPU_OK &&
           dxpu_channel_init(&host, &other, host_memory, sizeof host_memory) == DXPU_OK &&
           dxpu_channel_open(&host, now_ns) == DXPU_OK;
}

static void to_box(dxpu_fw_ring *r)
{
    uint8_t *room, path = 0;
    int n;
    while ((room = dxpu_fw_ring_room(r)) != NULL &&
           (n = dxpu_channel_emit(&host, now_ns, room + DXPU_FW_HEADERS_BYTES,
                                  FRAME_BYTES - DXPU_FW_HEADERS_BYTES, &path)) > 0)
        dxpu_fw_ring_put(r, dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room, (uint32_t)n));
}

static void to_host(void)
{
    dxpu_fw_counters count;
    dxpu_fw_datagram d;
    uint32_t bytes = 0;
    uint8_t *frame;
    memset(&count, 0, sizeof count);
    for (; (frame = dxpu_fw_ring_peek(&tx.ring, &bytes)) != NULL; dxpu_fw_ring_take(&tx.ring)) {
        if (dxpu_fw_wire_parse(&host_at, frame, bytes, &d, &count) == DXPU_FW_DATAGRAM)
            (void)dxpu_channel_ingest(&host, now_ns, d.payload, d.payload_bytes, d.flags);
    }
}

static uint32_t poll(void)
{
    uint64_t before = board_instructions();
    dxpu_fw_poll(&node, now_ns);
    return (uint32_t)(board_instructions() - before);
}

/* Everybody has said everything. */
static void settle(void)
{
    unsigned i, cls;
    for (i = 0; i < 8; i++) {
        now_ns += TICK_NS;
        to_box(&rx.ring);
        (void)poll();
        to_host();
        for (cls = 0; cls < DXPU_CLASSES; cls++) {
            while (dxpu_channel_peek(&host, cls).tlp.len)
                (void)dxpu_channel_take(&host, cls, now_ns);
        }
        given += dxpu_fw_ring_used(&to_device.ring);
        dxpu_fw_ring_drop(&to_device.ring);
    }
}

/* ==== What is measured ======================================================================== */

static dxpu_bytes make_tlp(uint8_t type, uint32_t bytes)
{
    dxpu_bytes tlp;
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 4;
    t.address = (uint64_t)1 << 32;
    if (type == DXPU_TLP_MWR) {
        t.payload.ptr = data;
        t.payload.len = bytes;
    }
    (void)dxpu_be_from_range(t.address, bytes, &t.first_be, &t.last_be, &t.length_dw);
    tlp.ptr = tlp_bytes;
    tlp.len = 0;
    (void)dxpu_tlp_encode(&t, tlp_bytes, sizeof tlp_bytes, &tlp.len);
    return tlp;
}

static void host_submits(uint8_t type, uint32_t bytes, unsigned count)
{
    while (count--)
        (void)dxpu_channel_submit(&host, make_tlp(type, bytes), now_ns, 0);
}

/* One frame of writes, and as many reads: the poll that takes it and gives them to the device. */
static uint32_t arrives(uint32_t bytes, unsigned writes, unsigned reads)
{
    settle();
    now_ns += TICK_NS;
    host_submits(DXPU_TLP_MWR, bytes, writes);
    host_submits(DXPU_TLP_MRD, 4, reads);
    to_box(&rx.ring);
    return poll();
}

/* The same from the device: the poll that takes the writes, and sends them in one frame. */
static uint32_t leaves(uint32_t bytes, unsigned writes)
{
    dxpu_bytes tlp = make_tlp(DXPU_TLP_MWR, bytes);
    settle();
    now_ns += TICK_NS;
    while (writes--) {
        memcpy(dxpu_fw_ring_room(&from_device.ring), tlp.ptr, tlp.len);
        dxpu_fw_ring_put(&from_device.ring, (uint32_t)tlp.len);
    }
    return poll();
}

/* A frame of a write of 1,024 bytes whose own CRC is wrong; UDP's is wrong as well, or right. */
static uint32_t refused(bool by_udp)
{
    uint32_t bytes = 0;
    uint8_t *frame;
    settle();
    now_ns += TICK_NS;
    host_submits(DXPU_TLP_MWR, 1024, 1);
    to_box(&rx.ring);
    frame = dxpu_fw_ring_peek(&rx.ring, &bytes);
    frame[bytes - 1] ^= 1;
    if (!by_udp)
        (void)dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, frame, bytes - DXPU_FW_HEADERS_BYTES);
    return poll();
}

/* A window of frames of a write and a read, as many as there is credit for, without the first of
   them; and then that: it releases them all. */
static uint32_t fills_a_gap(uint32_t bytes)
{
    static uint8_t first[FRAME_BYTES];
    uint32_t first_bytes = 0;
    unsigned n;
    settle();
    now_ns += TICK_NS;
    host_submits(DXPU_TLP_MWR, bytes, 1);
    host_submits(DXPU_TLP_MRD, 4, 1);
    to_box(&rx.ring);
    memcpy(first, dxpu_fw_ring_peek(&rx.ring, &first_bytes), FRAME_BYTES);
    dxpu_fw_ring_take(&rx.ring);
    for (n = 1; n < WINDOW; n++) {
        host_submits(DXPU_TLP_MWR, bytes, 1);
        host_submits(DXPU_TLP_MRD, 4, 1);
        to_box(&rx.ring);
    }
    (void)poll();
    memcpy(dxpu_fw_ring_room(&rx.ring), first, first_bytes);
    dxpu_fw_ring_put(&rx.ring, first_bytes);
    return poll();
}

static uint32_t idle(void)
{
    settle();
    return poll();
}

/* What keys cost: a handshake is five agreements at this end (es, ss, ee, se, a key pair). */
static dxpu_primitives primitives;

static uint32_t agreement(void)
{
    static const uint8_t base[DXPU_KEY_BYTES] = { 9 };
    uint8_t out[DXPU_KEY_BYTES];
    uint64_t before = board_instructions();
    (void)primitives.agree(out, data, base);
    return (uint32_t)(board_instructions() - before);
}

static uint32_t seals(size_t bytes)
{
    dxpu_bytes header;
    uint64_t before = board_instructions();
    header.ptr = data;
    header.len = DXPU_FRAME_BASE_BYTES;
    primitives.aeads->encrypt(data, data, header, tlp_bytes, bytes, tlp_bytes + bytes);
    return (uint32_t)(board_instructions() - before);
}

/* ==== The image =============================================================================== */

static void tell(const char *what, uint32_t instructions)
{
    board_print("  ");
    board_print(what);
    board_print(" ");
    print_number(instructions);
    board_print("\n");
}

int main(void)
{
    uint8_t mac[6];
    (void)board_start(&rx.ring, &tx.ring, mac); /* for its timer and its console */
    board_print("instructions of one dxpu_fw_poll()\n");
    if (!start())
        return 1;
    settle();
    if (dxpu_channel_status(&host).state != DXPU_STATE_UP)
        return 2;
    tell("idle", idle());
    tell("arrives_1_write_of_4", arrives(4, 1, 0));
    tell("arrives_1_write_of_256", arrives(256, 1, 0));
    tell("arrives_1_write_of_1024", arrives(1024, 1, 0));
    tell("arrives_16_writes_of_4_16_reads", arrives(4, WINDOW, WINDOW));
    tell("leaves_1_write_of_4", leaves(4, 1));
    tell("leaves_1_write_of_256", leaves(256, 1));
    tell("leaves_1_write_of_1024", leaves(1024, 1));
    tell("leaves_16_writes_of_4", leaves(4, WINDOW));
    tell("refused_by_udp_1024", refused(true));
    tell("refused_by_crc_1024", refused(false));
    tell("fills_a_gap_of_15_256", fills_a_gap(256));
    settle();
    dxpu_portable_init(&primitives, NULL, NULL);
    tell("x25519", agreement());
    tell("seals_64", seals(64));
    tell("seals_1024", seals(1024));
    tell("given_to_the_device", given);
    board_print("bytes of memory\n");
    tell("channel", (uint32_t)dxpu_channel_bytes(&node.cfg.channel));
    tell("slot_with_two_channels", (uint32_t)(dxpu_fw_bytes(&node.cfg, 1) + sizeof(dxpu_fw_slot)));
    tell("node", (uint32_t)sizeof node);
    board_print(".\n");
    return 0;
}
