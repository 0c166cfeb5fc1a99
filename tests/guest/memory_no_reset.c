/* memory_no_reset.c - the memory device, but for its reset, which does nothing
   SPDX-License-Identifier: MIT

   A box with it is the control of net_guest.py: there the next user must see what the last
   one left. */
/* Not linked: reaches memory_tlp() and others. */
#define memory_kind memory_kind_that_resets
#include "memory.c"
#undef memory_kind

static void no_reset(void *device)
{
    (void)device;
}

const device_kind memory_kind = { .name = "memory",
                                  .create = memory_create,
                                  .destroy = memory_destroy,
                                  .tlp = memory_tlp,
                                  .event = memory_event,
                                  .reset = no_reset,
                                  .report = memory_report };
