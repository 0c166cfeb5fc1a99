/* board.h - what an image asks of its board; boards/NAME/ has the answers
   SPDX-License-Identifier: MIT

   board_numbers.h, beside them, has BOARD_HZ and BOARD_BITS of the counter. */
#ifndef BOARD_H_INCLUDED
#define BOARD_H_INCLUDED

#include "board_numbers.h"
#include "dxpu_firmware.h"

/* Console, timer and network port; the port's MAC address.  False: there is no network port.
   rx is filled and tx emptied from now on, by board_move() and by an interrupt handler. */
bool board_start(dxpu_fw_ring *rx, dxpu_fw_ring *tx, uint8_t mac[6]);
/* Move frames between the rings and the network port. */
void board_move(void);
/* The counter that dxpu_fw_clock wants. */
uint32_t board_counter(void);
/* Sleep until an interrupt, at most the given ticks.  Between off and on none is missed: one
   since off() ends the sleep. */
void board_interrupts_off(void);
void board_sleep(uint32_t ticks);
void board_interrupts_on(void);
/* What the board was given at its start: words with blanks between; "" for nothing.  A product has
   its secret key in its own store, and a hardware generator instead of a seed. */
const char *board_argument(void);
/* Instructions executed so far, under QEMU's -icount shift=0: exact, or to some tens. */
uint64_t board_instructions(void);
void board_print(const char *text);
/* End QEMU with this status. */
void board_exit(unsigned status);

/* runtime.c.  paint() before main(), with little on the stack; used(): the most since then. */
void stack_paint(void);
uint32_t stack_used(void);
int main(void);
void print_number(uint64_t value);

#endif /* BOARD_H_INCLUDED */
