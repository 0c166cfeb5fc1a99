/* pool_rates.c - see pool_rates.h
   SPDX-License-Identifier: MIT */
#include "pool_rates.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 1 << 20, STILL_MS = 12000 };
static const char counter[] = "dxpu_slot_tlps_total{";

static uint64_t key_of(uint64_t node, uint64_t slot, bool from_device)
{
    return node << 17 | slot << 1 | from_device;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const pool_sample *)a)->key, y = ((const pool_sample *)b)->key;
    return (x > y) - (x < y);
}

static pool_sample *find(const pool_rates *r, size_t count, uint64_t key)
{
    pool_sample wanted;
    wanted.key = key;
    return count ? bsearch(&wanted, r->sample, count, sizeof wanted, by_key) : NULL;
}

static void add(pool_rates *r, uint64_t key, uint64_t value, uint64_t now_ms)
{
    if (r->count == SAMPLES_MAX)
        return;
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 256;
        pool_sample *sample = realloc(r->sample, room * sizeof *sample);
        if (!sample)
            out_of_memory();
        r->sample = sample;
        r->room = room;
    }
    r->sample[r->count].key = key;
    r->sample[r->count].value = value;
    r->sample[r->count].changed_ms = now_ms;
    r->sample[r->count++].rate = -1;
}

static void update(pool_sample *s, uint64_t value, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - s->changed_ms;
    if (value == s->value && passed_ms < STILL_MS)
        return;
    if (value < s->value) /* its proxy began anew */
        s->rate = -1;
    else if (passed_ms)
        s->rate = (double)(value - s->value) * 1000.0 / (double)passed_ms;
    s->value = value;
    s->changed_ms = now_ms;
}

void pool_rates_read(pool_rates *r, const char *metrics, uint64_t now_ms)
{
    size_t known = r->count;
    for (const char *line = metrics; line; line = strchr(line, '\n')) {
        unsigned node, slot;
        unsigned long long value;
        char direction[16];
        pool_sample *s;
        line += *line == '\n';
        if (strncmp(line, counter, sizeof counter - 1) != 0 ||
            sscanf(line + sizeof counter - 1,
                   "node=\"%9u\",slot=\"%5u\",direction=\"%15[a-z_]\"} %19llu", &node, &slot,
                   direction, &value) != 4)
            continue;
        uint64_t key = key_of(node, slot & 0xffff, strcmp(direction, "from_device") == 0);
        s = find(r, known, key);
        if (s)
            update(s, value, now_ms);
        else
            add(r, key, value, now_ms);
    }
    if (r->count > known)
        qsort(r->sample, r->count, sizeof *r->sample, by_key);
}

double pool_rate(const pool_rates *r, uint64_t node, uint64_t slot, bool from_device)
{
    const pool_sample *s = find(r, r->count, key_of(node, slot, from_device));
    return s ? s->rate : -1;
}

void pool_rates_free(pool_rates *r)
{
    free(r->sample);
    memset(r, 0, sizeof *r);
}
