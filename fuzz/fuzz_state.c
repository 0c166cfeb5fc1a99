/* Fuzz target: any bytes as a box's file of leases.  What is accepted is within its ranges, is in
   the table, and comes back when the file is written and read again.
   libFuzzer: -max_len=2048 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "quiet.h"

#include "dxpu_control.h"
#include "input_path.h"
#include "state_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 4 };
/* Of a state_key, without what pads it. */
enum { LEASE_KEY_BYTES = offsetof(state_key, key) + DXPU_NOISE_KEY_BYTES };

/* What is read beside the box's own slots. */
static state_file file;

typedef struct box_state {
    dxpu_box_entry entries[SLOTS];
    dxpu_box_table table;
    uint8_t phase[SLOTS];
    uint64_t medium[SLOTS];
    state_key key[SLOTS];
} box_state;

static int take(box_state *b, const uint8_t *data, size_t size, bool managed)
{
    memset(b, 0, sizeof *b);
    must(dxpu_box_init(&b->table, b->entries, SLOTS) == DXPU_OK);
    file.count = 0;
    file.file = input_path(data, size);
    return state_read(&file, &b->table, managed ? b->phase : NULL, b->medium, b->key);
}

/* The same again, from what the box would write. */
static void check_again(const box_state *b, bool managed)
{
    static box_state again;
    size_t bytes = 0, others = file.count;
    char *written = NULL;
    FILE *out = open_memstream(&written, &bytes);
    must(out != NULL);
    for (unsigned i = 0; i < SLOTS; i++) {
        state_lease l = state_lease_of(&b->entries[i], b->phase[i], b->medium[i], &b->key[i]);
        must(b->phase[i] <= DXPU_CONTROL_SLOT_UNWIPED);
        state_print(out, &l);
    }
    for (size_t i = 0; i < others; i++) {
        must(file.lines[i].kept.slot > SLOTS && file.lines[i].kept.slot <= 0xffff);
        state_print(out, &file.lines[i].kept);
    }
    must(fclose(out) == 0);
    must(take(&again, (const uint8_t *)written, bytes, managed) == 0 && file.count == others);
    must(memcmp(b->entries, again.entries, sizeof again.entries) == 0);
    must(memcmp(b->phase, again.phase, sizeof again.phase) == 0);
    for (unsigned i = 0; i < SLOTS; i++) { /* of a slot without a state nothing else is said */
        must(!b->phase[i] || b->medium[i] == again.medium[i]);
        must(!b->phase[i] || memcmp(&b->key[i], &again.key[i], LEASE_KEY_BYTES) == 0);
    }
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static box_state b;
    bool managed = size && data[0] & 1;
    if (size && take(&b, data + 1, size - 1, managed) == 0)
        check_again(&b, managed);
    free(file.lines);
    file.lines = NULL;
    file.count = 0;
    return 0;
}
