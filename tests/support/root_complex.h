/* root_complex.h - for tests of device models: host memory and the root of a bus, with its checks
   SPDX-License-Identifier: MIT

   Include after dxpu.h's implementation and cmocka, with _GNU_SOURCE.  Whatever the device emits is
   decoded strictly.  An `rc` is for bus masters: their requests are held to the sizes that software
   programmed; completions for them are cut and reordered by a seeded dice.  An `endpoint` is for
   devices that only answer: each request's answers are looked at one by one.

   CONTENTS   1 Memory and queues   2 What the device emits   3 Requests to it   4 Life
              5 Devices that only answer */
#ifndef ROOT_COMPLEX_H_INCLUDED
#define ROOT_COMPLEX_H_INCLUDED

#include "device.h"
#include "pages.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifndef RC_MEM_BYTES
#define RC_MEM_BYTES (16 << 20)
#endif
enum { MEM_BYTES = RC_MEM_BYTES, RC_VECTORS = 128, RC_GUARD_BYTES = 64 << 10 };
#define MEM_LOW  0x40000000u  /* host memory, below 4 GB ... */
#define MEM_HIGH 0x900000000u /* ... and the same above */
#define MSI_BASE 0xfee00000u

/* ==== 1  Memory and queues ==================================================================== */

typedef struct tlp_copy {
    struct tlp_copy *next;
    size_t len;
    uint8_t bytes[];
} tlp_copy;

typedef struct tlp_fifo {
    tlp_copy *head, **tail;
    unsigned count;
} tlp_fifo;

typedef struct rc {
    uint8_t *mem;
    const device_kind *kind;
    void *dev;
    device_port port;
    uint16_t bdf;
    tlp_fifo from;         /* emitted, not yet looked at */
    tlp_fifo answers[256]; /* completions to be given to the device, by tag */
    unsigned answers_waiting;
    bool in_flight[256];
    bool hold;         /* read requests are kept unanswered */
    bool whole_dwords; /* writes never carry a part of one */
    bool foreign;      /* nothing is checked: the device is being fuzzed */
    uint8_t status;    /* of answers */
    bool poison;
    bool closed; /* port.waiting says that nothing leaves */
    uint64_t seed;
    uint32_t mps, mrrs;
    unsigned last_tag;  /* of the latest read request */
    unsigned errors[3]; /* messages: ERR_COR, ERR_NONFATAL, ERR_FATAL */
    unsigned reads, writes, most_in_flight, msi_count[RC_VECTORS];
    uint32_t msi_last;
    dxpu_tlp cpl; /* the last completion for the root complex, and its data so far */
    uint8_t data[4096];
    unsigned data_len, cpl_count;
    bool cpl_done;
    void (*message)(struct rc *r, const dxpu_tlp *t);   /* one with data; NULL: none is expected */
    void (*ahead)(struct rc *r, const dxpu_tlp *write); /* of each write to the device; or NULL */
} rc;

static inline uint32_t rnd(rc *r)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->seed >> 33);
}

static inline void fifo_put(tlp_fifo *f, dxpu_bytes b)
{
    tlp_copy *c = malloc(sizeof *c + b.len);
    assert_non_null(c);
    c->next = NULL;
    c->len = b.len;
    memcpy(c->bytes, b.ptr, b.len);
    if (!f->head)
        f->tail = &f->head;
    *f->tail = c;
    f->tail = &c->next;
    f->count++;
}

static inline tlp_copy *fifo_get(tlp_fifo *f)
{
    tlp_copy *c = f->head;
    if (c) {
        f->head = c->next;
        f->count--;
    }
    return c;
}

static inline void fifo_clear(tlp_fifo *f)
{
    tlp_copy *c;
    while ((c = fifo_get(f)) != NULL)
        free(c);
}

/* ==== 2  What the device emits ================================================================ */

static inline void rc_emitted(void *user, dxpu_bytes tlp)
{
    rc *r = user;
    fifo_put(&r->from, tlp);
}

static inline unsigned rc_waiting(void *user)
{
    const rc *r = user;
    return r->closed ? 1000000 : 0;
}

/* Give a TLP to the device, decoded from its bytes as a box does. */
static inline void rc_give(rc *r, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes b = { bytes, 0 };
    dxpu_tlp back;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &b.len), DXPU_OK);
    assert_int_equal(dxpu_tlp_decode(b, &back), DXPU_OK);
    r->kind->tlp(r->dev, &back, b);
}

/* Where an address of the host is, NULL for none. */
static inline uint8_t *rc_mem(rc *r, uint64_t address, uint32_t len)
{
    uint64_t at = address >= MEM_HIGH ? address - MEM_HIGH : address - MEM_LOW;
    return at < MEM_BYTES && len <= MEM_BYTES - at ? r->mem + at : NULL;
}

static inline void rc_store(uint8_t *to, const dxpu_tlp *t)
{
    uint32_t bytes = t->length_dw * 4u;
    for (uint32_t i = 0; i < bytes; i = i == 3 && bytes > 8 ? bytes - 4 : i + 1) {
        uint8_t be = i < 4 ? t->first_be : t->last_be;
        if (be >> i % 4 & 1)
            to[i] = t->payload.ptr[i];
    }
    if (bytes > 8)
        memcpy(to + 4, t->payload.ptr + 4, bytes - 8);
}

static inline void rc_write(rc *r, const dxpu_tlp *t)
{
    uint8_t *to = rc_mem(r, t->address, t->length_dw * 4u);
    r->writes++;
    if (r->foreign)
        return;
    assert_int_equal(t->requester, r->bdf);
    assert_true(t->length_dw * 4u <= r->mps);
    if (r->whole_dwords)
        assert_int_equal(t->first_be, 0xf);
    if ((t->address & 0xfff00000u) == MSI_BASE && t->address < MEM_HIGH) {
        assert_int_equal(t->length_dw, 1);
        assert_int_equal(t->first_be, 0xf);
        r->msi_last = t->payload.ptr[0];
        assert_true(r->msi_last < RC_VECTORS);
        r->msi_count[r->msi_last]++;
        return;
    }
    assert_non_null(to);
    rc_store(to, t);
}

static inline void rc_queue_answer(rc *r, unsigned tag, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes b = { bytes, 0 };
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &b.len), DXPU_OK);
    fifo_put(&r->answers[tag], b);
    r->answers_waiting++;
}

/* Queue the answers of one memory read, cut at 64-byte boundaries as the dice say. */
static inline void rc_read(rc *r, const dxpu_tlp *t)
{
    const uint8_t *from = rc_mem(r, t->address, t->length_dw * 4u);
    uint32_t left, skip, in_flight = 0;
    uint64_t at;
    dxpu_tlp cpl;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &skip, &left);
    at = t->address + skip;
    r->reads++;
    if (!r->foreign) {
        assert_int_equal(t->requester, r->bdf);
        assert_true(t->length_dw * 4u <= r->mrrs);
        assert_false(r->in_flight[t->tag]);
    }
    if (t->tag > 255)
        fail();
    r->in_flight[t->tag] = true;
    r->last_tag = t->tag;
    for (unsigned i = 0; i < 256; i++)
        in_flight += r->in_flight[i];
    r->most_in_flight = in_flight > r->most_in_flight ? in_flight : r->most_in_flight;
    if (r->status != DXPU_CPL_SC || !from) {
        dxpu_tlp_completion(t, 0, r->status ? r->status : DXPU_CPL_UR, &cpl);
        rc_queue_answer(r, t->tag, &cpl);
        return;
    }
    dxpu_tlp_completion(t, 0, DXPU_CPL_SC, &cpl);
    while (left) {
        uint32_t part = left, room = 64 * (1 + rnd(r) % 8) - (uint32_t)(at & 63);
        uint64_t start = at & ~(uint64_t)3;
        if (room > r->mps - (at & 63)) /* to the last boundary that the payload allows */
            room = r->mps - (uint32_t)(at & 63);
        part = part < room ? part : room;
        cpl.byte_count = (uint16_t)left;
        cpl.lower_addr = (uint8_t)(at & 0x7f);
        cpl.length_dw = (uint16_t)((at + part - start + 3) / 4);
        cpl.ep = r->poison;
        cpl.payload.ptr = from + (start - t->address);
        cpl.payload.len = cpl.length_dw * 4u;
        rc_queue_answer(r, t->tag, &cpl);
        at += part;
        left -= part;
    }
}

static inline void rc_completion(rc *r, const dxpu_tlp *t)
{
    r->cpl = *t;
    r->cpl.payload.ptr = NULL;
    r->cpl_count++;
    if (r->foreign) {
        r->cpl_done = true;
        return;
    }
    assert_true(t->payload.len <= r->mps);
    assert_true(r->data_len + t->payload.len <= sizeof r->data);
    memcpy(r->data + r->data_len, t->payload.ptr ? t->payload.ptr : r->data, t->payload.len);
    r->data_len += (unsigned)t->payload.len;
    r->cpl_done = !t->length_dw || t->byte_count <= t->length_dw * 4u - (t->lower_addr & 3);
}

static void rc_message(rc *r, const dxpu_tlp *t)
{
    static const uint8_t kind[] = { 0, 1, 3, 2 }; /* of codes 0x30, 0x31, 0x33 */
    assert_true(t->message_code >= 0x30 && t->message_code <= 0x33 && t->message_code != 0x32);
    assert_int_equal(t->message_routing, DXPU_MSG_TO_ROOT);
    if (!r->foreign)
        assert_int_equal(t->requester, r->bdf);
    r->errors[kind[t->message_code - 0x30]]++;
}

/* Look at what the device emitted.  The completions it is owed are only queued. */
static inline void rc_look(rc *r)
{
    tlp_copy *c;
    while ((c = fifo_get(&r->from)) != NULL) {
        dxpu_bytes b = { c->bytes, c->len };
        dxpu_tlp t;
        assert_int_equal(dxpu_tlp_decode(b, &t), DXPU_OK);
        if (t.type == DXPU_TLP_MWR)
            rc_write(r, &t);
        else if (t.type == DXPU_TLP_MRD)
            rc_read(r, &t);
        else if (t.type >= DXPU_TLP_CPL && t.type <= DXPU_TLP_CPLDLK)
            rc_completion(r, &t);
        else if (t.type == DXPU_TLP_MSG)
            rc_message(r, &t);
        else if (t.type == DXPU_TLP_MSGD && r->message)
            r->message(r, &t);
        else
            fail();
        free(c);
    }
}

/* One completion of this tag. */
static inline void rc_answer_tag(rc *r, unsigned tag)
{
    tlp_copy *c;
    dxpu_bytes b;
    dxpu_tlp t;
    c = fifo_get(&r->answers[tag]);
    r->answers_waiting--;
    if (!r->answers[tag].head)
        r->in_flight[tag] = false;
    b.ptr = c->bytes;
    b.len = c->len;
    assert_int_equal(dxpu_tlp_decode(b, &t), DXPU_OK);
    r->kind->tlp(r->dev, &t, b);
    free(c);
}

/* One completion of a tag chosen by the dice, in order within the tag. */
static inline bool rc_answer_one(rc *r)
{
    unsigned tag = rnd(r) % 256;
    if (!r->answers_waiting)
        return false;
    while (!r->answers[tag].head)
        tag = (tag + 1) % 256;
    rc_answer_tag(r, tag);
    return true;
}

/* Until the device has nothing more to say. */
static inline void rc_run(rc *r)
{
    do
        rc_look(r);
    while (!r->hold && rc_answer_one(r));
    rc_look(r);
}

/* ==== 3  Requests to it ======================================================================= */

static inline dxpu_tlp rc_request(const rc *r, uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = address >> 32 ? 4 : 3;
    t.address = address & ~(uint64_t)3;
    t.target = r->bdf;
    assert_int_equal(dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw),
                     DXPU_OK);
    return t;
}

/* Send a non-posted request and wait for its completion; its status. */
static inline uint8_t rc_ask(rc *r, const dxpu_tlp *t)
{
    r->data_len = r->cpl_count = 0;
    r->cpl_done = false;
    rc_give(r, t);
    rc_look(r);
    assert_true(r->cpl_done);
    return r->cpl.status;
}

static inline dxpu_tlp cfg_tlp(const rc *r, uint8_t type, unsigned reg)
{
    dxpu_tlp t = rc_request(r, type, 0, 4);
    t.register_bytes = (uint16_t)(reg & ~3u);
    t.header_dw = 3;
    return t;
}

static inline uint32_t cfg_read(rc *r, unsigned reg)
{
    dxpu_tlp t = cfg_tlp(r, DXPU_TLP_CFGRD0, reg);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_SC);
    assert_int_equal(r->data_len, 4);
    return dxpu_get_le32(r->data);
}

static inline void cfg_write_be(rc *r, unsigned reg, uint32_t value, uint8_t be)
{
    dxpu_tlp t = cfg_tlp(r, DXPU_TLP_CFGWR0, reg);
    uint8_t bytes[4];
    dxpu_put_le32(bytes, value);
    t.first_be = be;
    t.payload.ptr = bytes;
    t.payload.len = 4;
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_SC);
}

static inline void cfg_write(rc *r, unsigned reg, uint32_t value)
{
    cfg_write_be(r, reg, value, 0xf);
}

static inline uint8_t mmio_read_status(rc *r, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t = rc_request(r, DXPU_TLP_MRD, address, bytes);
    return rc_ask(r, &t);
}

static inline void mmio_write(rc *r, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    dxpu_tlp t = rc_request(r, DXPU_TLP_MWR, address, bytes);
    uint8_t shifted[64] = { 0 };
    memcpy(shifted + (address & 3), data, bytes);
    t.payload.ptr = shifted;
    t.payload.len = t.length_dw * 4u;
    if (r->ahead)
        r->ahead(r, &t);
    rc_give(r, &t);
    rc_look(r);
}

/* ==== 4  Life ================================================================================= */

/* Zeroed, with what must not be touched behind it.  A large block of the heap has sanitizers write
   2 MB of their own at its end, which took longer than most tests. */
static inline uint8_t *rc_mem_open(void)
{
    void *at = mmap(NULL, MEM_BYTES + RC_GUARD_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect((uint8_t *)at + MEM_BYTES, RC_GUARD_BYTES, PROT_NONE), 0);
    return at;
}

/* Whole pages of it are 0 again. */
static inline void rc_mem_zero(rc *r, size_t at, size_t bytes)
{
    assert_int_equal(madvise(r->mem + at, bytes, MADV_DONTNEED), 0);
}

/* A device of this kind, with the link up. */
static inline void rc_open(rc *r, const device_kind *kind, const device_settings *set, uint16_t bdf)
{
    memset(r, 0, sizeof *r);
    r->mem = rc_mem_open();
    r->kind = kind;
    r->bdf = bdf;
    r->seed = 12345;
    r->mps = 128;
    r->mrrs = 512;
    r->port.user = r;
    r->port.emit = rc_emitted;
    r->port.waiting = rc_waiting;
    r->dev = kind->create(set, &r->port);
    assert_non_null(r->dev);
}

/* Whatever was on its way is lost. */
static inline void rc_forget(rc *r)
{
    fifo_clear(&r->from);
    for (unsigned i = 0; i < 256; i++)
        fifo_clear(&r->answers[i]);
    memset(r->in_flight, 0, sizeof r->in_flight);
    r->answers_waiting = 0;
}

static inline void rc_close(rc *r)
{
    rc_forget(r);
    r->kind->destroy(r->dev);
    (void)munmap(r->mem, MEM_BYTES + RC_GUARD_BYTES);
}

/* -- Jobs that the test runs, takes back and frees itself -- */

static inline void rc_job_keep(void *user, job *j)
{
    jobs_queue *kept = user;
    j->next = NULL;
    *kept->tail = j;
    kept->tail = &j->next;
}

static inline job *rc_job_none(void *user)
{
    (void)user;
    return NULL;
}

static inline void rc_job_settle(void *user)
{
    (void)user;
}

static inline jobs rc_jobs_later(jobs_queue *kept)
{
    jobs later = { kept, rc_job_keep, rc_job_none, NULL, rc_job_settle };
    kept->head = NULL;
    kept->tail = &kept->head;
    return later;
}

/* How many there were; they are run now. */
static inline unsigned rc_jobs_run(jobs_queue *kept)
{
    unsigned count = 0;
    while (kept->head) {
        job *j = kept->head;
        kept->head = j->next;
        j->run(j);
        if (!pages_given_back(j))
            free(j);
        count++;
    }
    kept->tail = &kept->head;
    return count;
}

/* ==== 5  Devices that only answer ============================================================= */

enum { EP_ANSWERS = 80, EP_BDF = DXPU_BDF(5, 3, 0) };

typedef struct endpoint {
    const device_kind *kind;
    void *dev;
    device_port port;
    unsigned answers; /* of the last request, decoded */
    dxpu_tlp answer[EP_ANSWERS];
    uint8_t raw[EP_ANSWERS][DXPU_TLP_MAX_BYTES];
} endpoint;

static inline void ep_emitted(void *user, dxpu_bytes tlp)
{
    endpoint *e = user;
    dxpu_bytes copy;
    assert_in_range(e->answers, 0, EP_ANSWERS - 1);
    copy.ptr = e->raw[e->answers];
    copy.len = tlp.len;
    memcpy(e->raw[e->answers], tlp.ptr, tlp.len);
    assert_int_equal(dxpu_tlp_decode(copy, &e->answer[e->answers]), DXPU_OK);
    e->answers++;
}

/* False: out of memory. */
static inline bool ep_open(endpoint *e, const device_kind *kind, const device_settings *set)
{
    e->kind = kind;
    e->answers = 0;
    e->port.user = e;
    e->port.emit = ep_emitted;
    e->dev = kind->create(set, &e->port);
    return e->dev != NULL;
}

static inline void ep_close(endpoint *e)
{
    e->kind->destroy(e->dev);
}

/* Encode and give one request to the device; its answers are counted from 0 again. */
static inline void ep_give(endpoint *e, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp decoded;
    e->answers = 0;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    assert_int_equal(dxpu_tlp_decode(tlp, &decoded), DXPU_OK);
    e->kind->tlp(e->dev, &decoded, tlp);
}

/* A configuration request; of a write the caller adds the payload. */
static inline dxpu_tlp ep_config(uint8_t type, unsigned offset, uint8_t be)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.tag = 7;
    t.target = EP_BDF;
    t.first_be = be;
    t.register_bytes = (uint16_t)offset;
    return t;
}

static inline void ep_config_put(endpoint *e, unsigned offset, uint8_t be, uint32_t value)
{
    dxpu_tlp t = ep_config(DXPU_TLP_CFGWR0, offset, be);
    uint8_t data[4];
    dxpu_put_le32(data, value);
    t.payload.ptr = data;
    t.payload.len = 4;
    ep_give(e, &t);
    assert_int_equal(e->answers, 1);
    assert_int_equal(e->answer[0].type, DXPU_TLP_CPL);
    assert_int_equal(e->answer[0].status, DXPU_CPL_SC);
}

static inline uint32_t ep_config_get(endpoint *e, unsigned offset)
{
    dxpu_tlp t = ep_config(DXPU_TLP_CFGRD0, offset, 15);
    ep_give(e, &t);
    assert_int_equal(e->answers, 1);
    assert_int_equal(e->answer[0].type, DXPU_TLP_CPLD);
    return dxpu_get_le32(e->answer[0].payload.ptr);
}

#endif /* ROOT_COMPLEX_H_INCLUDED */
