/* Fuzz target: push rules at both ends.  Steps of the input: messages of any bytes, offers, rules,
   writes, and what a device takes and touches.  What a host would read lies in the rule's ring and
   is no more than the rule allows; what a box has kept is bounded, is of its rules, and is given
   out once.
   libFuzzer: -max_len=512 */
#include "dxpu_push.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dxpu_push_table table;
static dxpu_push_store store;
static uint64_t kept, given; /* bytes */

/* Numbers near others, so that they meet. */
static uint64_t some_address(input *in)
{
    uint64_t v = 0x1000u + (next(in) & 0x3fu) * 4u;
    return next(in) & 1 ? v : next(in) & 1 ? (uint64_t)0 - v : (uint64_t)next32(in) << 16 | v;
}

static void check_table(void)
{
    unsigned count = 0;
    must(table.offer.rules <= DXPU_PUSH_RULES && table.offer.bytes <= DXPU_PUSH_BYTES);
    for (unsigned i = 0; i < DXPU_PUSH_RULES; i++) {
        const dxpu_push_entry *e = &table.entry[i];
        count += e->rule.bytes != 0;
        must(!e->rule.bytes || (i < table.offer.rules && e->rule.bytes <= table.offer.bytes));
        must(!e->rule.bytes || e->rule.mode != DXPU_PUSH_SINCE || e->next < e->rule.entries);
    }
    must(count == table.count);
}

static void check_store(void)
{
    unsigned held = 0, rules = 0;
    uint64_t left = 0;
    for (unsigned i = 0; i < DXPU_PUSH_CHUNKS; i++) {
        const dxpu_push_chunk *c = &store.chunk[i];
        held += c->left != 0;
        left += c->left;
        must((size_t)c->at + c->left <= sizeof c->data);
        must(!c->left || store.kept[c->rule].rule.bytes);
    }
    must(held == store.held && left + given + store.count.stale == kept);
    must(store.count.taken == given);
    for (unsigned i = 0; i < DXPU_PUSH_RULES; i++)
        rules += store.kept[i].rule.bytes != 0;
    must(rules == store.rules);
}

/* Bytes of any kind as each message: they are read within the payload or not at all. */
static void message(input *in)
{
    static uint8_t payload[DXPU_PUSH_PAYLOAD_MAX];
    size_t bytes = (size_t)(next(in) & 0x7f) * 4;
    dxpu_push_offer offer;
    dxpu_push_rule rule;
    dxpu_push_data d;
    dxpu_tlp t;
    const uint8_t *piece;
    memset(&t, 0, sizeof t);
    memset(payload, 0, sizeof payload);
    t.type = DXPU_TLP_MSGD;
    t.message_code = 0x7f;
    t.message_routing = next(in) & 1 ? DXPU_MSG_LOCAL : DXPU_MSG_TO_ROOT;
    t.ep = next(in) == 0xff;
    t.message_dw[0] = 0xffff;
    t.message_dw[1] = 0x64787075;
    piece = next_piece(in, &bytes);
    if (bytes)
        memcpy(payload, piece, bytes);
    t.payload.ptr = payload;
    t.payload.len = bytes & ~(size_t)3;
    if (dxpu_push_offer_decode(&t, &offer) == 1) {
        dxpu_push_table_init(&table, &offer);
        dxpu_push_store_offer(&store, &offer);
    }
    if (dxpu_push_rule_decode(&t, &rule) == 1)
        (void)dxpu_push_table_set(&table, &rule);
    if (dxpu_push_data_decode(&t, &d) == 1) {
        must(d.data.ptr + d.data.len <= payload + t.payload.len);
        if (dxpu_push_store_arrived(&store, &d))
            kept += d.data.len;
    }
}

static void make_rule(input *in)
{
    dxpu_push_rule r;
    int rc;
    memset(&r, 0, sizeof r);
    r.mode = next(in) & 3;
    r.width = (uint8_t)(1u << (next(in) & 3));
    r.doorbell = some_address(in);
    r.base = some_address(in);
    r.entries = next(in) & 0x1f;
    r.start = next(in) & 7;
    r.stride = next(in);
    r.bytes = (uint16_t)(next(in) * 5);
    rc = dxpu_push_store_add(&store, &r);
    must(rc == DXPU_E_ARG || (rc >= 0 && rc < store.offer.rules));
    if (rc >= 0)
        must(dxpu_push_table_set(&table, &r) == DXPU_OK);
}

static void write_to(input *in)
{
    uint8_t bytes[8] = { 0 }, payload[DXPU_PUSH_PAYLOAD_MAX];
    dxpu_push_part part[DXPU_PUSH_PARTS];
    const dxpu_push_rule *r = NULL;
    dxpu_push_data d;
    dxpu_tlp t, push;
    uint32_t sum = 0;
    bool late = next(in) == 0xff; /* the host did not see it */
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.address = some_address(in) & ~(uint64_t)3;
    t.length_dw = next(in) & 1 ? 2 : 1;
    t.first_be = next(in) & 0xf;
    t.last_be = t.length_dw > 1 ? next(in) & 0xf : 0;
    bytes[0] = next(in) & 0x1f;
    bytes[4] = next(in) & 0x1f;
    t.payload.ptr = bytes;
    t.payload.len = t.length_dw * 4u;
    for (unsigned i = late ? 0 : dxpu_push_table_match(&table, &t, part, &r), n = 0; n < i; n++) {
        must(part[n].bytes && part[n].bytes <= DXPU_PUSH_BYTES);
        must(part[n].address >= r->base);
        must(r->mode == DXPU_PUSH_AT ||
             part[n].address - r->base + part[n].bytes <= (uint64_t)r->entries * r->stride);
        sum += part[n].bytes;
        must(sum <= r->bytes);
        memset(payload, 0xa5, sizeof payload);
        dxpu_push_data_message(r, part[n].address, part[n].bytes, payload, &push);
        must(dxpu_push_data_decode(&push, &d) == 1 && d.data.len == part[n].bytes);
        if (dxpu_push_store_arrived(&store, &d))
            kept += d.data.len;
    }
    dxpu_push_store_rang(&store, &t);
}

static void take(input *in)
{
    uint8_t to[256];
    uint64_t address = some_address(in);
    uint32_t bytes = next(in);
    uint32_t n = dxpu_push_store_take(&store, address, bytes, to);
    must(n <= bytes);
    given += n;
    if (next(in) & 1)
        dxpu_push_store_touch(&store, address, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    const dxpu_push_offer all = { 8, DXPU_PUSH_BYTES };
    dxpu_push_rule gone;
    kept = given = 0;
    dxpu_push_table_init(&table, &all);
    dxpu_push_store_init(&store);
    dxpu_push_store_offer(&store, &all);
    while (in.left) {
        switch (next(&in) & 7) {
        case 0:
            message(&in);
            break;
        case 1:
            make_rule(&in);
            break;
        case 2:
            if (dxpu_push_store_remove(&store, next(&in), &gone))
                (void)dxpu_push_table_set(&table, &gone);
            break;
        case 3:
            take(&in);
            break;
        case 4:
            dxpu_push_store_clear(&store);
            break;
        default:
            write_to(&in);
        }
        check_table();
        check_store();
    }
    return 0;
}
