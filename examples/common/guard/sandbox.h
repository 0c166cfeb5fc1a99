/* sandbox.h - a program gives up what it does not need: the user root, capabilities, system calls
   SPDX-License-Identifier: MIT

   Two steps.  sandbox_start() comes behind the options, before anything is opened or any byte from
   outside is read: it changes to --user, gives up the capabilities but those that opening AF_XDP
   needs, and makes that irrevocable (S-120, S-121, S-124).  sandbox_enter() comes before the loop
   and before the first thread, when all is open: it gives up the last capabilities (S-200), and
   from then on the kernel lets the process make the system calls of a program that serves files and
   sockets, and ends it on those that only an intruder makes (S-122, S-125). */
#ifndef SANDBOX_H_INCLUDED
#define SANDBOX_H_INCLUDED

#include <stdbool.h>

typedef struct sandbox_settings {
    const char *user; /* NAME[:GROUP] or numbers; NULL: who started it */
    bool off;         /* no filter of system calls; capabilities stay, unless user is another one */
    bool network; /* AF_XDP: keep the capabilities that opening it needs until sandbox_enter() */
} sandbox_settings;

/* Rows for options.h; s is a sandbox_settings. */
#define SANDBOX_OPTIONS(s)                                                                         \
    { "user",                                                                                      \
      "NAME[:GROUP]",                                                                              \
      "user to run as when started as root; it must own all files",                                \
      OPTION_TEXT,                                                                                 \
      &(s).user,                                                                                   \
      0,                                                                                           \
      0 },                                                                                         \
    {                                                                                              \
        "no-sandbox", NULL,                                                                        \
            "keep all system calls, and capabilities without --user, for debugging", OPTION_FLAG,  \
            &(s).off, 0, 0                                                                         \
    }

/* 0, or -1 after a message with its remedy; *wrong_use: there is no such user, a matter of
   usage.  Before any thread is made. */
int sandbox_start(const sandbox_settings *s, bool *wrong_use);
/* As above.  Before any thread is made: threads keep the capabilities that they began with.  The
   filter is left out where a sanitizer needs to trace its own process. */
int sandbox_enter(void);
/* The same, of one of several processes of a program.  SANDBOX_KEEPER: it makes no sockets any more
   (S-180), and finds no file by its name (S-201).  SANDBOX_PARENT: it starts processes, which enter
   a sandbox of their own, and keeps what they need to open AF_XDP; all else that only an intruder
   asks for ends it.  SANDBOX_MONITOR: as the keeper, but it connects to a UNIX socket, again when
   that was lost (V-48).  SANDBOX_RENDERER: as the keeper, but it makes code of shaders; its memory
   is what RLIMIT_DATA counts, it makes no thread, and passes no descriptor.  Threads that are there
   already are behind the filter, too, but keep what Landlock allowed them (S-245).
   SANDBOX_GPU_RENDERER: the same, but it calls the driver of a GPU that is open, which makes
   threads. */
enum {
    SANDBOX_WORKER,
    SANDBOX_KEEPER,
    SANDBOX_PARENT,
    SANDBOX_MONITOR,
    SANDBOX_RENDERER,
    SANDBOX_GPU_RENDERER
};
int sandbox_enter_as(unsigned part);
/* What to say behind this error of a bind(): "", or a remedy. */
const char *sandbox_hint(int error);
/* "seccomp and Landlock", "seccomp", "Landlock" or "none": what this program was built with, and
   what this kernel has. */
const char *sandbox_name(void);

#endif /* SANDBOX_H_INCLUDED */
