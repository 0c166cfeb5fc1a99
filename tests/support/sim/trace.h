/* A run as text, one line for each thing that happens, and as a capture.  All of it is made from
   the outside: frames are decoded, states and counters compared.  Part of sim.h. */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "dxpu_pcap.h"

typedef struct sim_trace {
    char *text; /* NULL: to standard output */
    size_t len, room;
    bool text_wanted;
    dxpu_pcap_writer *pcap;
} sim_trace;

static const char *const sim_end_names[2] = { "host", "box" };

/* `[   110] host is up`: microseconds, who, what. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void
sim_say(sim *s, const char *who, const char *format, ...)
{
    char line[400];
    va_list args;
    sim_trace *t = s->trace;
    if (!t || !t->text_wanted)
        return;
    int n = snprintf(line, sizeof line, "[%8.1f] %-4s ", (double)s->now_ns / 1000, who);
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    if ((size_t)n > sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    line[n] = 0;
    if (!t->text) {
        fputs(line, stdout);
        return;
    }
    if (t->len + (size_t)n >= t->room) {
        t->room = 2 * t->room + (size_t)n + 1;
        t->text = (char *)sim_grow(t->text, t->room);
    }
    memcpy(t->text + t->len, line, (size_t)n + 1);
    t->len += (size_t)n;
}

/* " MWr MRd LINK ..." of a body that can be read, "..." for the rest of a TLP. */
static inline void sim_records_text(dxpu_bytes body, char *out, size_t room)
{
    dxpu_record r;
    dxpu_tlp t;
    size_t n = 0;
    out[0] = 0;
    while (n + 40 < room && dxpu_record_next(&body, &r) == DXPU_OK) {
        if (r.type == DXPU_RECORD_EVENT)
            n += (size_t)snprintf(out + n, room - n, " %s", dxpu_event_name(r.event.type));
        else if (r.type == DXPU_RECORD_TLP && dxpu_tlp_decode_header(r.bytes, &t) == DXPU_OK)
            n += (size_t)snprintf(out + n, room - n, " %s", dxpu_tlp_type_name(t.type));
        else if (n == 0)
            n += (size_t)snprintf(out + n, room - n, " ...");
    }
}

/* `DATA 7, ack 8`: sequences count from the first of their end, so that a trace can be read. */
static inline void sim_frame_text(const sim_conn *from, const sim_conn *to, const uint8_t *bytes,
                                  size_t len, char *out, size_t room)
{
    dxpu_bytes datagram = { bytes, len };
    dxpu_frame f;
    size_t n;
    if (dxpu_frame_decode(datagram, from->ch.link.trailer, &f) != DXPU_OK) {
        snprintf(out, room, "?");
        return;
    }
    n = (size_t)snprintf(out, room, "%s", dxpu_kind_name(f.kind));
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(out[i] >= 'a' && out[i] <= 'z' ? out[i] - 32 : out[i]);
    if (f.kind == DXPU_KIND_DATA)
        n += (size_t)snprintf(out + n, room - n, " %u", f.sequence - from->ch.cfg.sequence);
    if (f.kind <= DXPU_KIND_BLOCKED) {
        n += (size_t)snprintf(out + n, room - n, ", ack %u",
                              to ? f.ack - to->ch.cfg.sequence : f.ack);
        for (uint32_t i = 0; to && i < 64 && n + 12 < room; i++) {
            if (f.sack >> i & 1)
                n += (size_t)snprintf(out + n, room - n, " +%u",
                                      f.ack - to->ch.cfg.sequence + 1 + i);
        }
    } else {
        n += (size_t)snprintf(out + n, room - n, " of %zu bytes", len);
    }
    if (f.kind == DXPU_KIND_PROBE && f.body.len && (f.body.ptr[0] & DXPU_PROBE_REPLY))
        n += (size_t)snprintf(out + n, room - n, ", reply");
    if ((f.kind == DXPU_KIND_CLOSE || f.kind == DXPU_KIND_RESET) && f.body.len)
        n += (size_t)snprintf(out + n, room - n, ", %s", dxpu_reason_text(f.body.ptr[0]));
    if (from->ch.cfg.suite)
        return;
    char records[200];
    if (f.kind == DXPU_KIND_DATA) {
        sim_records_text(f.body, records, sizeof records);
        snprintf(out + n, room - n, ":%s", records);
    }
}

static inline void sim_trace_sent(sim *s, const sim_conn *c, const uint8_t *bytes, size_t len,
                                  uint8_t path, const char *lost)
{
    char text[300], by[16] = "";
    if (!s->trace || !s->trace->text_wanted)
        return;
    sim_frame_text(c, sim_peer(c), bytes, len, text, sizeof text);
    if (s->o.paths > 1)
        snprintf(by, sizeof by, "%u ", path);
    sim_say(s, sim_end_names[c->end], "> %s%s%s%s", by, text, lost ? " -- " : "", lost ? lost : "");
}

static inline void sim_trace_arrived(sim *s, const sim_conn *c, const uint8_t *bytes, size_t len,
                                     int rc, const dxpu_counters *before)
{
    char text[300];
    const dxpu_counters *now = &c->ch.count;
    const sim_conn *from = sim_peer(c);
    if (!s->trace || !s->trace->text_wanted)
        return;
    sim_frame_text(from ? from : c, c, bytes, len, text, sizeof text);
    sim_say(s, sim_end_names[c->end], "< %s%s%s%s%s", text,
            now->rx_duplicate > before->rx_duplicate ? " -- dup" : "",
            now->rx_reordered > before->rx_reordered ? " -- early" : "", rc ? " -- " : "",
            rc ? dxpu_error_name(rc) : "");
}

/* Each path and direction has its own pair of addresses: 10.0.PATH.1 is the host. */
static inline void sim_trace_capture(sim *s, const sim_conn *c, const uint8_t *bytes, size_t len,
                                     uint8_t path)
{
    struct sockaddr_in a[2];
    dxpu_bytes frame = { bytes, len };
    if (!s->trace || !s->trace->pcap)
        return;
    memset(a, 0, sizeof a);
    for (unsigned i = 0; i < 2; i++) {
        a[i].sin_family = AF_INET;
        a[i].sin_port = htons(4458);
        a[i].sin_addr.s_addr = htonl(0x0a000001u + ((uint32_t)path << 8) + i);
    }
    dxpu_pcap_write_frame(s->trace->pcap, s->now_ns, (struct sockaddr *)&a[c->end],
                          (struct sockaddr *)&a[1 - c->end], frame);
}

/* The traces that the environment asks for: DXPU_PCAP=FILE, DXPU_TRACE=1.  NULL when none. */
static inline sim_trace *sim_trace_from_environment(sim_trace *t)
{
    char why[DXPU_PCAP_WHY_BYTES];
    const char *file = getenv("DXPU_PCAP");
    memset(t, 0, sizeof *t);
    t->text_wanted = getenv("DXPU_TRACE") != NULL;
    if (file && !(t->pcap = dxpu_pcap_create(file, why)))
        fprintf(stderr, "%s: %s\n", file, why);
    return t->text_wanted || t->pcap ? t : NULL;
}

static inline void sim_trace_end(sim_trace *t)
{
    dxpu_pcap_finish(t->pcap);
    free(t->text);
    memset(t, 0, sizeof *t);
}

#endif
