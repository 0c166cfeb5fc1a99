/* quiet.h - messages of the programs go nowhere: log.h's functions, for a target that is linked
   with those programs' parts
   SPDX-License-Identifier: MIT */
#ifndef QUIET_H_INCLUDED
#define QUIET_H_INCLUDED

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

static inline FILE *nowhere(void)
{
    static FILE *file;
    if (!file)
        file = fopen("/dev/null", "w");
    if (!file)
        abort();
    return file;
}

/* Linked instead of log.c. */
void log_name(const char *program)
{
    (void)program;
}

void log_set(log_level most, log_format format)
{
    (void)most;
    (void)format;
}

bool log_shows(log_level level)
{
    (void)level;
    return false;
}

static unsigned quiet_errors;

/* As log.c does: a message that reads what is not there is seen. */
#define QUIET(function, counter)                                                                   \
    void function(const char *format, ...)                                                         \
    {                                                                                              \
        char text[LOG_LINE_BYTES];                                                                 \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        (void)vsnprintf(text, sizeof text, format, args);                                          \
        va_end(args);                                                                              \
        counter;                                                                                   \
    }
QUIET(log_error, quiet_errors++)
QUIET(log_warning, (void)0)
QUIET(log_note, (void)0)
QUIET(log_info, (void)0)
QUIET(log_debug, (void)0)

/* The input as a file; a byte more than there is where there is none. */
#define input_file(data, size) fmemopen((void *)(uintptr_t)(data), (size) ? (size) : 1, "r")

#endif /* QUIET_H_INCLUDED */
