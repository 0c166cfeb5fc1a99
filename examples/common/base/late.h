/* late.h - a library that is loaded when one of its functions is called for the first time
   SPDX-License-Identifier: MIT

   Few runs of a program need HTTP (libcurl) or captures (libpcap), and these two bring 36 and 8
   more libraries with them.  Loading all takes longer than the rest of most commands of `dxpu`, and
   a proxy should have no code in its memory that it does not use.  late_curl.c and late_pcap.c
   define the functions that the programs call, under the library's names.  A caller includes
   <curl/curl.h> or <pcap/pcap.h> as usual; the program is not linked with the library.  A function
   that is used for the first time must be added there: without it the program does not link.

   The first call must come before sandbox_enter() (sandbox.h), after which nothing is loaded. */
#ifndef LATE_H_INCLUDED
#define LATE_H_INCLUDED

#include <pthread.h>

/* Loads the first of these names (up to NULL) that exists.  Without any it prints a message with
   the Debian package and ends the program with PROGRAM_SYSTEM. */
void *late_open(const char *const *names, const char *package);
/* Returns the address of a function, or ends the program as above. */
void *late_find(void *library, const char *name);

/* For a list FUNCTIONS(F, P, V) of F(type, name, parameters, arguments), or P for those of type
   void, or V for those that are defined by hand: pointers to them, in `real`; load(), which finds
   them all; and a definition of each.  It is called late_NAME in C, since the headers of some
   versions have other `const`s or a macro of that name, and NAME for the linker. */
#define LATE_POINTER(type, name, parameters, arguments) type(*name) parameters;
#define LATE_FIND(type, name, parameters, arguments)                                               \
    *(void **)(void *)&real.name = late_find(library, #name);
#define LATE_NAMED(type, name, parameters) type late_##name parameters __asm__(#name);
#define LATE_FUNCTION(type, name, parameters, arguments)                                           \
    LATE_NAMED(type, name, parameters)                                                             \
    type late_##name parameters                                                                    \
    {                                                                                              \
        (void)pthread_once(&loaded, load);                                                         \
        return real.name arguments;                                                                \
    }
#define LATE_PROCEDURE(type, name, parameters, arguments)                                          \
    LATE_NAMED(type, name, parameters)                                                             \
    type late_##name parameters                                                                    \
    {                                                                                              \
        (void)pthread_once(&loaded, load);                                                         \
        real.name arguments;                                                                       \
    }
#define LATE_LIBRARY(FUNCTIONS, names, package)                                                    \
    static pthread_once_t loaded = PTHREAD_ONCE_INIT;                                              \
    static struct {                                                                                \
        FUNCTIONS(LATE_POINTER, LATE_POINTER, LATE_POINTER)                                        \
    } real;                                                                                        \
    static void load(void)                                                                         \
    {                                                                                              \
        void *library = late_open(names, package);                                                 \
        FUNCTIONS(LATE_FIND, LATE_FIND, LATE_FIND)                                                 \
    }                                                                                              \
    FUNCTIONS(LATE_FUNCTION, LATE_PROCEDURE, LATE_NAMED_ONLY)
#define LATE_NAMED_ONLY(type, name, parameters, arguments) LATE_NAMED(type, name, parameters)

#endif /* LATE_H_INCLUDED */
