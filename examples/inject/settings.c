/* SPDX-License-Identifier: MIT
   The environment.  Values that cannot be used end the process: a run that quietly injected
   nothing would be taken for a measurement. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject.h"

#define PREFIX "DXPU_INJECT_"

struct settings inject_settings = {
    /* what the paper measured: 1.2 us, 140 reads of 128 bytes, 11.2 GB/s */
    .native_rtt_ns = 1200, .tags = 140,     .mrs_bytes = 128,
    .native_gbps = 11.2,   .graph_rtts = 1, .events = true,
};
bool inject_active;

void inject_say(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n > 0) {
        fprintf(stderr, "dxpu-inject: %s\n", text);
    }
}

static void refuse(const char *name, const char *value, const char *remedy)
{
    inject_say("%s%s=%s: %s; the program was not started", PREFIX, name, value, remedy);
    fflush(stderr);
    _exit(2);
}

static double number(const char *name, double least, double most, double otherwise)
{
    char full[64], remedy[96], *end;
    snprintf(full, sizeof full, "%s%s", PREFIX, name);
    const char *text = getenv(full);
    if (!text) {
        return otherwise;
    }
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least || value > most) {
        snprintf(remedy, sizeof remedy, "give a number from %g to %g", least, most);
        refuse(name, text, remedy);
    }
    return value;
}

static void whole(const char *name, double value)
{
    if (value != floor(value)) {
        char text[32];
        snprintf(text, sizeof text, "%g", value);
        refuse(name, text, "give a whole number");
    }
}

static void refuse_unknown(void)
{
    static const char *const known[] = { "RTT_US",     "NATIVE_RTT_US", "TAGS",
                                         "MRS",        "NATIVE_GBPS",   "METHOD",
                                         "GRAPH_RTTS", "PROFILE",       "EVENTS" };
    for (char **at = environ; at && *at; at++) {
        if (strncmp(*at, PREFIX, sizeof PREFIX - 1) != 0) {
            continue;
        }
        const char *name = *at + sizeof PREFIX - 1, *equals = strchr(name, '=');
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            found |= strlen(known[i]) == length && strncmp(known[i], name, length) == 0;
        }
        if (!found) {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), name);
            refuse(word, equals ? equals + 1 : "", "no such setting, see dxpu-inject(1)");
        }
    }
}

static enum method method_named(const char *text)
{
    if (text && strcmp(text, "device") != 0 && strcmp(text, "delay") != 0) {
        refuse("METHOD", text, "give device or delay");
    }
    return text && strcmp(text, "delay") == 0 ? METHOD_DELAY : METHOD_DEVICE;
}

/* From the directory in which the program was started, also after chdir(). */
static const char *profile_named(const char *text)
{
    static char name[8192];
    char folder[4096] = "";
    if (text && (!*text || strlen(text) >= sizeof folder)) {
        refuse("PROFILE", text, "give the name of a file");
    }
    if (!text || *text == '/' || !getcwd(folder, sizeof folder)) {
        return text;
    }
    snprintf(name, sizeof name, "%s/%s", folder, text);
    return name;
}

void inject_settings_read(void)
{
    struct settings *s = &inject_settings;
    refuse_unknown();
    s->rtt_ns = 1e3 * number("RTT_US", 0, 1e6, 0);
    s->native_rtt_ns = 1e3 * number("NATIVE_RTT_US", 0.01, 1e6, s->native_rtt_ns / 1e3);
    s->tags = number("TAGS", 1, 65536, s->tags);
    s->mrs_bytes = number("MRS", 128, 4096, s->mrs_bytes);
    s->native_gbps = number("NATIVE_GBPS", 0.001, 1000, s->native_gbps);
    double graph_rtts = number("GRAPH_RTTS", 0, 1e6, s->graph_rtts);
    double events = number("EVENTS", 0, 1, s->events);
    whole("TAGS", s->tags);
    whole("MRS", s->mrs_bytes);
    whole("GRAPH_RTTS", graph_rtts);
    whole("EVENTS", events);
    s->graph_rtts = (unsigned)graph_rtts;
    s->events = events > 0;
    s->method = method_named(getenv(PREFIX "METHOD"));
    s->profile = profile_named(getenv(PREFIX "PROFILE"));
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    s->blocking = blocking && atoi(blocking) != 0;
    s->inject = s->rtt_ns > s->native_rtt_ns;
    if (s->rtt_ns > 0 && s->rtt_ns < s->native_rtt_ns) {
        refuse("RTT_US", getenv(PREFIX "RTT_US"), "less than the native RTT, NATIVE_RTT_US");
    }
    inject_active = s->inject || s->profile;
}
