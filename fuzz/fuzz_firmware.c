/* Fuzz target: a box in firmware between a host, a network that also says what the input says, and
   a device that does what the input says, descriptors included.  Whatever they do, the device is
   given only TLPs that keep every rule and fit their buffers, and what is sent is an ARP answer or
   a datagram in order.
   libFuzzer: -max_len=3072 */
#define DXPU_IMPLEMENTATION
#include "bindings/firmware/dxpu_firmware.c"
#include "bindings/firmware/dxpu_firmware_wire.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUFFERS = 8, FRAME_BYTES = 1520, TLP_BYTES = 192, MEMORY_BYTES = 512 * 1024, MEM = 8 };
enum {
    OP_ETHERNET, /* bytes from the network */
    OP_DATAGRAM, /* the same in UDP to the box */
    OP_FRAME,    /* the same with the CRC of a frame made right */
    OP_DEVICE,   /* bytes from the device, and what it says of their length */
    OP_TAKE,     /* the device takes one */
    OP_TIME,
    OP_ASTRAY, /* the network's or the device's count */
    OP_HOST,   /* a host dials, or goes on */
    OPS
};

static dxpu_fw_ring rings[4];
static uint64_t memory[MEMORY_BYTES / MEM], host_memory[MEMORY_BYTES / MEM];
static dxpu_fw_slot slot;
static dxpu_fw node;
static dxpu_channel host;
static uint64_t now_ns, epoch;
static uint32_t chance;

static const dxpu_fw_address host_at = { { 2, 0, 0, 0, 0, 2 }, { 10, 0, 0, 2 }, 40000 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t hook_random(void *user)
{
    (void)user;
    return chance = chance * 1664525u + 1013904223u;
}

static bool hook_reset(void *user, uint16_t number)
{
    (void)user;
    (void)number;
    dxpu_fw_ring_drop(slot.to_device);
    return hook_random(NULL) & 0x100;
}

static const dxpu_fw_hooks hooks = { hook_random, hook_reset, NULL, NULL };

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static uint32_t next(input *in, unsigned bytes)
{
    uint32_t v = 0;
    for (; bytes && in->left; bytes--, in->left--)
        v = v << 8 | *in->at++;
    return v;
}

/* As many bytes as the input says and has, and `most` at most. */
static uint32_t some(input *in, uint8_t *out, uint32_t most)
{
    uint32_t bytes = next(in, 2) % (most + 1);
    if (bytes > in->left)
        bytes = (uint32_t)in->left;
    memcpy(out, in->at, bytes);
    in->at += bytes;
    in->left -= bytes;
    return bytes;
}

static void from_network(input *in, unsigned op)
{
    uint8_t *room = dxpu_fw_ring_room(&rings[0]);
    uint32_t bytes;
    if (!room)
        return;
    if (op == OP_ETHERNET) {
        dxpu_fw_ring_put(&rings[0], some(in, room, FRAME_BYTES));
        return;
    }
    bytes = some(in, room + DXPU_FW_HEADERS_BYTES, FRAME_BYTES - DXPU_FW_HEADERS_BYTES - 4);
    if (op == OP_FRAME) {
        dxpu_frame_seal_crc(room + DXPU_FW_HEADERS_BYTES, bytes);
        bytes += DXPU_FRAME_CRC_BYTES;
    }
    dxpu_fw_ring_put(&rings[0], dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room, bytes));
}

static void from_device(input *in)
{
    uint8_t *room = dxpu_fw_ring_room(&rings[3]);
    uint32_t bytes, said;
    if (!room)
        return;
    bytes = some(in, room, TLP_BYTES);
    said = next(in, 1);
    dxpu_fw_ring_put(&rings[3], said == 0xff ? UINT32_MAX : said & 0x80 ? bytes + said : bytes);
}

static void device_takes(void)
{
    uint32_t bytes = 0;
    dxpu_bytes tlp = { dxpu_fw_ring_peek(&rings[2], &bytes), 0 };
    dxpu_tlp t;
    if (!tlp.ptr)
        return;
    tlp.len = bytes;
    must(dxpu_tlp_decode(tlp, &t) == DXPU_OK);
    dxpu_fw_ring_take(&rings[2]);
}

static void host_goes_on(void)
{
    dxpu_channel_config cfg;
    uint8_t *room, path;
    int n;
    if (dxpu_channel_state(&host) == DXPU_STATE_IDLE ||
        dxpu_channel_state(&host) >= DXPU_STATE_CLOSED) {
        dxpu_channel_config_default(&cfg);
        cfg.local_id = hook_random(NULL) | 1;
        cfg.epoch = ++epoch;
        cfg.remote.slot = 1;
        must(dxpu_channel_init(&host, &cfg, host_memory, sizeof host_memory) == DXPU_OK);
        must(dxpu_channel_open(&host, now_ns) == DXPU_OK);
    }
    while ((room = dxpu_fw_ring_room(&rings[0])) != NULL &&
           (n = dxpu_channel_emit(&host, now_ns, room + DXPU_FW_HEADERS_BYTES,
                                  FRAME_BYTES - DXPU_FW_HEADERS_BYTES, &path)) > 0)
        dxpu_fw_ring_put(&rings[0],
                         dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room, (uint32_t)n));
}

/* What the box sends; the host hears it. */
static void to_network(void)
{
    dxpu_fw_counters count = { 0 };
    dxpu_fw_datagram d;
    uint32_t bytes = 0;
    uint8_t *frame;
    for (; (frame = dxpu_fw_ring_peek(&rings[1], &bytes)) != NULL; dxpu_fw_ring_take(&rings[1])) {
        bool arp = bytes == DXPU_FW_ETHERNET_MIN_BYTES && frame[13] == 0x06;
        dxpu_fw_address to = host_at;
        memcpy(to.mac, frame, sizeof to.mac); /* whom it answers, the input may have said */
        memcpy(to.ip, frame + IP_TO, sizeof to.ip);
        to.port = get16(frame + UDP_TO);
        must(arp || dxpu_fw_wire_parse(&to, frame, bytes, &d, &count) == DXPU_FW_DATAGRAM);
        if (!arp && dxpu_channel_state(&host) != DXPU_STATE_IDLE)
            (void)dxpu_channel_ingest(&host, now_ns, d.payload, d.payload_bytes, 0);
    }
}

static void begin(void)
{
    static const uint32_t bytes[4] = { FRAME_BYTES, FRAME_BYTES, TLP_BYTES, TLP_BYTES };
    dxpu_fw_config cfg;
    for (unsigned i = 0; i < 4; i++) /* from malloc(): what is beyond the last one is seen */
        must(dxpu_fw_ring_init(&rings[i], malloc((size_t)BUFFERS * bytes[i]),
                               malloc(BUFFERS * sizeof(uint32_t)), BUFFERS, bytes[i]) == DXPU_OK);
    memset(&slot, 0, sizeof slot);
    memset(&host, 0, sizeof host);
    slot.to_device = &rings[2];
    slot.from_device = &rings[3];
    dxpu_fw_config_default(&cfg);
    cfg.own = host_at;
    cfg.own.mac[5] = cfg.own.ip[3] = 1;
    cfg.rx = &rings[0];
    cfg.tx = &rings[1];
    cfg.hooks = &hooks;
    cfg.channel.hold_ms = 50;
    now_ns = epoch = chance = 1;
    must(dxpu_fw_init(&node, &cfg, &slot, 1, memory, sizeof memory) == DXPU_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    begin();
    while (in.left) {
        unsigned op = next(&in, 1) % OPS;
        if (op <= OP_FRAME)
            from_network(&in, op);
        else if (op == OP_DEVICE)
            from_device(&in);
        else if (op == OP_TAKE)
            device_takes();
        else if (op == OP_TIME)
            now_ns += (uint64_t)next(&in, 2) * 1000;
        else if (op == OP_ASTRAY)
            rings[next(&in, 1) & 1 ? 3 : 0].put += next(&in, 2);
        else
            host_goes_on();
        dxpu_fw_poll(&node, now_ns);
        to_network();
    }
    for (unsigned i = 0; i < 4; i++) {
        free(rings[i].buffers);
        free((void *)(uintptr_t)rings[i].lengths);
    }
    return 0;
}
