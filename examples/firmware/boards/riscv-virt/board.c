/* board.c - QEMU's RISC-V machine `virt`: virtio-net, the CLINT's timer, a 16550, no interrupts
   SPDX-License-Identifier: MIT

   Interrupts are never taken: a pending one ends the sleep, then the network port is asked.

   CONTENTS   1 Start   2 Console   3 Time   4 Network port */
#include "board.h"

/* ==== 1  Start ================================================================================ */

extern uint64_t bss_begin[], bss_end[];

__asm__(".section .start, \"ax\"\n"
        ".globl start\n"
        "start:\n"
        "    csrr t0, mhartid\n"
        "    bnez t0, 1f\n"
        "    la sp, stack_top\n"
        "    la t0, fault\n"
        "    csrw mtvec, t0\n"
        "    tail begin\n"
        "1:  wfi\n"
        "    j 1b\n"
        ".text\n");

static volatile uint32_t *reg(uintptr_t base, uint32_t offset)
{
    return (volatile uint32_t *)(base + offset);
}

void begin(void);
void begin(void)
{
    uint64_t *to;
    for (to = bss_begin; to < bss_end;)
        *to++ = 0;
    stack_paint();
    board_exit((unsigned)main());
}

__attribute__((used, aligned(4))) static void fault(void);
static void fault(void)
{
    board_print("fault\n");
    board_exit(3);
}

void board_interrupts_off(void)
{
}

void board_interrupts_on(void)
{
}

void board_exit(unsigned status)
{
    for (;;)
        *reg(0x100000, 0) = status ? status << 16 | 0x3333u : 0x5555u;
}

const char *board_argument(void)
{
    static char text[1024];
    uintptr_t place[2] = { (uintptr_t)text, sizeof text };
    register uintptr_t call __asm__("a0") = 0x15; /* semihosting: the command line */
    register uintptr_t *block __asm__("a1") = place;
    __asm__ volatile(".option push\n"
                     ".option norvc\n"
                     ".balign 16\n"
                     "slli x0, x0, 0x1f\n"
                     "ebreak\n"
                     "srai x0, x0, 7\n"
                     ".option pop\n"
                     : "+r"(call)
                     : "r"(block)
                     : "memory");
    return call ? "" : text;
}

/* ==== 2  Console ============================================================================== */

void board_print(const char *text)
{
    volatile uint8_t *uart = (volatile uint8_t *)(uintptr_t)0x10000000;
    for (; *text; text++) {
        while (!(uart[5] & 0x20u)) { /* the transmitter is busy */
        }
        uart[0] = (uint8_t)*text;
    }
}

/* ==== 3  Time ================================================================================= */

enum { CLINT = 0x2000000, CLINT_COMPARE = 0x4000, CLINT_TIME = 0xbff8 };
enum { PLIC = 0xc000000, PLIC_ENABLE = 0x2000, PLIC_THRESHOLD = 0x200000, PLIC_CLAIM = 0x200004 };
enum { MIE_TIMER = 0x80, MIE_EXTERNAL = 0x800 };

static uint64_t now_ticks(void)
{
    return *(volatile uint64_t *)(uintptr_t)(CLINT + CLINT_TIME);
}

uint32_t board_counter(void)
{
    return (uint32_t)now_ticks();
}

uint64_t board_instructions(void)
{
    uint64_t count;
    __asm__ volatile("csrr %0, minstret" : "=r"(count));
    return count;
}

void board_sleep(uint32_t ticks)
{
    uint32_t source;
    *(volatile uint64_t *)(uintptr_t)(CLINT + CLINT_COMPARE) = now_ticks() + ticks;
    __asm__ volatile("wfi" ::: "memory");
    while ((source = *reg(PLIC, PLIC_CLAIM)) != 0) {
        board_move();
        *reg(PLIC, PLIC_CLAIM) = source;
    }
}

/* ==== 4  Network port ==================================== Virtual I/O Device 1.2, 4.2, 5.1 === */

enum {
    VIRTIO = 0x10001000,
    VIRTIO_STEP = 0x1000,
    VIRTIO_PLACES = 8,
    MAGIC = 0x000,
    VERSION = 0x004,
    DEVICE = 0x008,
    DEVICE_NETWORK = 1,
    FEATURES = 0x010,
    FEATURES_SELECT = 0x014,
    ACCEPTED = 0x020,
    ACCEPTED_SELECT = 0x024,
    QUEUE_SELECT = 0x030,
    QUEUE_MOST = 0x034,
    QUEUE_SIZE = 0x038,
    QUEUE_READY = 0x044,
    QUEUE_NOTIFY = 0x050,
    INTERRUPT_STATUS = 0x060,
    INTERRUPT_DONE = 0x064,
    STATUS = 0x070,
    QUEUE_DESCRIPTORS = 0x080,
    QUEUE_AVAILABLE = 0x090,
    QUEUE_USED = 0x0a0,
    CONFIG = 0x100,
    ACKNOWLEDGE = 1,
    DRIVER = 2,
    DRIVER_OK = 4,
    FEATURES_OK = 8,
    FEATURE_MAC = 0x20,
    FEATURE_VERSION_1 = 1, /* of the second 32 */
    HEADER_BYTES = 12,
    BUFFER_BYTES = HEADER_BYTES + 1516,
    BUFFERS = 16,
    DEVICE_WRITES = 2
};

/* A split virtqueue and its buffers; descriptor i is buffer i. */
typedef struct queue {
    struct {
        uint64_t address;
        uint32_t bytes;
        uint16_t flags, next;
    } descriptor[BUFFERS];
    struct {
        uint16_t flags, index, ring[BUFFERS];
    } available;
    struct {
        uint16_t flags, index;
        struct {
            uint32_t id, bytes;
        } ring[BUFFERS];
    } used;
    uint16_t seen; /* of used */
    uint16_t free[BUFFERS], free_count;
    uint8_t buffer[BUFFERS][BUFFER_BYTES];
} queue;

static queue receive __attribute__((aligned(16))), transmit __attribute__((aligned(16)));
static dxpu_fw_ring *receive_ring, *transmit_ring;
static uintptr_t device;

static void offer(queue *q, uint16_t id, uint32_t bytes, uint16_t flags)
{
    q->descriptor[id].address = (uintptr_t)q->buffer[id];
    q->descriptor[id].bytes = bytes;
    q->descriptor[id].flags = flags;
    q->available.ring[q->available.index % BUFFERS] = id;
    DXPU_FW_BARRIER();
    q->available.index++;
}

/* The next descriptor that the device is done with; BUFFERS when there is none. */
static uint16_t next_used(queue *q, uint32_t *bytes)
{
    uint16_t index = *(volatile uint16_t *)&q->used.index;
    uint32_t id;
    if (q->seen == index)
        return BUFFERS;
    DXPU_FW_BARRIER();
    id = q->used.ring[q->seen % BUFFERS].id;
    *bytes = q->used.ring[q->seen % BUFFERS].bytes;
    q->seen++;
    return id < BUFFERS ? (uint16_t)id : (uint16_t)BUFFERS;
}

static void queue_address(uint32_t offset, const void *at)
{
    *reg(device, offset) = (uint32_t)(uintptr_t)at;
    *reg(device, offset + 4) = (uint32_t)((uint64_t)(uintptr_t)at >> 32);
}

static bool queue_start(uint32_t number, queue *q)
{
    *reg(device, QUEUE_SELECT) = number;
    if (*reg(device, QUEUE_MOST) < BUFFERS)
        return false;
    *reg(device, QUEUE_SIZE) = BUFFERS;
    queue_address(QUEUE_DESCRIPTORS, q->descriptor);
    queue_address(QUEUE_AVAILABLE, &q->available);
    queue_address(QUEUE_USED, &q->used);
    *reg(device, QUEUE_READY) = 1;
    return true;
}

static bool negotiate(void)
{
    *reg(device, STATUS) = 0;
    *reg(device, STATUS) = ACKNOWLEDGE | DRIVER;
    *reg(device, ACCEPTED_SELECT) = 0;
    *reg(device, ACCEPTED) = FEATURE_MAC;
    *reg(device, ACCEPTED_SELECT) = 1;
    *reg(device, ACCEPTED) = FEATURE_VERSION_1;
    *reg(device, STATUS) = ACKNOWLEDGE | DRIVER | FEATURES_OK;
    return (*reg(device, STATUS) & FEATURES_OK) && queue_start(0, &receive) &&
           queue_start(1, &transmit);
}

/* A pending interrupt of the port or the timer ends a sleep; none is ever taken. */
static void wake_by(uint32_t source)
{
    *reg(PLIC, 4 * source) = 1;
    *reg(PLIC, PLIC_ENABLE) = (uint32_t)1 << source;
    *reg(PLIC, PLIC_THRESHOLD) = 0;
    __asm__ volatile("csrs mie, %0" ::"r"((uintptr_t)(MIE_TIMER | MIE_EXTERNAL)));
}

bool board_start(dxpu_fw_ring *rx, dxpu_fw_ring *tx, uint8_t mac[6])
{
    uint16_t i;
    unsigned place;
    receive_ring = rx;
    transmit_ring = tx;
    for (place = 0; place < VIRTIO_PLACES; place++) {
        device = VIRTIO + (uintptr_t)VIRTIO_STEP * place;
        if (*reg(device, MAGIC) == 0x74726976u && *reg(device, DEVICE) == DEVICE_NETWORK)
            break;
    }
    if (place == VIRTIO_PLACES)
        return false;
    if (*reg(device, VERSION) != 2) {
        board_print("virtio-mmio of before 1.0: QEMU wants -global virtio-mmio.force-legacy=off\n");
        return false;
    }
    if (!negotiate())
        return false;
    for (i = 0; i < 6; i++)
        mac[i] = *((volatile uint8_t *)(device + CONFIG) + i);
    for (i = 0; i < BUFFERS; i++) {
        offer(&receive, i, BUFFER_BYTES, DEVICE_WRITES);
        transmit.free[transmit.free_count++] = i;
    }
    *reg(device, STATUS) = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
    *reg(device, QUEUE_NOTIFY) = 0;
    wake_by(1 + place);
    return true;
}

static void move_received(void)
{
    uint32_t bytes = 0;
    uint16_t id;
    uint8_t *room;
    bool any = false;
    while ((room = dxpu_fw_ring_room(receive_ring)) != NULL &&
           (id = next_used(&receive, &bytes)) != BUFFERS) {
        bytes = bytes < HEADER_BYTES ? 0 : bytes - HEADER_BYTES;
        if (bytes <= receive_ring->buffer_bytes)
            memcpy(room, receive.buffer[id] + HEADER_BYTES, bytes);
        dxpu_fw_ring_put(receive_ring, bytes);
        offer(&receive, id, BUFFER_BYTES, DEVICE_WRITES);
        any = true;
    }
    if (any)
        *reg(device, QUEUE_NOTIFY) = 0;
}

static void move_sent(void)
{
    const uint8_t *frame;
    uint32_t bytes = 0;
    uint16_t id;
    bool any = false;
    while (transmit.free_count < BUFFERS && (id = next_used(&transmit, &bytes)) != BUFFERS)
        transmit.free[transmit.free_count++] = id;
    while (transmit.free_count && (frame = dxpu_fw_ring_peek(transmit_ring, &bytes)) != NULL) {
        id = transmit.free[--transmit.free_count];
        memset(transmit.buffer[id], 0, HEADER_BYTES);
        memcpy(transmit.buffer[id] + HEADER_BYTES, frame, bytes);
        dxpu_fw_ring_take(transmit_ring);
        offer(&transmit, id, HEADER_BYTES + bytes, 0);
        any = true;
    }
    if (any)
        *reg(device, QUEUE_NOTIFY) = 1;
}

void board_move(void)
{
    *reg(device, INTERRUPT_DONE) = *reg(device, INTERRUPT_STATUS);
    move_received();
    move_sent();
}
