/* command.h - the commands of dxpu, and what they share
   SPDX-License-Identifier: MIT

   Each has its options in a table of options.h, which fills them before it runs. */
#ifndef DXPU_CLI_COMMAND_H
#define DXPU_CLI_COMMAND_H

#include "options.h"

enum {
    EXIT_ALL = 0,        /* everything decoded, or identical, or done */
    EXIT_REFUSED = 1,    /* something was refused, or differs */
    EXIT_USAGE = 2,      /* wrong usage, or a file that cannot be read or written */
    EXIT_CONNECTION = 3, /* no answer at the control port, or no manager; no library */
    EXIT_UNCONFIRMED = 4 /* it would erase data, and was not confirmed */
};

extern const option_verbs pool_verbs; /* all that go to the manager */
extern const option_verbs control_verbs, key_verbs, enroll_verbs, audit_verbs, tlp_verbs,
    pcap_verbs, model_verbs, xml_verbs;

/* Says so, and ends the program: nothing sensible is left to do. */
_Noreturn void out_of_memory(void);

#endif
