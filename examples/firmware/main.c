/* main.c - a box of one slot without an operating system: plain memory, lent over Ethernet
   SPDX-License-Identifier: MIT

   The device is the memory model of dxpu-box, unaltered, at the other ends of the slot's rings.  In
   a product that is a PCIe root port's or an endpoint's hardware. */
#include "board.h"
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
    MEMORY_BYTES = 256 * 1024
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
static uint64_t random_state;

/* ==== The device, at the other ends of its rings ============================================== */

static void device_emits(void *user, dxpu_bytes tlp)
{
    uint8_t *room = dxpu_fw_ring_room(&hardware.from_device); /* device_run() saw to it */
    (void)user;
    memcpy(room, tlp.ptr, tlp.len);
    dxpu_fw_ring_put(&hardware.from_device, (uint32_t)tlp.len);
}

static const device_port port = { NULL, device_emits, NULL, NULL };

static void device_run(void)
{
    dxpu_bytes tlp;
    dxpu_tlp t;
    uint32_t bytes = 0;
    while (dxpu_fw_ring_used(&hardware.from_device) + COMPLETIONS_MAX <= TLPS_FROM_DEVICE &&
           (tlp.ptr = dxpu_fw_ring_peek(&hardware.to_device, &bytes)) != NULL) {
        tlp.len = bytes;
        if (dxpu_tlp_receive(tlp, &t) == DXPU_OK)
            memory_kind.tlp(device, &t, tlp);
        dxpu_fw_ring_take(&hardware.to_device);
    }
}

/* ==== Hooks =================================================================================== */

/* NOT unpredictable: these boards have no source of random numbers.  A product has. */
static uint32_t hook_random(void *user)
{
    (void)user;
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

/* ==== The image =============================================================================== */

static void tell(const char *what)
{
    unsigned i;
    const char *name;
    board_print(what);
    board_print("\n");
    for (i = 0; (name = dxpu_fw_counter_name(i)) != NULL; i++)
        report_number(NULL, name, dxpu_fw_counter_value(&node.counters, i));
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
    device = memory_kind.create(&settings, &port);
    return device && dxpu_fw_init(&node, &cfg, slots, 1, channels, sizeof channels) == DXPU_OK;
}

int main(void)
{
    dxpu_fw_clock clock;
    uint64_t over = 0;
    if (!start()) {
        board_print("no network port, or too little memory\n");
        return 1;
    }
    dxpu_fw_clock_init(&clock, BOARD_HZ, BOARD_BITS, board_counter());
    board_print("box: slot 1 at 10.9.3.2:4458\n");
    for (;;) {
        uint64_t now = dxpu_fw_clock_ns(&clock, board_counter()), next;
        dxpu_fw_poll(&node, now);
        device_run();
        board_move();
        if (node.counters.closed + node.counters.failed != over) {
            over = node.counters.closed + node.counters.failed;
            tell("box: a channel is over");
        }
        board_interrupts_off();
        next = dxpu_fw_next_ns(&node);
        now = dxpu_fw_clock_ns(&clock, board_counter());
        if (next > now)
            board_sleep(dxpu_fw_clock_ticks(&clock, next - now));
        board_interrupts_on();
    }
}
