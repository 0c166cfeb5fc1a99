/* SPDX-License-Identifier: MIT
   A kernel that does nothing for a number of cycles, as PTX.  In `measure`, too. */
#ifndef DXPU_INJECT_SPIN_H
#define DXPU_INJECT_SPIN_H

#define INJECT_SPIN "dxpu_inject_spin"
static const char inject_spin_ptx[] = ".version 6.0\n"
                                      ".target sm_50\n"
                                      ".address_size 64\n"
                                      ".visible .entry " INJECT_SPIN "(.param .u64 cycles)\n"
                                      "{\n"
                                      "    .reg .pred %more;\n"
                                      "    .reg .u64 %n, %from, %now;\n"
                                      "    ld.param.u64 %n, [cycles];\n"
                                      "    mov.u64 %from, %clock64;\n"
                                      "spin:\n"
                                      "    mov.u64 %now, %clock64;\n"
                                      "    sub.u64 %now, %now, %from;\n"
                                      "    setp.lt.u64 %more, %now, %n;\n"
                                      "    @%more bra spin;\n"
                                      "    ret;\n"
                                      "}\n";

#endif
