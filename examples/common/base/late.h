/* late.h - a library that is loaded when one of its functions is called for the first time
   SPDX-License-Identifier: MIT

   Few runs of a program talk HTTP (libcurl), read or write a capture (libpcap), and these two bring
   36 and 8 more libraries with them.  To load them takes longer than most commands of `dxpu` take
   for the rest, and what a proxy does not use shall not lie in its memory.  late_curl.c and
   late_pcap.c define the functions of each that the programs call, under their own names: who calls
   them includes <curl/curl.h> or <pcap/pcap.h> as ever, and is not linked with the library.  A
   further function has to be added there: without it the program does not link.

   A sandbox (sandbox.h) lets nothing be loaded: the first call comes before sandbox_enter(). */
#ifndef LATE_H_INCLUDED
#define LATE_H_INCLUDED

#include <pthread.h>

/* dlopen() of the first of these names (up to NULL) that is there.  Else the program ends with
   PROGRAM_SYSTEM, after a message that names the Debian package. */
void *late_open(const char *const *names, const char *package);
/* The address of a function, else the program ends as above. */
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
