/* Fuzz target: lines of the input as the environment of a program under libdxpu-inject.  What is
   taken is within its ranges; what is not ends the process with a reason.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <setjmp.h>
#include <unistd.h>

static _Noreturn void leave(int status);
#define _exit leave
#include "quiet.h"

#include "settings.c" /* not linked: replaces _exit() */
#undef _exit
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES_MAX = 16, ROOM = 1024 };

static jmp_buf left;

static _Noreturn void leave(int status)
{
    must(status == 2);
    longjmp(left, 1);
}

static void check(const struct settings *s)
{
    must(s->rtt_ns >= 0 && s->rtt_ns <= 1e9 && s->native_rtt_ns >= 10 && s->native_rtt_ns <= 1e9);
    must(s->tags >= 1 && s->tags <= 65536 && s->mrs_bytes >= 128 && s->mrs_bytes <= 4096);
    must(s->native_gbps > 0 && s->native_gbps <= 1000 && s->graph_rtts <= 1000000);
    must(s->inject == (s->rtt_ns > s->native_rtt_ns));
    must(!s->profile || *s->profile == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct settings usual = { .native_rtt_ns = 1200,
                                           .tags = 140,
                                           .mrs_bytes = 128,
                                           .native_gbps = 11.2,
                                           .graph_rtts = 1,
                                           .events = true };
    static char text[ROOM], *entries[ENTRIES_MAX + 1];
    char **before = environ, *at = text;
    unsigned count = 0;
    size = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    while (count < ENTRIES_MAX && at)
        entries[count++] = strsep(&at, "\n");
    entries[count] = NULL;
    inject_settings = usual;
    environ = entries;
    if (!setjmp(left)) {
        inject_settings_read();
        check(&inject_settings);
    }
    environ = before;
    return 0;
}
