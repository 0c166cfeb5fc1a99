/* board_numbers.h - of the mps2-an385: a Cortex-M3 at 25 MHz
   SPDX-License-Identifier: MIT */
#ifndef BOARD_NUMBERS_H_INCLUDED
#define BOARD_NUMBERS_H_INCLUDED

#define BOARD_HZ   25000000u
#define BOARD_BITS 32

#endif /* BOARD_NUMBERS_H_INCLUDED */
