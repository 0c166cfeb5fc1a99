/* load.c - see load.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Patterns   2 Requests   3 Phases   4 Completions   5 The source */
#include "load_internal.h"
#include "log.h"

#include <stdlib.h>

enum { NO_READ = 0xffff, CONFIG_USER = 0xffff };

#define LOAD_ADDRESS 0x8000000000u /* where the BAR is placed: a window above 4 GB */

/* ==== 1  Patterns ============================================================================= */

static uint64_t mix(uint64_t x) /* one round of splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The dword at `offset` of a chunk as written in `generation`. */
static uint32_t pattern(uint32_t chunk, uint32_t generation, uint32_t offset)
{
    return (uint32_t)mix((uint64_t)chunk << 32 ^ (uint64_t)generation << 12 ^ offset);
}

static void fill_pattern(uint8_t *to, uint32_t len, uint32_t chunk, uint32_t generation,
                         uint32_t offset)
{
    for (uint32_t i = 0; i < len; i += 4) {
        uint32_t v = pattern(chunk, generation, offset + i);
        memcpy(to + i, &v, sizeof v);
    }
}

static bool same_pattern(dxpu_bytes data, uint32_t chunk, uint32_t generation, uint32_t offset)
{
    for (size_t i = 0; i + 4 <= data.len; i += 4) {
        uint32_t v, want = pattern(chunk, generation, offset + (uint32_t)i);
        memcpy(&v, data.ptr + i, sizeof v);
        if (v != want)
            return false;
    }
    return true;
}

static uint64_t next_random(load *l)
{
    l->random = mix(l->random);
    return l->random;
}

/* ==== 2  Requests ============================================================================= */

static int submit(load *l, const dxpu_tlp *t, uint64_t now, uint64_t user)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    int rc = dxpu_tlp_encode(t, out, sizeof out, &tlp.len);
    if (rc == DXPU_OK)
        rc = link_submit(l->link, tlp, now, user);
    /* anything but `later` or `on the next channel` (the fatal band) would be repeated for ever */
    if (rc != DXPU_OK && rc != DXPU_E_AGAIN && rc > DXPU_E_CLOSED) {
        log_error("cannot submit a request: %s", dxpu_error_text(rc));
        l->unsubmitted++;
        l->phase = LOAD_FINISHED;
    }
    return rc;
}

/* A non-posted request with a tag of ours.  What comes back with its completions: a number that is
   no other request's, above `index`; 0 when it did not leave. */
static uint64_t submit_tagged(load *l, dxpu_tlp *t, uint64_t now, uint16_t index)
{
    int tag = dxpu_tags_alloc(&l->link->tags);
    uint64_t user = ++l->requests << 16 | index;
    if (tag < 0)
        return 0;
    t->tag = (uint16_t)tag;
    if (submit(l, t, now, user) == DXPU_OK)
        return user;
    (void)dxpu_tags_drop(&l->link->tags, 0, (uint16_t)tag); /* it was allocated just now */
    return 0;
}

static void memory_request(load *l, uint8_t type, uint32_t chunk, uint32_t at, uint32_t bytes,
                           dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = 4;
    t->address = LOAD_ADDRESS + chunk * l->stride + at;
    (void)dxpu_be_from_range(t->address, bytes, &t->first_be, &t->last_be, &t->length_dw);
}

/* The next TLP of the write on its way; a write is split only as MPS and 4 KB force.  True when it
   left. */
static bool go_on_writing(load *l, uint64_t now)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint32_t size = (uint32_t)l->set->size, bytes;
    dxpu_tlp t;
    bytes = dxpu_request_next(LOAD_ADDRESS + l->write_chunk * l->stride + l->write_at,
                              size - l->write_at, l->device.mps_bytes);
    memory_request(l, DXPU_TLP_MWR, l->write_chunk, l->write_at, bytes, &t);
    fill_pattern(data, bytes, l->write_chunk, l->written[l->write_chunk], l->write_at);
    t.payload.ptr = data;
    t.payload.len = bytes;
    if (submit(l, &t, now, 0) != DXPU_OK)
        return false;
    l->write_at += bytes;
    l->writing = l->write_at < size;
    return true;
}

/* Begin a write; what it cannot place now go_on_writing() does later. */
static void begin_write(load *l, uint32_t chunk)
{
    l->written[chunk] = ++l->generation;
    l->write_chunk = chunk;
    l->write_at = 0;
    l->writing = true;
}

static bool read_chunk(load *l, uint32_t chunk, bool checked, uint64_t now)
{
    uint16_t index = l->free_read;
    load_read *r;
    uint64_t user;
    dxpu_tlp t;
    if (index == NO_READ)
        return false;
    r = &l->reads[index];
    memory_request(l, DXPU_TLP_MRD, chunk, 0, (uint32_t)l->set->size, &t);
    user = submit_tagged(l, &t, now, index);
    if (!user)
        return false;
    r->user = user;
    l->free_read = r->next_free;
    l->in_flight++;
    l->reading[chunk]++;
    r->started_ns = now;
    r->chunk = chunk;
    r->got_bytes = 0;
    r->checked = checked;
    return true;
}

static bool ask_device(load *l, uint64_t now)
{
    dxpu_tlp t;
    uint8_t payload[4];
    if (l->asked || !enumerate_request(&l->device, &t, payload))
        return false;
    l->asked = submit_tagged(l, &t, now, CONFIG_USER);
    return l->asked != 0;
}

/* ==== 3  Phases =============================================================================== */

void load_enter(load *l, unsigned phase, uint64_t now)
{
    l->phase = phase;
    l->cursor = 0;
    l->choice_made = false;
    if (phase == LOAD_RUNNING) {
        l->begin_ns = now;
        if (l->set->seconds)
            l->deadline_ns = now + l->set->seconds * 1000000000u - l->elapsed_ns;
    }
    if (phase == LOAD_FINISHED && !l->end_ns)
        l->end_ns = now;
}

bool load_size_memory(load *l)
{
    uint64_t span = l->set->span < l->device.bar_bytes ? l->set->span : l->device.bar_bytes;
    uint64_t chunks;
    l->stride = 4;
    while (l->stride < l->set->size)
        l->stride *= 2;
    chunks = span / l->stride;
    if (chunks < 1 || chunks > UINT32_MAX) {
        l->device.why = "its memory is smaller than one --size";
        return false;
    }
    free(l->written);
    free(l->reading);
    l->chunks = chunks;
    l->written = calloc((size_t)chunks, sizeof *l->written);
    l->reading = calloc((size_t)chunks, sizeof *l->reading);
    if (!l->written || !l->reading)
        l->device.why = "no memory here to remember what was written; lower --span";
    return l->device.why == NULL;
}

static void say_mps(load *l)
{
    if (l->device.mps_bytes < l->set->mps && !l->mps_told)
        log_info("the device takes payloads of %u bytes at most, not --mps %llu; larger "
                 "writes are split",
                 l->device.mps_bytes, (unsigned long long)l->set->mps);
    l->mps_told = true;
}

static bool do_enumerate(load *l, uint64_t now)
{
    if (l->asked || ask_device(l, now))
        return false;
    if (enumerate_done(&l->device) && load_size_memory(l)) {
        say_mps(l);
        load_enter(l, l->set->kind == LOAD_WRITE ? LOAD_RUNNING : LOAD_FILLING, now);
        return true;
    }
    if (l->device.why)
        load_enter(l, LOAD_FINISHED, now);
    return false;
}

static bool do_fill(load *l, uint64_t now)
{
    if (l->cursor == l->chunks) {
        load_enter(l, LOAD_RUNNING, now);
        return true;
    }
    begin_write(l, (uint32_t)l->cursor++);
    return true;
}

static bool run_over(const load *l, uint64_t now)
{
    return l->set->seconds ? now >= l->deadline_ns : l->issued >= l->set->count;
}

static bool do_run(load *l, uint64_t now)
{
    if (run_over(l, now)) {
        load_enter(l, LOAD_SETTLING, now);
        return true;
    }
    if (!l->choice_made) {
        uint64_t r = next_random(l);
        l->choice_chunk = (uint32_t)((r >> 8) % l->chunks);
        l->choice_write = l->set->kind == LOAD_WRITE || (l->set->kind == LOAD_MIXED && (r & 1));
        l->choice_made = true;
    }
    /* a write may pass reads before it: not to where one is in flight, or what it brings is open */
    if (l->choice_write && l->reading[l->choice_chunk])
        l->choice_write = false;
    if (l->choice_write) {
        begin_write(l, l->choice_chunk);
        l->writes_done++;
        l->bytes += l->set->size;
    } else if (!read_chunk(l, l->choice_chunk, true, now)) {
        return false;
    }
    l->choice_made = false;
    l->issued++;
    return true;
}

/* The run ends when the last read is answered and the last write is stored. */
static bool do_settle(load *l, uint64_t now)
{
    if (l->in_flight || !link_acked(l->link, now))
        return false;
    l->end_ns = now;
    l->elapsed_ns += now - l->begin_ns;
    load_enter(l, l->set->kind == LOAD_READ ? LOAD_FINISHED : LOAD_READING_BACK, now);
    return true;
}

static bool do_read_back(load *l, uint64_t now)
{
    while (l->cursor < l->chunks && !l->written[l->cursor])
        l->cursor++;
    if (l->cursor == l->chunks) {
        if (l->in_flight)
            return false;
        load_enter(l, LOAD_FINISHED, now);
        return true;
    }
    if (!read_chunk(l, (uint32_t)l->cursor, false, now))
        return false;
    l->cursor++;
    return true;
}

/* One step; false when it must wait. */
static bool step(load *l, uint64_t now)
{
    if (l->writing)
        return go_on_writing(l, now);
    switch (l->phase) {
    case LOAD_ENUMERATING:
        return do_enumerate(l, now);
    case LOAD_FILLING:
        return do_fill(l, now);
    case LOAD_RUNNING:
        return do_run(l, now);
    case LOAD_SETTLING:
        return do_settle(l, now);
    case LOAD_READING_BACK:
        return do_read_back(l, now);
    default:
        return false;
    }
}

/* ==== 4  Completions ========================================================================== */

static void end_read(load *l, uint16_t index)
{
    load_read *r = &l->reads[index];
    r->user = 0;
    l->reading[r->chunk]--;
    l->in_flight--;
    r->next_free = l->free_read;
    l->free_read = index;
}

/* An answer of the run came.  A channel that was lost and opened again is one long gap. */
static void note_answer(load *l, uint64_t now)
{
    if (l->answer_ns && now - l->answer_ns > l->gap_ns)
        l->gap_ns = now - l->answer_ns;
    l->answer_ns = now;
}

static void completion(void *self, const dxpu_tlp *cpl, uint64_t user, bool last, uint64_t now)
{
    load *l = self;
    unsigned index = user & 0xffff;
    load_read *r;
    if (!cpl)
        l->unanswered++;
    if (index == CONFIG_USER) {
        if (user == l->asked) {
            enumerate_answer(&l->device, cpl, now);
            l->asked = 0;
        }
        return;
    }
    r = &l->reads[index];
    if (r->user != user) /* a part that was stored before its request timed out */
        return;
    if (cpl && cpl->status != DXPU_CPL_SC) {
        l->unsuccessful++;
    } else if (cpl) {
        l->mismatched += !same_pattern(cpl->payload, r->chunk, l->written[r->chunk], r->got_bytes);
        r->got_bytes += (uint32_t)cpl->payload.len;
    }
    if (!last)
        return;
    if (cpl && r->got_bytes == l->set->size) {
        if (r->checked) {
            note_answer(l, now);
            histogram_add(&l->link->rtt, now - r->started_ns);
            l->reads_done++;
            l->bytes += l->set->size;
        } else {
            l->verified++;
        }
    }
    end_read(l, (uint16_t)index);
}

/* ==== 5  The source =========================================================================== */

static void start(void *self, uint64_t now)
{
    load *l = self;
    if (l->phase == LOAD_RUNNING || l->phase == LOAD_SETTLING)
        l->elapsed_ns += now - l->begin_ns; /* the time without a channel counts */
    enumerate_start(&l->device, LOAD_ADDRESS, (uint32_t)l->set->mps);
    l->asked = 0;
    l->writing = false;
    l->in_flight = 0;
    l->free_read = 0;
    for (unsigned i = 0; i < l->set->depth; i++) {
        l->reads[i].user = 0;
        l->reads[i].next_free = i + 1 < l->set->depth ? (uint16_t)(i + 1) : (uint16_t)NO_READ;
    }
    if (l->phase != LOAD_FINISHED)
        load_enter(l, LOAD_ENUMERATING, now);
}

static void work(void *self, uint64_t now)
{
    load *l = self;
    while (step(l, now))
        ;
}

static bool done(const void *self)
{
    const load *l = self;
    return l->phase == LOAD_FINISHED;
}

static uint64_t next_ns(const void *self)
{
    const load *l = self;
    return l->phase == LOAD_RUNNING && l->set->seconds ? l->deadline_ns : DXPU_NEVER;
}

static void progress(const void *self, char out[64])
{
    static const char *const names[] = { "enumerating", "filling",      "running",
                                         "settling",    "reading back", "finished" };
    const load *l = self;
    snprintf(out, 64, "%s, %llu operations", names[l->phase], (unsigned long long)l->issued);
}

static void write_report(const void *self, report *r)
{
    static const char *const kinds[] = { "none", "read", "write", "mixed" };
    const load *l = self;
    bool running =
        l->phase == LOAD_RUNNING || l->phase == LOAD_SETTLING; /* interrupted, or asked meanwhile */
    uint64_t ns = l->elapsed_ns + (running ? dxpu_udp_now_ns() - l->begin_ns : 0);
    double seconds = (double)ns / 1e9;
    report_text(r, "source", kinds[l->set->kind]);
    report_number(r, "size", l->set->size);
    report_number(r, "mps", l->device.mps_bytes);
    report_number(r, "reads", l->reads_done);
    report_number(r, "writes", l->writes_done);
    report_number(r, "read_back", l->verified);
    report_number(r, "mismatched", l->mismatched);
    report_number(r, "unsuccessful", l->unsuccessful);
    report_number(r, "unanswered", l->unanswered);
    report_real(r, "longest_gap_us", (double)l->gap_ns / 1000.0);
    report_real(r, "seconds", seconds);
    report_real(r, "operations_per_second", seconds > 0 ? (double)l->issued / seconds : 0);
    report_real(r, "megabytes_per_second", seconds > 0 ? (double)l->bytes / 1e6 / seconds : 0);
}

static void tell(char why[SOURCE_WHY_BYTES], uint64_t count, const char *what)
{
    size_t at = strlen(why);
    if (count)
        snprintf(why + at, SOURCE_WHY_BYTES - at, "%s%llu %s%s %s", at ? ", " : "",
                 (unsigned long long)count, "request", count == 1 ? "" : "s", what);
}

static bool wrong(const void *self, char why[SOURCE_WHY_BYTES])
{
    const load *l = self;
    *why = '\0';
    if (l->device.why)
        snprintf(why, SOURCE_WHY_BYTES, "the device cannot be used: %s", l->device.why);
    tell(why, l->unanswered, "got no answer");
    tell(why, l->unsuccessful, "ended with an error of the device");
    tell(why, l->mismatched, "returned other data than was written");
    tell(why, l->unsubmitted, "could not be submitted");
    return *why != '\0';
}

int load_open(load *l, host_link *link, const load_settings *set)
{
    l->link = link;
    l->set = set;
    l->random = fabric_random();
    return 0;
}

void load_close(load *l)
{
    free(l->written);
    free(l->reading);
}

source load_source(load *l)
{
    source s = { l, start, work, completion, done, next_ns, progress, write_report, wrong, NULL };
    return s;
}
