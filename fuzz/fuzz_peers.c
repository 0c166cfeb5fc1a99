/* Fuzz target: any bytes as a file of peers. Every accepted peer has a right and a
   sound name, addresses and slots; each key and each name is there once, and is found; and
   mistakes are reported with the number of the line.
   libFuzzer: -max_len=4096 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <netdb.h>

static int numbers_only(const char *host, const char *port, const struct addrinfo *hints,
                        struct addrinfo **found);
/* Not linked: replaces getaddrinfo(). */
#define getaddrinfo numbers_only
#include "dxpu_libevent.c"
#undef getaddrinfo
#include "keys_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Names that the fuzzer made up are not resolved. */
static int numbers_only(const char *host, const char *port, const struct addrinfo *hints,
                        struct addrinfo **found)
{
    struct addrinfo numeric = *hints;
    numeric.ai_flags |= AI_NUMERICHOST;
    return getaddrinfo(host, port, &numeric, found);
}

static void check_peer(const keys_peer *p)
{
    must(p->may && p->may <= KEYS_ALL);
    must(strlen(p->name) <= KEYS_NAME_MAX);
    must(p->at_count <= DXPU_PATHS_MAX && p->slots_count <= KEYS_RANGES_MAX);
    for (unsigned i = 0; i < p->slots_count; i++) {
        must(p->slots[i].first && p->slots[i].first <= p->slots[i].last);
        must(keys_has_slot(p, p->slots[i].first) && keys_has_slot(p, p->slots[i].last));
    }
    for (unsigned i = 0; i < p->at_count; i++)
        must(keys_is_at(p, &p->at[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    keys_table t;
    unsigned line = 0;
    const char *why;
    FILE *f = fmemopen((void *)(uintptr_t)data, size ? size : 1, "r");
    must(f != NULL);
    memset(&t, 0, sizeof t);
    why = size ? keys_table_read(&t, f, &line) : NULL;
    must(!why == !line);
    fclose(f);
    if (!why && !keys_table_sort(&t)) {
        for (unsigned i = 0; i < t.count; i++) {
            check_peer(&t.rows[i]);
            must(keys_table_find(&t, t.rows[i].key) == &t.rows[i]);
            must(!t.rows[i].name[0] ||
                 keys_table_find_name(&t, t.rows[i].name, strlen(t.rows[i].name)) == &t.rows[i]);
        }
    }
    keys_table_clear(&t);
    return 0;
}
