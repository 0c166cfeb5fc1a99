/* function_push.c - push rules of a function: spec/push.md
   SPDX-License-Identifier: MIT */
#include "function.h"

#include <stdlib.h>

enum { BAR0 = 0x10, BARS_END = 0x28 }; /* configuration space */

static void send_rule(fn *f, const dxpu_push_rule *r)
{
    uint8_t payload[DXPU_PUSH_RULE_BYTES];
    dxpu_tlp t;
    dxpu_push_rule_message(r, payload, &t);
    pci_emit(&f->pci, &t);
}

/* Memory of it is there while a host offers rules and the device has made one: most have none. */
static bool has_store(fn *f)
{
    if (!f->push && f->offer.rules && !f->set.no_push) {
        f->push = malloc(sizeof *f->push);
        if (f->push) {
            dxpu_push_store_init(f->push);
            dxpu_push_store_offer(f->push, &f->offer);
        }
    }
    return f->push != NULL;
}

static uint16_t cut(const fn *f, uint32_t bytes)
{
    return bytes < f->offer.bytes ? (uint16_t)bytes : f->offer.bytes;
}

uint32_t fn_push_begin(fn *f, unsigned bar, uint64_t offset, dxpu_push_rule *r)
{
    if (!has_store(f))
        return 0;
    r->requester = f->pci.bdf;
    r->doorbell = pci_bar_base(&f->pci, bar) + offset;
    r->bytes = cut(f, r->bytes);
    if (dxpu_push_store_add(f->push, r) < 0)
        return 0;
    f->count.push_rules++;
    send_rule(f, r);
    return r->generation;
}

static void end(fn *f, unsigned number)
{
    dxpu_push_rule r;
    if (dxpu_push_store_remove(f->push, number, &r))
        send_rule(f, &r);
}

/* DXPU_PUSH_RULES: there is none. */
static unsigned find(const fn *f, uint32_t rule)
{
    unsigned i = f->push && rule ? 0 : DXPU_PUSH_RULES;
    while (i < DXPU_PUSH_RULES && f->push->kept[i].rule.generation != rule)
        i++;
    return i;
}

void fn_push_end(fn *f, uint32_t rule)
{
    unsigned i = find(f, rule);
    if (i < DXPU_PUSH_RULES)
        end(f, i);
}

bool fn_push_stands(const fn *f, uint32_t rule, uint64_t base, uint32_t bytes)
{
    unsigned i = find(f, rule);
    const dxpu_push_rule *r = i < DXPU_PUSH_RULES ? &f->push->kept[i].rule : NULL;
    return r && r->base == base && r->bytes == cut(f, bytes);
}

void fn_push_clear(fn *f)
{
    if (f->push)
        dxpu_push_store_clear(f->push);
}

void fn_push_forget(fn *f)
{
    memset(&f->offer, 0, sizeof f->offer);
    free(f->push);
    f->push = NULL;
}

void fn_push_message(fn *f, const dxpu_tlp *t)
{
    dxpu_push_offer offer;
    dxpu_push_data data;
    int offers = dxpu_push_offer_decode(t, &offer), pushes = dxpu_push_data_decode(t, &data);
    bool kept;
    if (offers == 1) {
        f->offer = offer;
        if (f->push) /* its rules are over at the host, too; generations go on (U-4) */
            dxpu_push_store_offer(f->push, &offer);
    }
    f->count.pushes_dropped += offers < 0 || pushes < 0; /* U-1 */
    if (pushes != 1)
        return;
    kept = f->push && dxpu_push_store_arrived(f->push, &data);
    f->count.pushes += kept;
    f->count.pushed_bytes += kept ? data.data.len : 0;
    f->count.pushes_dropped += !kept;
}

void fn_push_write(fn *f, const dxpu_tlp *t)
{
    if (f->push)
        dxpu_push_store_rang(f->push, t);
}

void fn_push_configured(fn *f, const dxpu_tlp *t)
{
    if (t->type != DXPU_TLP_CFGWR0 || t->register_bytes < BAR0 || t->register_bytes >= BARS_END)
        return;
    for (unsigned i = 0; f->push && i < DXPU_PUSH_RULES; i++)
        end(f, i); /* the doorbells are elsewhere now */
}
