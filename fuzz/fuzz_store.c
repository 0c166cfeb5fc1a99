/* Fuzz target: any records in the manager's store: lines of a key, a blank and a value.  What is
   refused is reported; accepted records give tables that agree with each other, and the same when
   they are read again.
   libFuzzer: -max_len=4096 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* what store.c asks of the system */
#endif
#include "input.h"
#include "quiet.h"

#include <limits.h>

#include "core_claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fill(rig_store *s, const uint8_t *data, size_t size)
{
    while (size) {
        const uint8_t *end = memchr(data, '\n', size), *blank;
        size_t line = end ? (size_t)(end - data) : size, key;
        char name[STORE_KEY_MAX_BYTES + 1] = "";
        store_change change = { name, NULL, 0 };
        blank = memchr(data, ' ', line);
        key = blank ? (size_t)(blank - data) : line;
        if (blank && key && key < sizeof name && !memchr(data, 0, key)) {
            memcpy(name, data, key);
            change.value = data + key + 1;
            change.len = line - key - 1;
            rig_change(s, &change);
        }
        line += end != NULL;
        data += line;
        size -= line;
    }
}

static core *open_it(rig_store *s, core_result *why)
{
    core_settings set;
    core_settings_default(&set);
    set.events = 16;
    set.nodes = 64;
    set.slots = 1024;
    return core_open(&s->base, &set, 1000000, 1, why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_store s;
    core_result why = { CORE_OK, "" };
    core *c;
    uint64_t leases;
    rig_store_init(&s);
    fill(&s, data, size);
    c = open_it(&s, &why);
    must(c || (why.code != CORE_OK && why.text[0]));
    if (c) {
        check_core(c);
        core_tick(c);
        check_core(c);
        core_close(c);
        c = open_it(&s, &why);
        must(c != NULL);
        leases = leases_of(c);
        core_close(c);
        c = open_it(&s, &why);
        must(c && leases_of(c) == leases);
        core_close(c);
    }
    rig_store_free(&s);
    return 0;
}
