/* console.h - messages for people never stop a proxy
   SPDX-License-Identifier: MIT

   One thread serves every channel, so a write that blocks holds them all up, and a reader that went
   away must not end leases.  Messages are log.h's, which drops what this does not take. */
#ifndef CONSOLE_H_INCLUDED
#define CONSOLE_H_INCLUDED

/* From now on nothing waits for the reader of standard error when that is a pipe or a socket: what
   it does not take is dropped.  SIGPIPE is ignored. */
void console_start(void);
/* The loop is over: wait for the reader again, the last words count. */
void console_end(void);

/* A question, or what belongs to one, to the user at the terminal: printed as it is, regardless of
   -q and --log. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void console_say(const char *format, ...);

#endif /* CONSOLE_H_INCLUDED */
