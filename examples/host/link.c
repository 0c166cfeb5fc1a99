/* link.c - see link.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Submitting   2 What the box sends   3 Life of the channel   4 Time   5 Opening */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "link.h"
#include "log.h"
#include "refusal.h"

#include <errno.h>

enum { TLPS_PER_TURN = 256, MILLION = 1000000, RETRY_MS = 100, PROGRESS_MS = 2000 };

/* room for completions: reads reserve it before they leave */
enum { COMPLETION_HEADERS = 4096, COMPLETION_UNITS = 32768 };

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ==== 1  Submitting =========================================================================== */

int link_submit(host_link *l, dxpu_bytes tlp, uint64_t now_ns, uint64_t user)
{
    int rc = l->channel ? dxpu_channel_submit(&l->channel->ch, tlp, now_ns, user) : DXPU_E_CLOSED;
    if (rc != DXPU_OK)
        return rc;
    l->submitted++;
    recorder_tlp(&l->record, tlp);
    return DXPU_OK;
}

bool link_acked(const host_link *l, uint64_t now_ns)
{
    return l->channel && !(dxpu_channel_wants(&l->channel->ch, now_ns) & DXPU_WANTS_ACK);
}

/* ==== 2  What the box sends =================================================================== */

static bool take_completion(host_link *l, uint64_t now)
{
    dxpu_channel *ch = &l->channel->ch;
    dxpu_delivery d = dxpu_channel_peek(ch, DXPU_COMPLETION);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    l->taken++;
    if (dxpu_tlp_receive(d.tlp, &t) == DXPU_OK)
        l->source->completion(l->source->self, &t, d.user, d.last, now);
    else if (d.last) /* damaged by the device: its request ends without an answer */
        l->source->completion(l->source->self, NULL, d.user, true, now);
    (void)dxpu_channel_take(ch, DXPU_COMPLETION, now); /* peek() has just shown it */
    return true;
}

/* What the source has no target for is refused. */
static int ask_source(host_link *l, dxpu_bytes tlp, uint64_t now)
{
    dxpu_tlp t;
    return l->source->request && dxpu_tlp_receive(tlp, &t) == DXPU_OK
               ? l->source->request(l->source->self, &t, now)
               : SOURCE_REFUSED;
}

static bool take_request(host_link *l, unsigned cls, uint64_t now)
{
    dxpu_channel *ch = &l->channel->ch;
    dxpu_delivery d = dxpu_channel_peek(ch, cls);
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes answer;
    int verdict;
    if (!d.tlp.len)
        return false;
    verdict = ask_source(l, d.tlp, now);
    if (verdict == SOURCE_LATER)
        return false;
    if (verdict == SOURCE_TAKEN) {
        (void)dxpu_channel_take(ch, cls, now);
        return true;
    }
    answer = refusal_encode(d.tlp, DXPU_CPL_UR, bytes);
    if (answer.len && dxpu_channel_submit(ch, answer, now, 0) == DXPU_E_AGAIN)
        return false; /* it stays where it is until there is room to answer it */
    if (cls == DXPU_POSTED)
        l->device_posted++;
    else
        l->device_unsupported++;
    (void)dxpu_channel_take(ch, cls, now);
    return true;
}

static bool take_event(host_link *l)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(&l->channel->ch, &e))
        return false;
    l->events++;
    (void)dxpu_channel_take_event(&l->channel->ch);
    return true;
}

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    host_link *l = user;
    bool more = true;
    if (l->channel != c)
        return false;
    for (unsigned n = 0; more && n < TLPS_PER_TURN; n++) {
        more = take_event(l);
        more |= take_completion(l, now);
        more |= take_request(l, DXPU_POSTED, now);
        more |= take_request(l, DXPU_NONPOSTED, now);
    }
    /* the last call for a channel is only for taking: what comes now belongs to the next one */
    if (!l->stopping && !l->closing && dxpu_channel_status(&c->ch).state <= DXPU_STATE_UP)
        l->source->work(l->source->self, now);
    return more;
}

/* ==== 3  Life of the channel ================================================================== */

/* Requests that will not be answered any more (D-60). */
static void contain(host_link *l, fabric_channel *over, uint64_t now)
{
    dxpu_request r;
    while (dxpu_channel_contain(&over->ch, &r)) {
        l->contained++;
        l->source->completion(l->source->self, NULL, r.user, true, now);
    }
}

void link_end(host_link *l, int result)
{
    if (l->channel) { /* cut off: what is in flight stays without answer */
        dxpu_channel_reset(&l->channel->ch, DXPU_REASON_SHUTDOWN);
        contain(l, l->channel, dxpu_udp_now_ns());
    }
    if (!l->over)
        l->result = result;
    l->over = true;
    fabric_stop(&l->fabric);
}

static void dial(host_link *l, uint64_t now)
{
    dxpu_channel_config cfg;
    keys *k = l->fabric.keys;
    const char *why = keys_plain(k) ? NULL : keys_box(k, l->box, l->paths, l->key);
    l->dial_ns = DXPU_NEVER;
    if (why) {
        log_error("--box %s: %s", l->set->box, why);
        link_end(l, LINK_NO_CHANNEL);
        return;
    }
    (void)dxpu_tags_init(&l->tags, l->entries, l->set->tags, 0, l->set->tags_mode,
                         l->set->timeout_ms * MILLION); /* checked in link_open */
    dxpu_channel_config_default(&cfg);
    cfg.epoch = l->set->epoch;
    cfg.local.node = (uint32_t)l->set->node;
    cfg.local.slot = DXPU_SLOT_HOST;
    cfg.local.function = DXPU_FUNCTION_ALL;
    cfg.remote.node = 0; /* whoever has this address */
    cfg.remote.slot = (uint16_t)l->set->slot;
    cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.tags = &l->tags;
    l->channel =
        fabric_dial(&l->fabric, &cfg, keys_plain(k) ? NULL : l->key, l->path, l->paths, now);
    log_debug("dialing slot %llu of %s", (unsigned long long)l->set->slot, l->set->box);
    if (!l->channel) {
        log_error("no memory for a channel; lower --window");
        link_end(l, LINK_SYSTEM);
    }
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    host_link *l = user;
    (void)c;
    l->is_up = true;
    l->silence_told = false;
    l->ups++;
    log_info("slot %llu of %s is attached, epoch %llu", (unsigned long long)l->set->slot,
             l->set->box, (unsigned long long)l->set->epoch);
    l->source->start(l->source->self, now);
}

/* What a refusal means for the user, NULL when trying again may help. */
static const char *remedy(uint8_t reason)
{
    switch (reason) {
    case DXPU_REASON_NO_SLOT:
        return "choose another --slot, or the port of this one: see the box's messages";
    case DXPU_REASON_EPOCH:
        return "another lease has been granted since; use a higher --epoch, or where a manager "
               "lends the "
               "slot, ask it (dxpu lease create)";
    case DXPU_REASON_VERSION:
        return "upgrade the older side";
    case DXPU_REASON_OFFER:
        return "check --window, --mtu and --hold-ms";
    case DXPU_REASON_REPLACED:
        return "another dxpu-host has this slot now; to take it back, use a higher --epoch, or "
               "where a "
               "manager lends the slot, ask it (dxpu show slot)";
    default:
        return NULL;
    }
}

/* S-92: once, for whoever does not answer says nothing at this end. */
static void tell_silence(host_link *l, uint64_t now)
{
    if (!l->silence_told)
        log_warning("no answer from %s for %llu ms: %s", l->set->box,
                    (unsigned long long)((now - l->alone_ns) / MILLION),
                    keys_silence(l->fabric.keys));
    l->silence_told = true;
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    host_link *l = user;
    int error = dxpu_channel_status(&c->ch).error;
    uint8_t reason = dxpu_channel_status(&c->ch).reason;
    const char *help = error == DXPU_E_RESET ? remedy(reason) : NULL;
    bool was_up = l->is_up;
    char text[FABRIC_END_BYTES];
    fabric_paths_keep(&l->past, c);
    l->channel = NULL;
    l->is_up = false;
    contain(l, c, now);
    if (was_up)
        l->alone_ns = now;
    else if (error == DXPU_E_NO_ANSWER)
        tell_silence(l, now);
    if (l->closing || l->stopping) {
        link_end(l, LINK_DONE);
        return;
    }
    if (was_up || help)
        log_warning("slot %llu of %s: %s: %s; %s", (unsigned long long)l->set->slot, l->set->box,
                    was_up ? "channel lost" : "no channel", fabric_end_text(c, text),
                    help ? help : "dialing again");
    if (help) {
        link_end(l, LINK_NO_CHANNEL);
        return;
    }
    bool waited = error == DXPU_E_DEAD || error == DXPU_E_NO_ANSWER;
    l->dial_ns = now + (waited ? 0 : (uint64_t)RETRY_MS * MILLION);
}

/* ==== 4  Time ================================================================================= */

static void progress(host_link *l, uint64_t now)
{
    char text[64] = "";
    dxpu_counters total;
    l->progress_ns = now + (uint64_t)PROGRESS_MS * MILLION;
    if (!log_shows(LOG_AT_INFO))
        return;
    fabric_totals(&l->fabric, &total);
    l->source->progress(l->source->self, text);
    log_info("%s, %llu TLPs acknowledged, %llu frames sent again%s", text,
             (unsigned long long)total.tx_tlps_acked, (unsigned long long)total.tx_retransmits,
             l->is_up ? "" : ", waiting for the box");
}

static void expire(host_link *l, uint64_t now)
{
    dxpu_request r;
    while (dxpu_tags_expire(&l->tags, now, &r)) {
        l->timeouts++;
        l->source->completion(l->source->self, NULL, r.user, true, now);
    }
}

static bool finished(const host_link *l, uint64_t now)
{
    return l->is_up && l->channel && (l->stopping || l->source->done(l->source->self)) &&
           l->tags.in_flight == 0 && link_acked(l, now);
}

static void on_tick(void *user, uint64_t now)
{
    host_link *l = user;
    if (l->over)
        return;
    if (l->channel && l->is_up)
        expire(l, now);
    if (!l->closing && finished(l, now)) {
        l->closing = true;
        (void)dxpu_channel_close(&l->channel->ch, DXPU_REASON_SHUTDOWN); /* it is up */
    }
    if (l->stopping && (now >= l->stop_ns || (!l->is_up && !l->closing))) {
        link_end(l, LINK_DONE);
    } else if (!l->is_up && !l->closing && now - l->alone_ns >= l->set->give_up_ms * MILLION) {
        tell_silence(l, now);
        log_error("given up: no channel to %s for %llu ms", l->set->box,
                  (unsigned long long)l->set->give_up_ms);
        link_end(l, LINK_NO_CHANNEL);
    } else if (now >= l->dial_ns) {
        dial(l, now);
    }
    if (now >= l->progress_ns)
        progress(l, now);
}

static uint64_t on_next(void *user)
{
    const host_link *l = user;
    uint64_t next = sooner(l->dial_ns, l->progress_ns);
    if (l->over)
        return 0;
    if (l->stopping)
        next = sooner(next, l->stop_ns);
    if (!l->is_up)
        return sooner(next, l->alone_ns + l->set->give_up_ms * MILLION);
    next = sooner(next, dxpu_tags_next_ns(&l->tags));
    return l->stopping || l->closing ? next : sooner(next, l->source->next_ns(l->source->self));
}

/* ==== 5  Opening ============================================================================== */

int link_open(host_link *l, const link_settings *set, const fabric_settings *net, const source *s)
{
    fabric_callbacks cb = { l, NULL, on_up, on_work, on_down, on_next, on_tick, NULL, NULL };
    int rc;
    l->set = set;
    l->source = s;
    /* places: this incarnation, and the previous one's last reset */
    if (fabric_open(&l->fabric, net, 4, &cb))
        return -1;
    rc = fabric_route(&l->fabric, l->box, l->paths, l->path);
    if (rc != DXPU_OK) {
        log_error("--box %s: %s", set->box,
                  rc == DXPU_E_NONE
                      ? "--listen has no address of this kind; give --listen [::]:0 or "
                        "0.0.0.0:0"
                      : "an address is named twice");
        return -1;
    }
    l->fabric.base.rx.header[DXPU_COMPLETION] = COMPLETION_HEADERS;
    l->fabric.base.rx.data[DXPU_COMPLETION] = COMPLETION_UNITS;
    return recorder_open(&l->record, "--record", set->record);
}

int link_run(host_link *l)
{
    uint64_t now = dxpu_udp_now_ns();
    char why[SOURCE_WHY_BYTES];
    l->started_ns = l->alone_ns = now;
    l->progress_ns = now + (uint64_t)PROGRESS_MS * MILLION;
    dial(l, now);
    if (!l->over && fabric_run(&l->fabric)) {
        log_error("cannot wait for events: %s", strerror(errno));
        return LINK_SYSTEM;
    }
    if (l->result == LINK_DONE && l->source->wrong(l->source->self, why)) {
        log_error("finished with errors: %s", why);
        return LINK_WRONG;
    }
    return l->result;
}

void link_stop(host_link *l)
{
    if (!l->ups) /* or its exit status 0 were all that is known of it */
        tell_silence(l, dxpu_udp_now_ns());
    if (l->stopping) {
        link_end(l, LINK_DONE);
        return;
    }
    l->stopping = true;
    l->stop_ns = dxpu_udp_now_ns() + l->fabric.base.hold_ms * 1000000ull;
}

void link_report(const host_link *l, report *r)
{
    dxpu_counters total;
    fabric_totals(&l->fabric, &total);
    report_number(r, "submitted", l->submitted);
    report_number(r, "acked", total.tx_tlps_acked);
    report_number(r, "retransmits", total.tx_retransmits);
    report_number(r, "completions", l->taken);
    report_number(r, "contained", l->contained);
    report_number(r, "timeouts", l->timeouts);
    report_number(r, "incarnations", l->ups);
    report_histogram(r, "rtt_us", &l->rtt);
    if (total.tx_frames && total.rx_frames) {
        report_number(r, "tx_frame_bytes", total.tx_bytes / total.tx_frames);
        report_number(r, "rx_frame_bytes", total.rx_bytes / total.rx_frames);
    }
    fabric_report_paths(&l->past, l->channel, r);
}

int link_close(host_link *l)
{
    int rc = recorder_close(&l->record);
    return fabric_close(&l->fabric) ? -1 : rc;
}
