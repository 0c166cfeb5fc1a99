/* board_numbers.h - of QEMU's RISC-V machine `virt`
   SPDX-License-Identifier: MIT */
#ifndef BOARD_NUMBERS_H_INCLUDED
#define BOARD_NUMBERS_H_INCLUDED

#define BOARD_HZ   10000000u
#define BOARD_BITS 32

#endif /* BOARD_NUMBERS_H_INCLUDED */
