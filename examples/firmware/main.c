/* main.c - a box of one slot without an operating system: plain memory, lent over Ethernet
   SPDX-License-Identifier: MIT

   The device is the memory model of dxpu-box, unaltered, at the other ends of the slot's rings.  In
   a product that is a PCIe root port's or an endpoint's hardware.  It also writes to its host when
   it is commanded to, anywhere: the purpose of the guard between it and the rings.

   Words of board_argument(): secret=HEX, the box's secret key; peer=HEX, the public key of a host,
   up to four times; seed=HEX, 32 bytes that random numbers come from; guard=off.  Without a secret
   the box has no keys.

   CONTENTS   1 The device   2 Random numbers   3 Hooks   4 Keys and a guard   5 The image */
#include "board.h"
#include "dxpu_firmware_keys.h"
#include "dxpu_portable.h"
#include "memory.h"

enum {
    ETHERNET_BUFFERS = 16,
    ETHERNET_BUFFER_BYTES = 1520, /* 1,514, a multiple of 4 */
    MPS_BYTES = 256,
    TLP_BUFFER_BYTES = 16 + 16 + MPS_BYTES + 4, /* prefixes, header, payload, digest */
    TLPS_TO_DEVICE = 16,
    TLPS_FROM_DEVICE = 64,
    COMPLETIONS_MAX = 34, /* of one read: 4 KB in pieces of 128, and an error message */
    CHANNEL_BYTES = 80 * 1024,
    MEMORY_BYTES = 256 * 1024,
    PEERS = 4,
    PENDING = 16, /* S-14 */
    KEYS_BYTES = 32 * 1024,
    ASKED = 64, /* requests of the host at once: more than it has credit for */
    WINDOWS = 64
};

static struct {
    dxpu_fw_ring rx, tx, to_device, from_device;
    volatile uint32_t lengths[2 * ETHERNET_BUFFERS + TLPS_TO_DEVICE + TLPS_FROM_DEVICE];
    uint32_t ethernet[2][ETHERNET_BUFFERS * ETHERNET_BUFFER_BYTES / 4];
    uint32_t tlps_to[TLPS_TO_DEVICE * TLP_BUFFER_BYTES / 4];
    uint32_t tlps_from[TLPS_FROM_DEVICE * TLP_BUFFER_BYTES / 4];
} hardware;

static dxpu_fw node;
static dxpu_fw_slot slots[1];
static uint64_t channels[DXPU_FW_LINKS * CHANNEL_BYTES / 8];
static void *device;
static dxpu_fw_clock the_clock;
static uint64_t random_state;
static dxpu_primitives primitives;

static struct {
    bool on;
    uint8_t secret[DXPU_KEY_BYTES], seed[DXPU_KEY_BYTES];
    uint64_t drawn;
    dxpu_fw_peer peers[PEERS];
    unsigned peer_count;
    dxpu_fw_keys keys;
    _Alignas(16) uint8_t memory[KEYS_BYTES];
} security;

static struct {
    dxpu_guard guard;
    dxpu_tag_entry asked[ASKED];
    dxpu_window windows[WINDOWS];
    uint32_t room[2 * TLP_BUFFER_BYTES / 4];
} isolation;

/* ==== 1  The device, at the other ends of its rings =========================================== */

static void device_emits(void *user, dxpu_bytes tlp)
{
    uint8_t *room = dxpu_fw_ring_room(&hardware.from_device); /* device_run() saw to it */
    (void)user;
    memcpy(room, tlp.ptr, tlp.len);
    dxpu_fw_ring_put(&hardware.from_device, (uint32_t)tlp.len);
}

static const device_port port = { .emit = device_emits };

/* A write of 16 bytes, "DMA!", four bytes of data and an address of 64 bits, makes the device write
   the data to that address, as the function that the last configuration write named. */
static void device_masters(const dxpu_tlp *t)
{
    static uint16_t self;
    uint8_t bytes[TLP_BUFFER_BYTES];
    dxpu_bytes tlp;
    dxpu_tlp w;
    if (t->type == DXPU_TLP_CFGWR0)
        self = t->target;
    if (t->type != DXPU_TLP_MWR || t->payload.len != 16 || memcmp(t->payload.ptr, "DMA!", 4))
        return;
    memset(&w, 0, sizeof w);
    w.type = DXPU_TLP_MWR;
    w.requester = self;
    w.address = dxpu_get_le64(t->payload.ptr + 8);
    w.header_dw = w.address >> 32 ? 4 : 3;
    w.payload.ptr = t->payload.ptr + 4;
    w.payload.len = 4;
    tlp.ptr = bytes;
    tlp.len = 0;
    if (dxpu_be_from_range(w.address, 4, &w.first_be, &w.last_be, &w.length_dw) == DXPU_OK &&
        dxpu_tlp_encode(&w, bytes, sizeof bytes, &tlp.len) == DXPU_OK)
        device_emits(NULL, tlp);
}

static void device_run(void)
{
    dxpu_bytes tlp;
    dxpu_tlp t;
    uint32_t bytes = 0;
    while (dxpu_fw_ring_used(&hardware.from_device) + COMPLETIONS_MAX <= TLPS_FROM_DEVICE &&
           (tlp.ptr = dxpu_fw_ring_peek(&hardware.to_device, &bytes)) != NULL) {
        tlp.len = bytes;
        if (dxpu_tlp_receive(tlp, &t) == DXPU_OK) {
            memory_kind.tlp(device, &t, tlp);
            device_masters(&t);
        }
        dxpu_fw_ring_take(&hardware.to_device);
    }
}

/* ==== 2  Random numbers ======================================================================= */

/* As unpredictable as the seed, and no more: a hash of it, a count and the time.  These boards have
   no generator; a product has. */
static void draw(void *user, uint8_t *out, size_t bytes)
{
    uint64_t mixed[2];
    uint8_t block[DXPU_KEY_BYTES];
    dxpu_bytes key, part;
    (void)user;
    key.ptr = security.seed;
    key.len = sizeof security.seed;
    part.ptr = (const uint8_t *)mixed;
    part.len = sizeof mixed;
    while (bytes) {
        size_t n = bytes < sizeof block ? bytes : sizeof block;
        mixed[0] = ++security.drawn;
        mixed[1] = board_counter();
        primitives.hash(block, sizeof block, key, &part, 1);
        memcpy(out, block, n);
        out += n;
        bytes -= n;
    }
    primitives.wipe(block, sizeof block);
}

/* ==== 3  Hooks ================================================================================ */

/* NOT unpredictable without a seed: then there are no keys either. */
static uint32_t hook_random(void *user)
{
    uint32_t number;
    (void)user;
    if (security.on) {
        draw(NULL, (uint8_t *)&number, sizeof number);
        return number;
    }
    random_state = (random_state + board_counter()) * 0xd1342543de82ef95u + 1;
    return (uint32_t)(random_state >> 32);
}

static bool hook_reset(void *user, uint16_t slot)
{
    (void)user;
    (void)slot;
    dxpu_fw_ring_drop(&hardware.to_device);
    memory_kind.reset(device);
    return true;
}

static void hook_event(void *user, uint16_t slot, const dxpu_event *e)
{
    (void)user;
    (void)slot;
    memory_kind.event(device, e);
}

/* No keep(): these boards have nothing that outlives QEMU. */
static const dxpu_fw_hooks hooks = { hook_random, hook_reset, hook_event, NULL };

/* ==== 4  Keys and a guard ===================================================================== */

/* The value of word NAME=, "" for a word of another name. */
static const char *value_of(const char *word, const char *name)
{
    while (*name && *word == *name) {
        word++;
        name++;
    }
    return *name ? "" : word;
}

static bool read_key(const char *text, uint8_t out[DXPU_KEY_BYTES])
{
    unsigned i, digit;
    for (i = 0; i < 2 * DXPU_KEY_BYTES; i++) {
        digit = text[i] >= '0' && text[i] <= '9'   ? (unsigned)(text[i] - '0')
                : text[i] >= 'a' && text[i] <= 'f' ? (unsigned)(text[i] - 'a' + 10)
                                                   : 16u;
        if (digit > 15)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | digit);
    }
    return text[i] == ' ' || text[i] == '\0';
}

/* What the words say; false for a secret without a seed.  *guarded: guard=off is not there. */
static bool read_argument(bool *guarded)
{
    const char *word = board_argument();
    bool seeded = false;
    *guarded = true;
    while (*word) {
        security.on |= read_key(value_of(word, "secret="), security.secret);
        seeded |= read_key(value_of(word, "seed="), security.seed);
        if (security.peer_count < PEERS &&
            read_key(value_of(word, "peer="), security.peers[security.peer_count].key))
            security.peers[security.peer_count++].slots = DXPU_FW_ALL_SLOTS;
        *guarded &= value_of(word, "guard=of")[0] != 'f';
        while (*word && *word != ' ')
            word++;
        while (*word == ' ')
            word++;
    }
    return seeded || !security.on;
}

static uint64_t clock_ns(void *user)
{
    (void)user;
    return dxpu_fw_clock_ns(&the_clock, board_counter());
}

static bool start_keys(dxpu_fw_config *cfg)
{
    dxpu_fw_keys_config keys;
    dxpu_noise_pair pair;
    bool good;
    memset(&keys, 0, sizeof keys);
    dxpu_noise_pair_of(&primitives, &pair, security.secret);
    keys.with = &primitives;
    keys.identity = &pair;
    keys.peers = security.peers;
    keys.peer_count = security.peer_count;
    keys.sessions = PENDING + DXPU_FW_LINKS;
    keys.pending = PENDING;
    keys.clock_ns = clock_ns;
    cfg->security = &dxpu_fw_keys_security;
    cfg->security_user = &security.keys;
    good = dxpu_fw_keys_init(&security.keys, &keys, &node, security.memory,
                             sizeof security.memory) == DXPU_OK;
    primitives.wipe(&pair, sizeof pair);
    primitives.wipe(security.secret, sizeof security.secret);
    return good;
}

static bool start_guard(void)
{
    static const dxpu_guard_allowed nothing_more = { false, false };
    dxpu_windows windows;
    dxpu_windows_init(&windows, isolation.windows, WINDOWS, NULL);
    slots[0].guard = &isolation.guard;
    slots[0].guard_room = (uint8_t *)isolation.room;
    return dxpu_guard_init(&isolation.guard, &nothing_more, isolation.asked, ASKED, &windows) ==
           DXPU_OK;
}

/* ==== 5  The image ============================================================================ */

static void tell(const char *what)
{
    unsigned i;
    const char *name;
    board_print(what);
    board_print("\n");
    for (i = 0; (name = dxpu_fw_counter_name(i)) != NULL; i++)
        report_number(NULL, name, dxpu_fw_counter_value(&node.counters, i));
    if (security.on) {
        const dxpu_secure_counters *count = dxpu_fw_keys_count(&security.keys);
        report_number(NULL, "responses_sent", count->responses_sent);
        report_number(NULL, "cookies_sent", count->cookies_sent);
        report_number(NULL, "strangers", count->stranger);
        report_number(NULL, "refused", count->refused);
        report_number(NULL, "rekeys_seen", count->rekeys_seen);
        report_number(NULL, "late", security.keys.late);
    }
    memory_kind.report(device, NULL);
    report_number(NULL, "stack_used", stack_used());
    board_print(".\n");
}

static bool start(void)
{
    static const device_settings settings = { .memory_bytes = MEMORY_BYTES,
                                              .mps_bytes = MPS_BYTES };
    static const uint8_t ip[4] = { 10, 9, 3, 2 };
    volatile uint32_t *lengths = hardware.lengths;
    dxpu_fw_config cfg;
    bool guarded;
    (void)dxpu_fw_ring_init(&hardware.rx, (uint8_t *)hardware.ethernet[0], lengths,
                            ETHERNET_BUFFERS, ETHERNET_BUFFER_BYTES);
    (void)dxpu_fw_ring_init(&hardware.tx, (uint8_t *)hardware.ethernet[1],
                            lengths += ETHERNET_BUFFERS, ETHERNET_BUFFERS, ETHERNET_BUFFER_BYTES);
    (void)dxpu_fw_ring_init(&hardware.to_device, (uint8_t *)hardware.tlps_to,
                            lengths += ETHERNET_BUFFERS, TLPS_TO_DEVICE, TLP_BUFFER_BYTES);
    (void)dxpu_fw_ring_init(&hardware.from_device, (uint8_t *)hardware.tlps_from,
                            lengths += TLPS_TO_DEVICE, TLPS_FROM_DEVICE, TLP_BUFFER_BYTES);
    dxpu_fw_config_default(&cfg);
    if (!board_start(&hardware.rx, &hardware.tx, cfg.own.mac))
        return false;
    memcpy(cfg.own.ip, ip, sizeof ip);
    memcpy(&random_state, cfg.own.mac, sizeof cfg.own.mac);
    cfg.node = 2;
    cfg.rx = &hardware.rx;
    cfg.tx = &hardware.tx;
    cfg.hooks = &hooks;
    slots[0].to_device = &hardware.to_device;
    slots[0].from_device = &hardware.from_device;
    dxpu_portable_init(&primitives, draw, NULL);
    dxpu_fw_clock_init(&the_clock, BOARD_HZ, BOARD_BITS, board_counter());
    if (!read_argument(&guarded) || (guarded && !start_guard()) ||
        (security.on && !start_keys(&cfg)))
        return false;
    device = memory_kind.create(&settings, &port);
    return device && dxpu_fw_init(&node, &cfg, slots, 1, channels, sizeof channels) == DXPU_OK;
}

int main(void)
{
    uint64_t over = 0;
    if (!start()) {
        board_print("no network port, a secret without a seed, or too little memory\n");
        return 1;
    }
    board_print(security.on ? "box: slot 1 at 10.9.3.2:4458, with keys\n"
                            : "box: slot 1 at 10.9.3.2:4458\n");
    for (;;) {
        uint64_t now = clock_ns(NULL), next;
        dxpu_fw_poll(&node, now);
        device_run();
        board_move();
        if (node.counters.closed + node.counters.failed != over) {
            over = node.counters.closed + node.counters.failed;
            tell("box: a channel is over");
        }
        board_interrupts_off();
        next = dxpu_fw_next_ns(&node);
        now = clock_ns(NULL);
        if (next > now)
            board_sleep(dxpu_fw_clock_ticks(&the_clock, next - now));
        board_interrupts_on();
    }
}
