/* board.c - mps2-an385: a Cortex-M3, a LAN9118 network port, two timers and a serial port
   SPDX-License-Identifier: MIT

   The network port's interrupt handler fills the ring of received frames; it is the only other
   context there is.

   CONTENTS   1 Start   2 Console   3 Time   4 Network port */
#include "board.h"

/* ==== 1  Start ================================================================================ */

extern uint32_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[], stack_top[];

enum { ARGUMENT_BYTES = 1024 };
enum { IRQ_TIMER0 = 8, IRQ_ETHERNET = 13, EXCEPTIONS = 16, VECTORS = EXCEPTIONS + 32 };

static volatile uint32_t *reg(uint32_t base, uint32_t offset)
{
    return (volatile uint32_t *)(uintptr_t)(base + offset);
}

void start(void);
void start(void)
{
    const uint32_t *from = data_load;
    uint32_t *to;
    for (to = data_begin; to < data_end;)
        *to++ = *from++;
    for (to = bss_begin; to < bss_end;)
        *to++ = 0;
    stack_paint();
    board_exit((unsigned)main());
}

static void fault(void)
{
    board_print("fault\n");
    board_exit(3);
}

static void on_timer(void);
static void on_ethernet(void);

typedef void (*vector)(void);
__attribute__((section(".vectors"), used)) static const vector vectors[VECTORS] = {
    [0] = (vector)(uintptr_t)stack_top,
    [1] = start,
    [2] = fault,
    [3] = fault,
    [EXCEPTIONS + IRQ_TIMER0] = on_timer,
    [EXCEPTIONS + IRQ_ETHERNET] = on_ethernet,
};

void board_interrupts_off(void)
{
    __asm__ volatile("cpsid i" ::: "memory");
}

void board_interrupts_on(void)
{
    __asm__ volatile("cpsie i" ::: "memory");
}

void board_exit(unsigned status)
{
    volatile uint32_t reason[2] = { 0x20026, 0 }; /* the application ends */
    register uint32_t call __asm__("r0") = 0x20;  /* semihosting: exit with a status */
    register const volatile uint32_t *block __asm__("r1") = reason;
    reason[1] = status;
    for (;;)
        __asm__ volatile("bkpt 0xab" ::"r"(call), "r"(block) : "memory");
}

const char *board_argument(void)
{
    static char text[ARGUMENT_BYTES];
    uintptr_t place[2] = { (uintptr_t)text, sizeof text };
    register uintptr_t call __asm__("r0") = 0x15; /* semihosting: the command line */
    register uintptr_t *block __asm__("r1") = place;
    __asm__ volatile("bkpt 0xab" : "+r"(call) : "r"(block) : "memory");
    return call ? "" : text;
}

/* ==== 2  Console ============================================================================== */

enum { UART = 0x40004000, UART_DATA = 0, UART_STATE = 4, UART_CONTROL = 8, UART_DIVIDER = 16 };

void board_print(const char *text)
{
    for (; *text; text++) {
        while (*reg(UART, UART_STATE) & 1u) {
        }
        *reg(UART, UART_DATA) = (uint8_t)*text;
    }
}

/* ==== 3  Time =================================================================================
   Timer 1 runs freely, timer 0 ends a sleep; both count down. */

enum {
    TIMER0 = 0x40000000,
    TIMER1 = 0x40001000,
    TIMER_CONTROL = 0,
    TIMER_VALUE = 4,
    TIMER_RELOAD = 8,
    TIMER_INTERRUPT = 12,
    TIMER_ON = 1,
    TIMER_INTERRUPTS = 8
};

uint32_t board_counter(void)
{
    return ~*reg(TIMER1, TIMER_VALUE);
}

uint64_t board_instructions(void)
{
    return (uint64_t)board_counter() * 40; /* 1 ns each, 40 ns a tick */
}

static void on_timer(void)
{
    *reg(TIMER0, TIMER_CONTROL) = 0;
    *reg(TIMER0, TIMER_INTERRUPT) = 1;
}

void board_sleep(uint32_t ticks)
{
    *reg(TIMER0, TIMER_CONTROL) = 0;
    *reg(TIMER0, TIMER_RELOAD) = ticks;
    *reg(TIMER0, TIMER_VALUE) = ticks;
    *reg(TIMER0, TIMER_CONTROL) = TIMER_ON | TIMER_INTERRUPTS;
    __asm__ volatile("dsb\n wfi" ::: "memory");
}

/* ==== 4  Network port ========================================================================= */

enum {
    LAN = 0x40200000,
    RX_DATA = 0x00,
    TX_DATA = 0x20,
    RX_STATUS = 0x40,
    TX_STATUS = 0x48,
    IRQ_CONFIG = 0x54,
    INTERRUPT_STATUS = 0x58,
    INTERRUPT_ENABLE = 0x5c,
    FIFO_INTERRUPT = 0x68,
    TX_CONFIG = 0x70,
    HARDWARE_CONFIG = 0x74,
    RX_FIFO = 0x7c,
    TX_FIFO = 0x80,
    MAC_COMMAND = 0xa4,
    MAC_DATA = 0xa8,
    MAC_BUSY_BITS = 31,
    MAC_READ = 0x40000000,
    MAC_CONTROL = 1,
    MAC_HIGH = 2,
    MAC_LOW = 3,
    MAC_ON = 0x0c, /* receiver and transmitter */
    RX_STATUS_LEVEL = 0x08,
    RX_ERROR = 0x8000,
    IRQ_ON_PUSH_PULL_HIGH = 0x111,
    TX_ON = 2,
    CHECK_SEQUENCE_BYTES = 4
};

#define NVIC_ENABLE ((volatile uint32_t *)0xe000e100u)

static dxpu_fw_ring *receive_ring, *transmit_ring;

static void mac_wait(void)
{
    while (*reg(LAN, MAC_COMMAND) >> MAC_BUSY_BITS) {
    }
}

static uint32_t mac_read(uint32_t which)
{
    *reg(LAN, MAC_COMMAND) = 0x80000000u | (uint32_t)MAC_READ | which;
    mac_wait();
    return *reg(LAN, MAC_DATA);
}

static void mac_write(uint32_t which, uint32_t value)
{
    *reg(LAN, MAC_DATA) = value;
    *reg(LAN, MAC_COMMAND) = 0x80000000u | which;
    mac_wait();
}

bool board_start(dxpu_fw_ring *rx, dxpu_fw_ring *tx, uint8_t mac[6])
{
    uint32_t low, high;
    unsigned i;
    *reg(UART, UART_DIVIDER) = 16;
    *reg(UART, UART_CONTROL) = 1;
    *reg(TIMER1, TIMER_RELOAD) = UINT32_MAX;
    *reg(TIMER1, TIMER_VALUE) = UINT32_MAX;
    *reg(TIMER1, TIMER_CONTROL) = TIMER_ON;
    receive_ring = rx;
    transmit_ring = tx;
    *reg(LAN, HARDWARE_CONFIG) = 1; /* reset */
    for (i = 0; i < 1000000 && (*reg(LAN, HARDWARE_CONFIG) & 1u); i++) {
    }
    *reg(LAN, HARDWARE_CONFIG) = 0x00150000; /* store and forward; 5 KB of it for transmission */
    low = mac_read(MAC_LOW);
    high = mac_read(MAC_HIGH);
    for (i = 0; i < 6; i++)
        mac[i] = (uint8_t)(i < 4 ? low >> 8 * i : high >> 8 * (i - 4));
    *reg(LAN, TX_CONFIG) = TX_ON;
    mac_write(MAC_CONTROL, MAC_ON);
    *reg(LAN, FIFO_INTERRUPT) = 0; /* at the first frame */
    *reg(LAN, INTERRUPT_STATUS) = UINT32_MAX;
    *reg(LAN, IRQ_CONFIG) = IRQ_ON_PUSH_PULL_HIGH;
    *reg(LAN, INTERRUPT_ENABLE) = RX_STATUS_LEVEL;
    *NVIC_ENABLE = (uint32_t)1 << IRQ_TIMER0 | (uint32_t)1 << IRQ_ETHERNET;
    return low || high;
}

/* One frame out of the port's buffer: into the ring, or dropped when that is full or it is bad. */
static void receive_one(void)
{
    uint32_t status = *reg(LAN, RX_STATUS), bytes = status >> 16 & 0x3fffu, i, word;
    uint8_t *room = dxpu_fw_ring_room(receive_ring);
    if (status & RX_ERROR || bytes > receive_ring->buffer_bytes)
        room = NULL;
    for (i = 0; i < bytes; i += 4) {
        word = *reg(LAN, RX_DATA);
        if (room)
            memcpy(room + i, &word, sizeof word);
    }
    if (room)
        dxpu_fw_ring_put(receive_ring,
                         bytes < CHECK_SEQUENCE_BYTES ? 0 : bytes - CHECK_SEQUENCE_BYTES);
}

static void on_ethernet(void)
{
    *reg(LAN, INTERRUPT_STATUS) = RX_STATUS_LEVEL;
    while (*reg(LAN, RX_FIFO) >> 16 & 0xffu)
        receive_one();
}

void board_move(void)
{
    const uint8_t *frame;
    uint32_t bytes = 0, i, word;
    while ((frame = dxpu_fw_ring_peek(transmit_ring, &bytes)) != NULL &&
           (*reg(LAN, TX_FIFO) & 0xffffu) >= bytes + 12) {
        *reg(LAN, TX_DATA) = 0x3000u | bytes; /* first and last segment */
        *reg(LAN, TX_DATA) = bytes;
        for (i = 0; i < bytes; i += 4) {
            memcpy(&word, frame + i, sizeof word);
            *reg(LAN, TX_DATA) = word;
        }
        dxpu_fw_ring_take(transmit_ring);
    }
    while (*reg(LAN, TX_FIFO) >> 16 & 0xffu)
        (void)*reg(LAN, TX_STATUS);
}
