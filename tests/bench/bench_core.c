/* bench_core.c - how long the manager's core takes for a lease, with 512 and 100,000 slots
   SPDX-License-Identifier: MIT

   bench_core DIR [etcd://HOST/PREFIX]: the database is made there; and with etcd, for 512 slots, if
   that is given.  A line for each: slots, store, then p50 and p99
   of one core_create() in microseconds, leases a second, seconds to load, MiB of memory; and p50
   and p99 of a register in which another device is in a slot. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core_internal.h"

enum { PER_BOX = 50, PER_HOST = 64, LEASES = 2000, CHANGES = 200 };

static uint64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A store that keeps nothing. */
static store_error none_load(store *s, const char *prefix, store_each each, void *user,
                             store_fault *f)
{
    (void)s, (void)prefix, (void)each, (void)user, (void)f;
    return STORE_OK;
}

static store_error none_commit(store *s, const store_change *changes, unsigned count,
                               store_fault *f)
{
    (void)s, (void)changes, (void)count, (void)f;
    return STORE_OK;
}

/* Slots in boxes and hosts; straight into the store, since proxies would take long. */
static void fill(store *s, unsigned boxes, unsigned hosts)
{
    static char value[2 * PER_BOX + 2][400], key[2 * PER_BOX + 2][32];
    store_change change[PER_BOX + 2];
    store_fault f;
    for (unsigned n = 1; n <= boxes + hosts; n++) {
        bool box = n <= boxes;
        unsigned count = 1;
        snprintf(key[0], sizeof key[0], "node/%u", n);
        snprintf(value[0], sizeof value[0],
                 "{\"role\":\"%s\",\"identity\":\"%032x\",\"name\":\"n\",\"program\":\"p\","
                 "\"slots\":%d,\"draining\":false,\"paths\":[]}",
                 box ? "box" : "host", n, box ? PER_BOX : PER_HOST);
        for (; box && count <= PER_BOX; count++) {
            snprintf(key[count], sizeof key[0], "slot/%u.%u", n, count);
            snprintf(value[count], sizeof value[0],
                     "{\"state\":\"free\",\"reason\":\"none\",\"epoch\":0,\"dirty\":false,"
                     "\"model\":\"gpu\",\"serial\":\"S%u\",\"vendor\":4318,\"device\":1,"
                     "\"class\":196608,\"group\":%u}",
                     count, (count - 1) / 8 + 1);
        }
        for (unsigned i = 0; i < count; i++)
            change[i] = (store_change){ key[i], value[i], strlen(value[i]) };
        if (store_commit(s, change, count, &f) != STORE_OK)
            exit(1);
    }
}

/* The box says that it has these slots, from the first one on; model: of that one. */
static void report_box(core *c, unsigned n, unsigned total, unsigned count, const char *model)
{
    static uint8_t room[PER_BOX * DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_BOX,
                                .total = (uint16_t)total,
                                .first = 1,
                                .count = (uint16_t)count,
                                .entry_bytes = DXPU_CONTROL_DEVICE_BYTES,
                                .instance = 1,
                                .node = n,
                                .identity = { [14] = (uint8_t)(n >> 8), [15] = (uint8_t)n },
                                .entries = { room, count * (size_t)DXPU_CONTROL_DEVICE_BYTES } };
    core_result why;
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_device d = { .number = (uint16_t)(i + 1),
                                  .state = DXPU_CONTROL_SLOT_WIPED,
                                  .health = DXPU_CONTROL_HEALTH_GOOD,
                                  .vendor = 4318,
                                  .device = 1,
                                  .class_code = 196608,
                                  .group = i / 8 + 1 };
        snprintf(d.model, sizeof d.model, "%s", i ? "gpu" : model);
        snprintf(d.serial, sizeof d.serial, "S%u", i + 1);
        dxpu_control_device_encode(&d, room + i * DXPU_CONTROL_DEVICE_BYTES);
    }
    if (core_register(c, &r, "p", NULL, &why) != n) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* A box that changes a device repeatedly, as often as it is allowed to. */
static void measure_changes(core *c, unsigned slots, const char *name)
{
    static uint32_t each[CHANGES];
    for (unsigned i = 0; i < CHANGES; i++) {
        core_clock(c, 1, 1000 * (i + 1));
        uint64_t start = clock_us();
        report_box(c, 1, PER_BOX, 1, i % 2 ? "other" : "another");
        each[i] = (uint32_t)(clock_us() - start);
    }
    qsort(each, CHANGES, sizeof each[0], by_value);
    printf("%u %s change p50 %u us p99 %u us\n", slots, name, each[CHANGES / 2],
           each[CHANGES * 99 / 100]);
}

static void measure(store *s, const char *name, unsigned slots, unsigned leases,
                    const store_kind *then)
{
    static uint32_t each[LEASES];
    unsigned boxes = slots / PER_BOX, hosts = slots / PER_HOST + 1;
    core_settings set;
    core_result why;
    core_settings_default(&set);
    set.early = (uint64_t)1 << 32; /* its clock stands */
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    uint64_t start = clock_us();
    core *c = core_open(s, &set, 1, 1, &why);
    if (!c) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    double load = (double)(clock_us() - start) / 1e6;
    size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    if (then)
        s->kind = then;
    for (unsigned n = 1; n <= boxes; n++)
        report_box(c, n, PER_BOX, PER_BOX, "gpu");
    measure_changes(c, slots, name);
    uint64_t sum = clock_us();
    for (unsigned i = 0; i < leases; i++) {
        core_request r = { .tenant = "t", .model = "gpu", .count = 1, .replace = true };
        uint64_t lease;
        bool existed;
        snprintf(r.key, sizeof r.key, "key%u", i);
        r.host = boxes + 1 + i % hosts;
        start = clock_us();
        why = core_create(c, &r, &lease, &existed);
        each[i] = (uint32_t)(clock_us() - start);
        if (why.code != CORE_OK) {
            fprintf(stderr, "%s\n", why.text);
            exit(1);
        }
    }
    double rate = leases / ((double)(clock_us() - sum) / 1e6);
    qsort(each, leases, sizeof each[0], by_value);
    printf("%u %s p50 %u us p99 %u us %.0f/s load %.2f s %.0f MiB\n", slots, name, each[leases / 2],
           each[leases * 99 / 100], rate, load, (double)bytes / (1 << 20));
    core_close(c);
}

/* In etcd: a commit is a request to a member, and what most members' disks take. */
static void measure_etcd(const char *where)
{
    store_etcd_settings set;
    store_fault f;
    store_etcd_default(&set);
    set.where = where;
    store *s = store_open_etcd(&set, &f);
    if (!s) {
        fprintf(stderr, "%s\n", f.text);
        exit(1);
    }
    fill(s, 512 / PER_BOX, 512 / PER_HOST + 1);
    measure(s, "etcd", 512, 400, NULL);
    store_close(s);
}

int main(int argc, char **argv)
{
    static const store_kind none = { .load = none_load, .commit = none_commit };
    static const unsigned slots[] = { 512, 100000 };
    for (unsigned i = 0; i < 2; i++) {
        char path[4096];
        store_fault f;
        unsigned leases = slots[i] < 1000 ? 400 : LEASES;
        snprintf(path, sizeof path, "%s/bench_core_%u.db", argc > 1 ? argv[1] : ".", slots[i]);
        remove(path);
        store *s = store_open_sqlite(path, &f);
        if (!s) {
            fprintf(stderr, "%s\n", f.text);
            return 1;
        }
        fill(s, slots[i] / PER_BOX, slots[i] / PER_HOST + 1);
        const store_kind *sqlite = s->kind;
        measure(s, "none", slots[i], leases, &none);
        s->kind = sqlite;
        measure(s, "sqlite", slots[i], leases, NULL);
        store_close(s);
        remove(path);
    }
    if (argc > 2)
        measure_etcd(argv[2]);
    return 0;
}
