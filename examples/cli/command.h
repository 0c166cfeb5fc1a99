/* command.h - the commands of dxpu, and what they share
   SPDX-License-Identifier: MIT

   A command gets its own name as argv[0] and returns the exit status. */
#ifndef DXPU_CLI_COMMAND_H
#define DXPU_CLI_COMMAND_H

enum {
    EXIT_ALL = 0,        /* everything decoded, or identical, or done */
    EXIT_REFUSED = 1,    /* something was refused, or differs */
    EXIT_USAGE = 2,      /* wrong usage, or a file that cannot be read or written */
    EXIT_CONNECTION = 3, /* no answer at the control port, or no manager */
    EXIT_UNCONFIRMED = 4 /* it would erase data, and was not confirmed */
};

int tlp_command(int argc, char **argv);
int pcap_command(int argc, char **argv);
int attach_command(int argc, char **argv);
int detach_command(int argc, char **argv);
int status_command(int argc, char **argv);
int screenshot_command(int argc, char **argv);
int model_command(int argc, char **argv);
int keygen_command(int argc, char **argv);
int pubkey_command(int argc, char **argv);
int enroll_command(int argc, char **argv);
int audit_command(int argc, char **argv);
int pool_command(int argc, char **argv); /* all that go to the manager */

/* A complaint on standard error, with the command to ask for help; returns EXIT_USAGE. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int usage_error(const char *command, const char *format, ...);
/* Says so, and ends the program: nothing sensible is left to do. */
_Noreturn void out_of_memory(void);

#endif
