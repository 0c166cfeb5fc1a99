/* replay.c - see replay.h
   SPDX-License-Identifier: MIT */
#include "replay.h"
#include "log.h"

#include <stdlib.h>

/* ==== Reading the capture ===================================================================== */

static bool grow(void **p, size_t size, uint64_t need, uint64_t *cap)
{
    uint64_t more = *cap ? *cap * 2 : 4096;
    void *bigger;
    if (need <= *cap)
        return true;
    if (more < need)
        more = need;
    bigger = realloc(*p, (size_t)more * size);
    if (!bigger)
        return false;
    *p = bigger;
    *cap = more;
    return true;
}

static bool keep(replay *r, dxpu_bytes tlp)
{
    uint64_t cap = r->cap;
    void *bytes = r->bytes, *items = r->items;
    bool ok = grow(&bytes, 1, r->used + tlp.len, &cap) &&
              grow(&items, sizeof *r->items, r->count + 1, &r->item_cap);
    r->bytes = bytes;
    r->items = items;
    r->cap = (size_t)cap;
    if (!ok)
        return false;
    memcpy(r->bytes + r->used, tlp.ptr, tlp.len);
    r->items[r->count].at = r->used;
    r->items[r->count].len = (uint32_t)tlp.len;
    r->used += tlp.len;
    r->count++;
    return true;
}

static void refuse(replay *r, const dxpu_pcap_packet *p, int error)
{
    unsigned i = error < 0 && error > -REPLAY_ERRORS ? (unsigned)-error : 0;
    if (!r->refused[i])
        log_warning("refused packet %llu: %s (%s); further ones are only counted",
                    (unsigned long long)p->index, dxpu_error_text(error), dxpu_error_name(error));
    r->refused[i]++;
    r->refused_total++;
}

/* Complete a payload that the mirror cut, in `buffer`.  False when there is nothing to complete. */
static bool fill_up(dxpu_bytes *tlp, uint8_t buffer[DXPU_TLP_MAX_BYTES])
{
    dxpu_tlp_shape s;
    if (dxpu_tlp_measure(*tlp, &s) != DXPU_OK || s.total_bytes <= tlp->len ||
        s.total_bytes > DXPU_TLP_MAX_BYTES)
        return false;
    memset(buffer, 0, s.total_bytes);
    memcpy(buffer, tlp->ptr, tlp->len);
    tlp->ptr = buffer;
    tlp->len = s.total_bytes;
    return true;
}

/* Can the channel carry it?  A header that can be read and as many bytes as it says: a TLP that
   breaks a rule of PCIe crosses as it is, what to make of it is the device's. */
static bool whole(dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    dxpu_tlp t;
    return dxpu_tlp_decode_header(tlp, &t) == DXPU_OK && dxpu_tlp_measure(tlp, &s) == DXPU_OK &&
           tlp.len == s.total_bytes;
}

static void warn(replay *r, const dxpu_pcap_packet *p, int error)
{
    unsigned i = error < 0 && error > -REPLAY_ERRORS ? (unsigned)-error : 0;
    if (!r->broken[i])
        log_warning("packet %llu breaks a rule and is sent unchanged: %s (%s)",
                    (unsigned long long)p->index, dxpu_error_text(error), dxpu_error_name(error));
    r->broken[i]++;
    r->broken_total++;
}

static bool consider(replay *r, const dxpu_pcap_packet *p, bool fill)
{
    uint8_t buffer[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = p->bytes;
    dxpu_tlp t;
    bool filled = fill && fill_up(&tlp, buffer);
    int rc = dxpu_tlp_decode(tlp, &t);
    if (rc != DXPU_OK && !whole(tlp)) {
        refuse(r, p, rc);
        return true;
    }
    if (rc != DXPU_OK)
        warn(r, p, rc);
    r->filled += filled;
    return keep(r, tlp);
}

static const char *why_nothing(const replay *r)
{
    if (r->refused[-DXPU_E_TLP_SHORT])
        return "the capture cut the payloads, try --fill";
    if (r->refused_total)
        return "no TLP is whole; `dxpu pcap` shows what is wrong with each";
    if (r->frames)
        return "this is a capture of dxpu frames; it must be one of TLPs, as --record writes it";
    return r->packets ? "no packet is a TLP in NetTLP's encapsulation" : "the capture is empty";
}

int replay_open(replay *r, host_link *link, const char *file, bool fill, uint64_t repeat)
{
    char why[DXPU_PCAP_WHY_BYTES];
    dxpu_pcap_packet p;
    bool memory = true;
    int rc = 0;
    dxpu_pcap_reader *reader = dxpu_pcap_open(file, why);
    r->link = link;
    r->repeat = repeat;
    if (!reader) {
        log_error("--replay %s: %s", file, why);
        return -1;
    }
    while (memory && (rc = dxpu_pcap_next(reader, &p, why)) == 1) {
        r->packets++;
        if (p.kind == DXPU_PCAP_TLP)
            memory = consider(r, &p, fill);
        else
            r->others++;
        r->frames += p.kind == DXPU_PCAP_FRAME;
    }
    dxpu_pcap_close(reader);
    if (!memory || rc < 0) {
        log_error("--replay %s: %s", file, memory ? why : "out of memory");
        return -1;
    }
    log_note("%s: %llu packets, %llu TLPs to send (%llu filled up), %llu refused, "
             "%llu others",
             file, (unsigned long long)r->packets, (unsigned long long)r->count,
             (unsigned long long)r->filled, (unsigned long long)r->refused_total,
             (unsigned long long)r->others);
    if (!r->count)
        log_error("nothing to send: %s", why_nothing(r));
    return r->count ? 0 : 1;
}

void replay_close(replay *r)
{
    free(r->bytes);
    free(r->items);
}

/* ==== The source ============================================================================== */

static uint64_t total(const replay *r)
{
    return r->count * r->repeat;
}

static void start(void *self, uint64_t now)
{
    replay *r = self;
    if (!r->begin_ns) /* a later incarnation goes on where the last one stopped */
        r->begin_ns = now;
}

static void work(void *self, uint64_t now)
{
    replay *r = self;
    while (r->next < total(r)) {
        const replay_item *i = &r->items[r->next % r->count];
        dxpu_bytes tlp = { r->bytes + i->at, i->len };
        int rc = link_submit(r->link, tlp, now, now);
        /* a tag in flight may not be used again: the capture waits for its completion; without a
           channel (the fatal band) for the next one */
        if (rc == DXPU_E_AGAIN || rc == DXPU_E_NO_TAG || rc == DXPU_E_TAG_BUSY ||
            rc <= DXPU_E_CLOSED)
            break;
        if (rc != DXPU_OK) {
            r->unsubmitted++;
            r->last_error = rc;
        }
        r->next++;
        r->end_ns = now;
    }
}

static void completion(void *self, const dxpu_tlp *cpl, uint64_t user, bool last, uint64_t now)
{
    replay *r = self;
    if (!cpl) {
        r->unanswered++;
        return;
    }
    if (!last)
        return;
    r->answered++;
    r->unsuccessful += cpl->status != DXPU_CPL_SC;
    r->end_ns = now;
    histogram_add(&r->link->rtt, now - user);
}

static bool done(const void *self)
{
    const replay *r = self;
    return r->next >= total(r);
}

static uint64_t next_ns(const void *self)
{
    (void)self;
    return DXPU_NEVER;
}

static void progress(const void *self, char out[64])
{
    const replay *r = self;
    snprintf(out, 64, "%llu of %llu replayed", (unsigned long long)r->next,
             (unsigned long long)total(r));
}

static void report_errors(const char *name, const uint64_t count[REPLAY_ERRORS], report *out)
{
    report_open(out, name);
    for (int i = 0; i < REPLAY_ERRORS; i++) {
        if (count[i])
            report_number(out, dxpu_error_name(-i), count[i]);
    }
    report_close(out);
}

static void write_report(const void *self, report *out)
{
    const replay *r = self;
    uint64_t end_ns = r->begin_ns && r->next < total(r) ? dxpu_udp_now_ns() : r->end_ns;
    double seconds = (double)(end_ns - r->begin_ns) / 1e9;
    report_text(out, "source", "replay");
    report_number(out, "packets", r->packets);
    report_number(out, "other_packets", r->others);
    report_number(out, "filled", r->filled);
    report_number(out, "refused", r->refused_total + r->unsubmitted);
    report_errors("refused_by_reason", r->refused, out);
    report_number(out, "rule_breaking", r->broken_total);
    report_errors("broken_by_rule", r->broken, out);
    report_number(out, "answered", r->answered);
    report_number(out, "unsuccessful", r->unsuccessful);
    report_number(out, "unanswered", r->unanswered);
    report_real(out, "seconds", seconds);
    report_real(out, "tlps_per_second", seconds > 0 ? (double)r->next / seconds : 0);
}

/* An unsuccessful completion is an answer: a capture may well hold requests that only its own
   device took. */
static bool wrong(const void *self, char why[SOURCE_WHY_BYTES])
{
    const replay *r = self;
    if (r->unsubmitted)
        snprintf(why, SOURCE_WHY_BYTES, "%llu TLPs of the capture could not be sent: %s",
                 (unsigned long long)r->unsubmitted, dxpu_error_text(r->last_error));
    else
        snprintf(why, SOURCE_WHY_BYTES, "%llu request%s got no answer",
                 (unsigned long long)r->unanswered, r->unanswered == 1 ? "" : "s");
    return r->unanswered || r->unsubmitted;
}

source replay_source(replay *r)
{
    source s = { r, start, work, completion, done, next_ns, progress, write_report, wrong, NULL };
    return s;
}
