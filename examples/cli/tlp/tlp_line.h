/* tlp_line.h - a decoded TLP as one line for people
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_TLP_LINE_H
#define DXPU_CLI_TLP_LINE_H

#include "dxpu.h"

#include <stdio.h>

/* Prints it without a line end. */
void tlp_line(FILE *to, const dxpu_tlp *t);

#endif
