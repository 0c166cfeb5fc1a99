/* pcap_command.c - dxpu pcap: what a capture of TLPs or of dxpu frames holds
   SPDX-License-Identifier: MIT */
#include "command.h"
#include "log.h"
#include "pcap_same.h"
#include "print_json.h"
#include "tlp_fields.h"
#include "tlp_json.h"
#include "tlp_line.h"

#include "dxpu_pcap.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was seen so far. */
typedef struct pcap_run {
    bool json;
    uint64_t first_ns;
    unsigned long tlps[DXPU_TLP_TYPE_COUNT];
    unsigned long truncated, refused, rule_breaking;
    unsigned long frames[DXPU_KIND_END];
    unsigned long frames_refused, sealed, events, continued, other;
    uint8_t plain[8192]; /* bits, by a hash of the channel: a CRC of its frames was right */
} pcap_run;

/* What one packet turned out to be: text goes to standard output at once, JSON is collected. */
typedef struct packet_run {
    pcap_run *run;
    json_t *json;  /* NULL when printing text */
    bool in_frame; /* a TLP that is not whole goes on in the next frame, it was not cut */
} packet_run;

static void set_unsigned(json_t *o, const char *key, uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX) {
        json_object_set_new(o, key, json_integer((json_int_t)value));
        return;
    }
    snprintf(text, sizeof text, "%" PRIu64, value);
    json_object_set_new(o, key, json_string(text));
}

/* ---- TLPs ---- */

/* The rule that a complete TLP breaks, DXPU_OK for none; then *t has its digest as well. */
static int broken_rule(dxpu_bytes tlp, dxpu_tlp *t)
{
    int rc = dxpu_tlp_decode(tlp, t);
    return rc == DXPU_OK ? dxpu_tlp_ecrc_check(tlp) : rc;
}

static void show_refused(packet_run *p, json_t *into, int error, size_t bytes)
{
    p->run->refused++;
    if (!into) {
        printf("refused (%s) %s, %zu bytes\n", tlp_error(error).text, dxpu_error_text(error),
               bytes);
        return;
    }
    json_object_set_new(into, "error", json_string(tlp_error(error).text));
    json_object_set_new(into, "reason", json_string(dxpu_error_text(error)));
}

/* Show one TLP as far as it is there.  into: the object that gets it, NULL for text. */
static void show_tlp(packet_run *p, json_t *into, dxpu_bytes tlp)
{
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    bool cut;
    int rc = dxpu_tlp_decode_header(tlp, &t), rule = DXPU_OK;
    if (rc == DXPU_OK)
        rc = dxpu_tlp_measure(tlp, &shape);
    if (rc != DXPU_OK) {
        show_refused(p, into, rc, tlp.len);
        return;
    }
    cut = tlp.len < shape.total_bytes;
    if (!cut)
        rule = broken_rule(tlp, &t);
    p->run->tlps[t.type]++;
    p->run->truncated += cut && !p->in_frame;
    p->run->rule_breaking += rule != DXPU_OK;
    if (into) {
        json_object_set_new(into, "truncated", json_boolean(cut));
        if (rule != DXPU_OK)
            json_object_set_new(into, "breaks", json_string(tlp_error(rule).text));
        json_object_set_new(into, "tlp", tlp_json_from(&t, !cut && rule == DXPU_OK));
        return;
    }
    tlp_line(stdout, &t);
    if (cut)
        printf(" [%zu of %u bytes]", tlp.len, shape.total_bytes);
    if (rule != DXPU_OK)
        printf(" [breaks a rule: %s]", tlp_error(rule).text);
    putchar('\n');
}

/* ---- frames ---- */

/* A TLP whose records are being put together; it may go on in the next frame. */
typedef struct tlp_parts {
    bool open;
    size_t len, whole;
    uint32_t crc;
    uint8_t bytes[4 * DXPU_PREFIXES_MAX + DXPU_TLP_MAX_BYTES];
} tlp_parts;

static json_t *new_record(packet_run *p, const char *type)
{
    json_t *o, *records;
    if (!p->json) {
        fputs("        ", stdout);
        return NULL;
    }
    records = json_object_get(p->json, "records");
    o = json_pack("{s:s}", "record", type);
    json_array_append_new(records, o);
    return o;
}

static void end_tlp(packet_run *p, tlp_parts *parts)
{
    json_t *o;
    bool complete = parts->len == parts->whole;
    if (!parts->open)
        return;
    parts->open = false;
    o = new_record(p, "tlp");
    if (!complete)
        p->run->continued++;
    if (o)
        json_object_set_new(o, "continues", json_boolean(!complete));
    if (complete && dxpu_crc32(0, parts->bytes, parts->len) != parts->crc) {
        show_refused(p, o, DXPU_E_TLP_CRC, parts->len);
        return;
    }
    show_tlp(p, o, (dxpu_bytes){ parts->bytes, parts->len });
}

static void begin_tlp(tlp_parts *parts, const dxpu_record *r)
{
    size_t head = r->bytes.len < sizeof parts->bytes ? r->bytes.len : sizeof parts->bytes;
    parts->open = true;
    parts->crc = r->tlp_crc;
    parts->whole = r->bytes.len + r->data_bytes;
    parts->len = head;
    memcpy(parts->bytes, r->bytes.ptr, head);
}

/* Payload continues the TLP before it, or one of an earlier frame. */
static void add_payload(packet_run *p, tlp_parts *parts, dxpu_bytes data)
{
    json_t *o;
    if (parts->open && data.len <= sizeof parts->bytes - parts->len) {
        memcpy(parts->bytes + parts->len, data.ptr, data.len);
        parts->len += data.len;
        return;
    }
    o = new_record(p, "payload");
    if (o)
        set_unsigned(o, "bytes", data.len);
    else
        printf("%zu bytes of a TLP begun in an earlier frame\n", data.len);
}

static void show_event(packet_run *p, const dxpu_event *e)
{
    json_t *o = new_record(p, "event");
    p->run->events++;
    if (!o) {
        printf("event %s flags 0x%02x value %" PRIu32 "\n", dxpu_event_name(e->type), e->flags,
               e->value);
        return;
    }
    json_object_set_new(o, "event", json_string(dxpu_event_name(e->type)));
    set_unsigned(o, "flags", e->flags);
    set_unsigned(o, "speed", e->speed);
    set_unsigned(o, "width", e->width);
    set_unsigned(o, "value", e->value);
    set_unsigned(o, "base", e->base);
    set_unsigned(o, "length", e->length);
}

static int show_records(packet_run *p, dxpu_bytes body)
{
    static tlp_parts parts;
    dxpu_record r;
    int rc;
    parts.open = false;
    while ((rc = dxpu_record_next(&body, &r)) == DXPU_OK) {
        if (r.type == DXPU_RECORD_PAYLOAD) {
            add_payload(p, &parts, r.bytes);
            continue;
        }
        end_tlp(p, &parts);
        if (r.type == DXPU_RECORD_TLP)
            begin_tlp(&parts, &r);
        else
            show_event(p, &r.event);
    }
    end_tlp(p, &parts);
    return rc == DXPU_E_NONE ? DXPU_OK : rc;
}

static bool has_sequence(unsigned kind)
{
    return kind == DXPU_KIND_DATA || kind == DXPU_KIND_ACK || kind == DXPU_KIND_BLOCKED;
}

static json_t *frame_json(const dxpu_frame *f)
{
    json_t *o = json_pack("{s:s}", "kind", dxpu_kind_name(f->kind));
    set_unsigned(o, "path", f->path);
    set_unsigned(o, "channel", f->channel);
    set_unsigned(o, "packet", f->packet);
    if (!has_sequence(f->kind))
        return o;
    set_unsigned(o, "sequence", f->sequence);
    set_unsigned(o, "ack", f->ack);
    set_unsigned(o, "sack", f->sack);
    set_unsigned(o, "seen", f->seen);
    set_unsigned(o, "delay_ns", f->delay_ns);
    set_unsigned(o, "ecn_ce", f->ecn_ce);
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t *limits = i ? f->limits.data : f->limits.header;
        json_object_set_new(o, i ? "data_limits" : "header_limits",
                            json_pack("[I, I, I]", (json_int_t)limits[DXPU_POSTED],
                                      (json_int_t)limits[DXPU_NONPOSTED],
                                      (json_int_t)limits[DXPU_COMPLETION]));
    }
    return o;
}

static void print_frame(const dxpu_frame *f)
{
    printf("frame %s channel %08" PRIx32 " path %u packet %" PRIu64, dxpu_kind_name(f->kind),
           f->channel, f->path, f->packet);
    if (has_sequence(f->kind))
        printf(" sequence %" PRIu32 " ack %" PRIu32 " sack %" PRIx64, f->sequence, f->ack, f->sack);
}

static json_t *place_json(const dxpu_place *p)
{
    return json_pack("{s:I, s:i, s:i}", "node", (json_int_t)p->node, "slot", (int)p->slot,
                     "function", (int)p->function);
}

static void show_offer(json_t *into, const dxpu_offer *o)
{
    if (!into) {
        printf(" id %08" PRIx32 " epoch %" PRIu64 " node %" PRIu32 " slot %u to node %" PRIu32
               " slot %u window %u frame limit %" PRIu32 " hold %" PRIu32 " ms",
               o->channel, o->epoch, o->source.node, o->source.slot, o->destination.node,
               o->destination.slot, o->window_frames, o->frame_limit_bytes, o->hold_ms);
        return;
    }
    set_unsigned(into, "id", o->channel);
    set_unsigned(into, "epoch", o->epoch);
    json_object_set_new(into, "source", place_json(&o->source));
    json_object_set_new(into, "destination", place_json(&o->destination));
    set_unsigned(into, "window_frames", o->window_frames);
    set_unsigned(into, "frame_limit_bytes", o->frame_limit_bytes);
    set_unsigned(into, "hold_ms", o->hold_ms);
    set_unsigned(into, "first_sequence", o->sequence);
}

/* The fields of the kinds that carry no records; DXPU_OK or a peer error. */
static int show_fields(json_t *into, const dxpu_frame *f)
{
    dxpu_offer offer;
    int rc;
    if (f->kind == DXPU_KIND_OPEN || f->kind == DXPU_KIND_ACCEPT) {
        rc = dxpu_offer_decode(f->body, &offer);
        if (rc == DXPU_OK)
            show_offer(into, &offer);
        return rc;
    }
    if (f->kind == DXPU_KIND_RESET || f->kind == DXPU_KIND_CLOSE) {
        if (f->body.len < 4)
            return DXPU_E_SHORT;
        if (into)
            json_object_set_new(into, "reason", json_string(dxpu_reason_text(f->body.ptr[0])));
        else
            printf(" (%s)", dxpu_reason_text(f->body.ptr[0]));
    }
    return DXPU_OK;
}

static void frame_refused(packet_run *p, int error)
{
    p->run->frames_refused++;
    if (p->json) {
        json_object_set_new(p->json, "error", json_string(tlp_error(error).text));
        json_object_set_new(p->json, "reason", json_string(dxpu_error_text(error)));
    } else {
        printf("refused (%s) %s\n", tlp_error(error).text, dxpu_error_text(error));
    }
}

/* A frame whose CRC is wrong is damaged when others of its channel have a right one; else the
   channel is sealed, and its frames end in a tag.  Handshakes and some resets always have a
   CRC. */
static bool is_sealed(pcap_run *run, const dxpu_frame *f, bool crc_ok)
{
    uint32_t hash = f->channel * 2654435761u >> 16;
    uint8_t *byte = &run->plain[hash / 8], bit = (uint8_t)(1u << hash % 8);
    if (crc_ok && f->kind != DXPU_KIND_HANDSHAKE && f->kind != DXPU_KIND_RESET)
        *byte |= bit;
    return !crc_ok && f->kind != DXPU_KIND_HANDSHAKE && !(*byte & bit);
}

static void show_frame(packet_run *p, dxpu_bytes datagram)
{
    dxpu_frame f;
    json_t *header = NULL;
    int rc = dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &f), crc;
    bool sealed;
    if (rc != DXPU_OK) {
        frame_refused(p, rc);
        return;
    }
    p->run->frames[f.kind]++;
    crc = dxpu_frame_check_crc(datagram);
    sealed = is_sealed(p->run, &f, crc == DXPU_OK);
    p->run->sealed += sealed;
    if (p->json) {
        header = frame_json(&f);
        json_object_set_new(p->json, "frame", header);
        json_object_set_new(p->json, "crc_ok", json_boolean(crc == DXPU_OK));
        json_object_set_new(p->json, "sealed", json_boolean(sealed));
        json_object_set_new(p->json, "records", json_array());
    } else {
        print_frame(&f);
    }
    /* What a damaged or sealed frame holds would be guesses. */
    rc = crc == DXPU_OK ? show_fields(header, &f) : crc;
    if (!p->json)
        puts(crc == DXPU_OK ? " CRC ok" : sealed ? " sealed" : "");
    if (sealed)
        return;
    if (rc == DXPU_OK && f.kind == DXPU_KIND_DATA)
        rc = show_records(p, f.body);
    if (rc == DXPU_OK)
        return;
    if (!p->json)
        fputs("        ", stdout);
    frame_refused(p, rc);
}

/* ---- packets ---- */

static void show_packet(pcap_run *run, const dxpu_pcap_packet *packet)
{
    static const char *const kinds[] = { "other", "tlp", "frame" };
    packet_run p = { run, NULL, packet->kind == DXPU_PCAP_FRAME };
    if (run->json) {
        p.json = json_object();
        set_unsigned(p.json, "packet", packet->index);
        set_unsigned(p.json, "time_ns", packet->time_ns);
        json_object_set_new(p.json, "kind", json_string(kinds[packet->kind]));
    } else {
        int64_t ns = (int64_t)(packet->time_ns - run->first_ns);
        printf("%6" PRIu64 " %+.9f ", packet->index, (double)ns / 1e9);
    }
    if (packet->kind == DXPU_PCAP_TLP) {
        show_tlp(&p, p.json, packet->bytes);
    } else if (packet->kind == DXPU_PCAP_FRAME && packet->bytes.len == packet->whole_bytes) {
        show_frame(&p, packet->bytes);
    } else if (packet->kind == DXPU_PCAP_FRAME) {
        frame_refused(&p, DXPU_E_SHORT);
    } else {
        run->other++;
        if (!p.json)
            printf("neither a TLP nor a frame, %zu bytes\n", packet->whole_bytes);
    }
    if (p.json) {
        print_json(p.json, 0);
    }
}

static unsigned long total(const unsigned long *counts, size_t n)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static void print_summary(const pcap_run *run)
{
    printf("summary: %lu TLPs", total(run->tlps, DXPU_TLP_TYPE_COUNT));
    for (unsigned i = 0; i < DXPU_TLP_TYPE_COUNT; i++)
        if (run->tlps[i])
            printf(", %lu %s", run->tlps[i], dxpu_tlp_type_name(i));
    printf("; %lu truncated, %lu against a rule, %lu refused\n", run->truncated, run->rule_breaking,
           run->refused);
    if (total(run->frames, DXPU_KIND_END) + run->frames_refused) {
        printf("summary: %lu frames", total(run->frames, DXPU_KIND_END));
        for (unsigned i = 0; i < DXPU_KIND_END; i++)
            if (run->frames[i])
                printf(", %lu %s", run->frames[i], dxpu_kind_name(i));
        printf("; %lu sealed, %lu refused, %lu events, %lu TLPs continued in a later frame\n",
               run->sealed, run->frames_refused, run->events, run->continued);
    }
    if (run->other)
        printf("summary: %lu other packets\n", run->other);
}

static void print_summary_json(const pcap_run *run)
{
    json_t *o = json_object(), *types = json_object(), *kinds = json_object();
    for (unsigned i = 0; i < DXPU_TLP_TYPE_COUNT; i++)
        if (run->tlps[i])
            set_unsigned(types, dxpu_tlp_type_name(i), run->tlps[i]);
    for (unsigned i = 0; i < DXPU_KIND_END; i++)
        if (run->frames[i])
            set_unsigned(kinds, dxpu_kind_name(i), run->frames[i]);
    set_unsigned(o, "tlps", total(run->tlps, DXPU_TLP_TYPE_COUNT));
    json_object_set_new(o, "types", types);
    set_unsigned(o, "truncated", run->truncated);
    set_unsigned(o, "against_rule", run->rule_breaking);
    set_unsigned(o, "refused", run->refused);
    set_unsigned(o, "frames", total(run->frames, DXPU_KIND_END));
    json_object_set_new(o, "kinds", kinds);
    set_unsigned(o, "sealed", run->sealed);
    set_unsigned(o, "frames_refused", run->frames_refused);
    set_unsigned(o, "events", run->events);
    set_unsigned(o, "continued", run->continued);
    set_unsigned(o, "other", run->other);
    o = json_pack("{s:o}", "summary", o);
    print_json(o, 0);
}

static int show_file(const char *name, bool json, uint64_t limit)
{
    pcap_run run = { .json = json };
    char why[DXPU_PCAP_WHY_BYTES];
    dxpu_pcap_packet packet;
    dxpu_pcap_reader *reader = dxpu_pcap_open(name, why);
    int rc = reader ? 0 : -1;
    packet.index = 0;
    while (reader && (packet.index < limit || dxpu_pcap_more(reader))) {
        bool first = packet.index == 0;
        rc = dxpu_pcap_next(reader, &packet, why);
        if (rc <= 0)
            break;
        run.first_ns = first ? packet.time_ns : run.first_ns;
        show_packet(&run, &packet);
    }
    if (reader)
        (json ? print_summary_json : print_summary)(&run);
    dxpu_pcap_close(reader);
    if (rc < 0) {
        log_error("%s: %s", name, why);
        return EXIT_USAGE;
    }
    if (!total(run.tlps, DXPU_TLP_TYPE_COUNT) && !total(run.frames, DXPU_KIND_END)) {
        log_error("%s: contains neither TLPs nor dxpu frames", name);
        return EXIT_REFUSED;
    }
    if (run.sealed)
        log_note("%s: sealed frames, %lu of them: their TLPs cannot be read here; record "
                 "TLPs at a proxy (--record)",
                 name, run.sealed);
    return run.refused || run.frames_refused ? EXIT_REFUSED : EXIT_ALL;
}

/* ---- command line ---- */

static struct {
    bool json, same;
    uint64_t limit;
} set = { false, false, UINT64_MAX };

static const option_row rows[] = {
    { "json", NULL, "one JSON object a TLP or frame, the last one is the summary", OPTION_FLAG,
      &set.json, 0, 0 },
    { "limit", "N", "only the first N packets", OPTION_NUMBER, &set.limit, 1, UINT64_MAX },
    { "same", NULL,
      "compare the complete TLPs of two captures, A as sent and B as delivered, in each class: "
      "missing, doubled, altered, reordered, foreign",
      OPTION_FLAG, &set.same, 0, 0 },
};

static int run(const option_call *c)
{
    if (set.same && (c->count != 2 || options_given(&set.limit)))
        return options_wrong("--same requires two files and no --limit");
    if (set.same)
        return pcap_same(c->words[0], c->words[1], set.json);
    return c->count == 1 ? show_file(c->words[0], set.json, set.limit)
                         : options_wrong("which one file?");
}

static const option_verb verb = {
    "pcap",
    "FILE | --same A B",
    "show or compare captures",
    "Prints the TLPs of a capture in NetTLP's encapsulation, and of one of dxpu frames the frames "
    "with their records, then a summary. A packet may hold several frames (UDP_SEGMENT, GRO). Of "
    "sealed frames only the headers can be read. FILE '-' is standard input.",
    "Exit status: 0 all decoded (cut ones too), or the same; 1 some refused or nothing found, or\n"
    "different, or nothing to compare; 2 wrong usage or an unreadable file.\n",
    1,
    2,
    { OPTION_ROWS(rows), { NULL, 0 } },
    run
};

const option_verbs pcap_verbs = { NULL, &verb, 1 };
