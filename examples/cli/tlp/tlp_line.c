/* tlp_line.c - a decoded TLP as one line for people
   SPDX-License-Identifier: MIT */
#include "tlp_line.h"

#include "tlp_fields.h"

#include <inttypes.h>

enum { PAYLOAD_SHOWN_BYTES = 16 };

/* Memory requests are known by their address width: MWr64. */
static void print_type(FILE *to, const dxpu_tlp *t)
{
    unsigned has = tlp_fields(t);
    fputs(dxpu_tlp_type_name(t->type), to);
    if ((has & TLP_HAS_ADDRESS) && !(has & TLP_HAS_MESSAGE) && t->type != DXPU_TLP_IORD &&
        t->type != DXPU_TLP_IOWR)
        fputs(t->header_dw == 4 ? "64" : "32", to);
    if (has & TLP_HAS_LENGTH)
        fprintf(to, " %u dw", t->length_dw);
}

static void print_message(FILE *to, const dxpu_tlp *t)
{
    const char *name = dxpu_message_name(t->message_code);
    if (name)
        fprintf(to, " %s", name);
    else
        fprintf(to, " code 0x%02x", t->message_code);
    fprintf(to, " (%s)", dxpu_routing_name(dxpu_tlp_routing(t)));
}

static void print_completion(FILE *to, const dxpu_tlp *t)
{
    fprintf(to, " %s from %s to %s", dxpu_status_name(t->status), tlp_bdf(t->completer).text,
            tlp_bdf(t->requester).text);
}

static void print_place(FILE *to, const dxpu_tlp *t, unsigned has)
{
    if (has & TLP_HAS_ADDRESS)
        fprintf(to, " to 0x%" PRIx64, t->address);
    if (has & TLP_HAS_TARGET)
        fprintf(to, " to %s", tlp_bdf(t->target).text);
    if (has & TLP_HAS_REGISTER)
        fprintf(to, " register 0x%03x", t->register_bytes);
    if (has & TLP_HAS_TAG)
        fprintf(to, " tag 0x%02x", t->tag);
    if (has & TLP_HAS_BE)
        fprintf(to, " be %x/%x", t->first_be, t->last_be);
    if (has & TLP_HAS_COMPLETER)
        fprintf(to, " byte count %u lower address 0x%02x", t->byte_count, t->lower_addr);
    if (has & TLP_HAS_MESSAGE)
        fprintf(to, " header 0x%08" PRIx32 " 0x%08" PRIx32, t->message_dw[0], t->message_dw[1]);
}

static void print_marks(FILE *to, const dxpu_tlp *t, unsigned has)
{
    if (t->tc)
        fprintf(to, " TC%u", t->tc);
    fputs(t->attr & DXPU_ATTR_NS ? " NS" : "", to);
    fputs(t->attr & DXPU_ATTR_RO ? " RO" : "", to);
    fputs(t->attr & DXPU_ATTR_IDO ? " IDO" : "", to);
    if (t->at)
        fprintf(to, " AT=%u", t->at);
    fputs(t->th ? " TH" : "", to);
    if (has & TLP_HAS_STEERING)
        fprintf(to, " PH=%u ST=0x%02x", t->ph, t->steering);
    else if (t->ph)
        fputs(" NW", to);
    fputs(t->bcm ? " BCM" : "", to);
    fputs(t->ep ? " poisoned" : "", to);
    fputs(t->td ? " ECRC" : "", to);
    for (unsigned i = 0; i < t->prefix_count; i++) {
        const char *name = dxpu_tlp_prefix_name(t->prefix[i], NULL);
        fprintf(to, " prefix %s 0x%08" PRIx32, name ? name : "?", t->prefix[i]);
    }
}

static void print_payload(FILE *to, const dxpu_tlp *t)
{
    size_t shown = t->payload.len < PAYLOAD_SHOWN_BYTES ? t->payload.len : PAYLOAD_SHOWN_BYTES;
    if (!shown)
        return;
    fputs(" data", to);
    for (size_t i = 0; i < shown; i++)
        fprintf(to, "%s%02x", i % 4 ? "" : " ", t->payload.ptr[i]);
    if (shown < t->payload.len)
        fprintf(to, " ... (%zu bytes)", t->payload.len);
}

void tlp_line(FILE *to, const dxpu_tlp *t)
{
    unsigned has = tlp_fields(t);
    print_type(to, t);
    if (has & TLP_HAS_MESSAGE)
        print_message(to, t);
    if (has & TLP_HAS_COMPLETER)
        print_completion(to, t);
    else
        fprintf(to, " from %s", tlp_bdf(t->requester).text);
    print_place(to, t, has);
    print_marks(to, t, has);
    print_payload(to, t);
}
