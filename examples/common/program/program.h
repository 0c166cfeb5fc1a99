/* program.h - what both proxies do around their loop: options, signals, results
   SPDX-License-Identifier: MIT */
#ifndef PROGRAM_H_INCLUDED
#define PROGRAM_H_INCLUDED

#include "options.h"
#include "stats.h"
#include "status.h"

/* As options_parse(): PROGRAM_GO, or the exit status. */
int program_parse(const option_program *p, int argc, char **argv, option_call *call);
/* The same of a program without commands, with its version. */
int program_options(option_program *p, int argc, char **argv);
/* Say what is wrong with how it was called: PROGRAM_USAGE; PROGRAM_SYSTEM when that is a name that
   does not resolve, since it may at the next start. */
int program_usage(const char *what);
/* Prints one object with what `fill` reports on standard output.  0, or -1: not all of it could be
   written, and it said so. */
int program_print(bool json, void (*fill)(report *r));
/* The same as statistics on standard error, in the format of the log (log_document()). */
void program_log(void (*fill)(report *r));

struct event_base;
typedef struct program_loop {
    struct event_base *base;
    void (*on_stop)(void); /* SIGINT, SIGTERM */
    void (*on_usr1)(void);
    void (*on_hup)(void); /* NULL: the program handles it itself, or not at all */
    int (*run)(void);     /* from when it is called a signal does what it is documented to do */
} program_loop;
/* Behind the filter of system calls (sandbox.h): run()'s result, or PROGRAM_SYSTEM when signals
   cannot be caught or there is no filter. */
int program_run(const program_loop *p);

/* The same in a process whose parent has the signals: it asks for what they stand for by messages
   of a byte, PROGRAM_ASK_*; all others are on_ask's.  The socket's end is a stop. */
enum { PROGRAM_ASK_STOP = 's', PROGRAM_ASK_NUMBERS = 'u', PROGRAM_ASK_KEYS = 'h' };
int program_run_child(const program_loop *p, int parent, void (*on_ask)(unsigned char kind));

/* From now on the program ends within this time, with the message and PROGRAM_SYSTEM, if what it
   waits for does not let it end before: a disk may hang for ever. */
void program_end_within(unsigned ms, const char *message);

#endif /* PROGRAM_H_INCLUDED */
