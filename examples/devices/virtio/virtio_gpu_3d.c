/* virtio_gpu_3d.c - contexts, 3D resources, command streams and fences of a virtio display adapter
   SPDX-License-Identifier: MIT

   What the driver asks for is checked here, done by the renderer (render_link.h), and answered in
   the order of the queue.  Command streams and transfers to the renderer do not hold back the
   commands behind them; all else is done one after the other.  When the renderer ends, commands on
   their way fail, and so does what uses contexts and resources of before: the driver makes others.

   CONTENTS   1 Waiting   2 Capability sets   3 Contexts   4 Resources   5 Command streams
              6 The renderer's events   7 Life */
#include "virtio_gpu_model.h"

#include <stdlib.h>

enum { CONTEXT_AT = 16 /* of a command's header */, FLAG_FENCE = 1 };

/* ==== 1  Waiting ============================================================================== */

static gpu_reply wait_for_renderer(virtio_gpu *g, gpu_reply (*again)(virtio_gpu *g, gpu_request *q))
{
    g->render.wait = GPU_WAIT_START;
    g->render.again = again;
    return GPU_LATER;
}

gpu_reply gpu_ask(virtio_gpu *g, uint32_t op, uint32_t context, uint32_t resource, int slot,
                  unsigned count, const uint32_t *words)
{
    gpu_request *q = g->current;
    if (!render_link_ask(&g->render.link, q, op, context, resource, slot, count, words)) {
        render_link_free(&g->render.link, slot);
        return GPU_UNSPECIFIED;
    }
    q->asked++;
    g->render.wait = GPU_WAIT_ANSWER;
    return GPU_LATER;
}

static gpu_reply outcome(const gpu_request *q)
{
    return q->refused ? GPU_UNSPECIFIED : GPU_OK;
}

void gpu_all_asked(virtio_gpu *g)
{
    gpu_request *q = g->current;
    g->render.wait = GPU_WAIT_NOTHING;
    if (q->answered == q->asked)
        gpu_end(g, outcome(q));
    else
        gpu_sent(g);
}

/* ==== 2  Capability sets ====================================================================== */

gpu_reply gpu_get_capset_info(virtio_gpu *g, gpu_request *q)
{
    uint32_t index = dxpu_get_le32(q->command + GPU_HEADER_BYTES);
    uint8_t *d = q->reply + GPU_HEADER_BYTES;
    const render_capset *c = &g->render.link.capset[index % RENDER_CAPSETS];
    if (index >= RENDER_CAPSETS)
        return GPU_BAD_PARAMETER;
    if (!c->bytes && !render_link_settled(&g->render.link))
        return wait_for_renderer(g, gpu_get_capset_info);
    if (!c->bytes)
        return GPU_UNSPECIFIED;
    q->reply_bytes = GPU_HEADER_BYTES + 16;
    dxpu_put_le32(d, index + 1);
    dxpu_put_le32(d + 4, c->version);
    dxpu_put_le32(d + 8, c->bytes);
    dxpu_put_le32(d + 12, 0);
    return GPU_OK_CAPSET_INFO;
}

gpu_reply gpu_get_capset(virtio_gpu *g, gpu_request *q)
{
    uint32_t id = dxpu_get_le32(q->command + GPU_HEADER_BYTES);
    render_capset *c = &g->render.link.capset[(id - 1) % RENDER_CAPSETS];
    if (!id || id > RENDER_CAPSETS)
        return GPU_BAD_PARAMETER;
    if (!c->bytes && !render_link_settled(&g->render.link))
        return wait_for_renderer(g, gpu_get_capset);
    if (!c->bytes)
        return GPU_UNSPECIFIED;
    q->body = c->data;
    q->body_bytes = c->bytes;
    return GPU_OK_CAPSET;
}

/* ==== 3  Contexts ============================================================================= */

static gpu_context *find_context(virtio_gpu *g, uint32_t id)
{
    for (unsigned i = 0; i < GPU_CONTEXTS; i++) {
        if (g->render.context[i].id == id)
            return &g->render.context[i];
    }
    return NULL;
}

static uint32_t context_in(const gpu_request *q)
{
    return dxpu_get_le32(q->command + CONTEXT_AT);
}

gpu_reply gpu_context_of(virtio_gpu *g, uint32_t id)
{
    const gpu_context *c = id ? find_context(g, id) : NULL;
    if (!c)
        return GPU_BAD_CONTEXT;
    return c->generation == g->render.link.generation ? GPU_OK : GPU_UNSPECIFIED;
}

static void context_forget(virtio_gpu *g, gpu_context *c)
{
    c->id = 0;
    g->count.contexts--;
}

gpu_reply gpu_context_create(virtio_gpu *g, gpu_request *q)
{
    uint32_t id = context_in(q);
    gpu_context *c = find_context(g, 0);
    if (!id || find_context(g, id))
        return GPU_BAD_CONTEXT;
    if (!c)
        return GPU_NO_MEMORY;
    if (!render_link_settled(&g->render.link))
        return wait_for_renderer(g, gpu_context_create);
    if (gpu_ask(g, RENDER_CONTEXT_CREATE, id, 0, -1, 0, NULL) != GPU_LATER)
        return GPU_UNSPECIFIED;
    c->id = id;
    c->generation = g->render.link.generation;
    g->count.contexts++;
    return GPU_LATER;
}

gpu_reply gpu_context_destroy(virtio_gpu *g, gpu_request *q)
{
    uint32_t id = context_in(q);
    gpu_reply how = gpu_context_of(g, id);
    if (how == GPU_BAD_CONTEXT)
        return how;
    context_forget(g, find_context(g, id));
    return how == GPU_OK ? gpu_ask(g, RENDER_CONTEXT_DESTROY, id, 0, -1, 0, NULL) : GPU_OK;
}

/* Linux's driver attaches 2D resources, too: command streams do not find them. */
static gpu_reply attach_or_detach(virtio_gpu *g, gpu_request *q, uint32_t op)
{
    const gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    gpu_reply how = gpu_context_of(g, context_in(q));
    if (how == GPU_BAD_CONTEXT)
        return how;
    if (!r)
        return GPU_BAD_RESOURCE;
    if (!r->rendered)
        return GPU_OK;
    if (how != GPU_OK || !gpu_is_rendered(g, r))
        return GPU_UNSPECIFIED;
    return gpu_ask(g, op, context_in(q), r->id, -1, 0, NULL);
}

gpu_reply gpu_context_attach(virtio_gpu *g, gpu_request *q)
{
    return attach_or_detach(g, q, RENDER_ATTACH);
}

gpu_reply gpu_context_detach(virtio_gpu *g, gpu_request *q)
{
    return attach_or_detach(g, q, RENDER_DETACH);
}

/* ==== 4  Resources ============================================================================ */

enum { /* words of RESOURCE_CREATE_3D behind the header */
       WORD_ID = 0,
       WORD_TARGET,
       WORD_FORMAT,
       WORD_BIND,
       WORD_WIDTH,
       WORD_HEIGHT,
       WORD_DEPTH,
       WORD_LAYERS,
       WORD_LEVEL,
       WORD_SAMPLES,
       WORD_FLAGS,
       WORDS,
       TARGET_2D = 2,
       TARGET_LAST = 8,
       SAMPLES_MOST = 16
};

bool gpu_is_rendered(const virtio_gpu *g, const gpu_resource *r)
{
    return r && r->rendered && r->generation == g->render.link.generation &&
           g->render.link.state == RENDER_RUNNING;
}

static uint32_t at_least_one(uint32_t n)
{
    return n ? n : 1;
}

/* What it takes, with its smaller levels; at most 2^61 for what fits. */
static uint64_t render_bytes(const uint32_t *w, gpu_block b)
{
    uint64_t blocks = (uint64_t)((w[WORD_WIDTH] + b.width - 1) / b.width) *
                      ((at_least_one(w[WORD_HEIGHT]) + b.height - 1) / b.height);
    return blocks * b.bytes * at_least_one(w[WORD_DEPTH]) * at_least_one(w[WORD_LAYERS]) *
           at_least_one(w[WORD_SAMPLES]) * (w[WORD_LEVEL] ? 2 : 1);
}

static bool sizes_fit(const uint32_t *w)
{
    bool buffer = !w[WORD_TARGET];
    uint32_t side = buffer ? GPU_RENDER_BYTES : GPU_SIDE;
    return w[WORD_TARGET] <= TARGET_LAST && w[WORD_WIDTH] && w[WORD_WIDTH] <= side &&
           w[WORD_HEIGHT] <= (buffer ? 1u : side) && w[WORD_DEPTH] <= (buffer ? 1u : GPU_LAYERS) &&
           w[WORD_LAYERS] <= (buffer ? 1u : GPU_LAYERS) &&
           w[WORD_LEVEL] < (buffer ? 1u : GPU_LEVELS) && w[WORD_SAMPLES] <= SAMPLES_MOST;
}

static gpu_resource *make_resource(const uint32_t *w, gpu_block b)
{
    gpu_resource *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->id = w[WORD_ID];
    r->rendered = true;
    r->width = w[WORD_WIDTH];
    r->height = at_least_one(w[WORD_HEIGHT]);
    r->depth = at_least_one(w[WORD_DEPTH]);
    r->layers = at_least_one(w[WORD_LAYERS]);
    r->levels = w[WORD_LEVEL] + 1;
    r->samples = w[WORD_SAMPLES];
    r->target = w[WORD_TARGET];
    r->bind = w[WORD_BIND];
    r->block = b;
    r->render_bytes = render_bytes(w, b);
    if (r->target == TARGET_2D && r->levels == 1)
        r->format = gpu_format_of(w[WORD_FORMAT]);
    return r;
}

gpu_reply gpu_create_3d(virtio_gpu *g, gpu_request *q)
{
    uint32_t w[WORDS];
    gpu_block b;
    gpu_resource *r;
    for (unsigned i = 0; i < WORDS; i++)
        w[i] = dxpu_get_le32(q->command + GPU_HEADER_BYTES + (size_t)i * 4);
    b = w[WORD_TARGET] ? gpu_block_of(w[WORD_FORMAT]) : (gpu_block){ 1, 1, 1 };
    if (!w[WORD_ID] || gpu_find(g, w[WORD_ID]))
        return GPU_BAD_RESOURCE;
    if (!b.bytes || !sizes_fit(w))
        return GPU_BAD_PARAMETER;
    if (!gpu_table_room(g, w[WORD_ID]) || render_bytes(w, b) > GPU_RENDER_BYTES ||
        g->render.bytes + render_bytes(w, b) > GPU_ALL_RENDER_BYTES)
        return GPU_NO_MEMORY;
    if (!render_link_settled(&g->render.link))
        return wait_for_renderer(g, gpu_create_3d);
    r = make_resource(w, b);
    if (!r)
        return GPU_NO_MEMORY;
    if (gpu_ask(g, RENDER_RESOURCE_CREATE, 0, r->id, -1, WORDS - 1, w + 1) != GPU_LATER) {
        free(r);
        return GPU_UNSPECIFIED;
    }
    r->generation = g->render.link.generation;
    gpu_table_add(g, r);
    return GPU_LATER;
}

gpu_reply gpu_unref_3d(virtio_gpu *g, const gpu_resource *r)
{
    if (!gpu_is_rendered(g, r))
        return GPU_OK;
    return gpu_ask(g, RENDER_RESOURCE_DESTROY, 0, r->id, -1, 0, NULL);
}

/* ==== 5  Command streams ====================================================================== */

enum { STREAM_AT = GPU_HEADER_BYTES + 8, STREAM_FLAGS_AT = 4 };

/* Commands that make the renderer move the driver's memory by itself, or name memory that is not
   offered; all beyond the last one that is known. */
static bool is_refused(uint32_t command)
{
    return (command >= 43 && command <= 45) || /* TRANSFER3D, END_TRANSFERS, COPY_TRANSFER3D */
           (command >= 48 && command <= 50) || /* PIPE_RESOURCE_*, GET_MEMORY_INFO */
           command > 52;                       /* behind LINK_SHADER: video, and later ones */
}

static bool stream_fits(const uint8_t *stream, uint32_t bytes)
{
    uint32_t words = bytes / 4;
    for (uint32_t i = 0; i < words;) {
        uint32_t head = dxpu_get_le32(stream + (size_t)i * 4), more = head >> 16;
        if (is_refused(head & 0xff) || more > words - i - 1)
            return false;
        i += 1 + more;
    }
    return true;
}

/* The stream is in its slot. */
static void stream_there(virtio_gpu *g)
{
    gpu_render *n = &g->render;
    const gpu_request *q = g->current;
    const uint32_t words[] = { (uint32_t)n->slot, n->stream_bytes,
                               dxpu_get_le32(q->command + STREAM_FLAGS_AT) & FLAG_FENCE };
    int slot = n->slot;
    gpu_reply how = GPU_UNSPECIFIED;
    n->slot = -1;
    if (q->r.failed || !stream_fits(render_link_at(&n->link, slot), n->stream_bytes)) {
        how = q->r.failed ? GPU_UNSPECIFIED : GPU_BAD_PARAMETER;
        render_link_free(&n->link, slot);
    } else {
        how = gpu_ask(g, RENDER_SUBMIT, context_in(q), 0, slot, 3, words);
    }
    n->wait = GPU_WAIT_NOTHING;
    if (how != GPU_LATER) {
        gpu_end(g, how);
        return;
    }
    g->count.streams++;
    g->count.stream_bytes += n->stream_bytes;
    gpu_all_asked(g);
}

static void stream_fetched(virtio *v, virtio_request *r)
{
    (void)r;
    stream_there((virtio_gpu *)v);
}

/* False: no slot is free. */
static bool stream_begin(virtio_gpu *g)
{
    gpu_render *n = &g->render;
    gpu_request *q = g->current;
    uint32_t here = q->bytes - STREAM_AT;
    n->slot = render_link_slot(&n->link);
    if (n->slot < 0)
        return false;
    here = here < n->stream_bytes ? here : n->stream_bytes;
    memcpy(render_link_at(&n->link, n->slot), q->command + STREAM_AT, here);
    n->wait = GPU_WAIT_MEMORY;
    if (here == n->stream_bytes)
        stream_there(g);
    else
        virtio_read(&g->v, &q->r, render_link_at(&n->link, n->slot) + here, n->stream_bytes - here,
                    stream_fetched);
    return true;
}

/* One without commands is a fence. */
gpu_reply gpu_submit(virtio_gpu *g, gpu_request *q)
{
    uint32_t bytes = dxpu_get_le32(q->command + GPU_HEADER_BYTES);
    gpu_reply how = gpu_context_of(g, context_in(q));
    if (how != GPU_OK || !bytes)
        return how;
    if (bytes % 4 || bytes > RENDER_SLOT_BYTES ||
        bytes > q->bytes - STREAM_AT + q->r.readable_bytes)
        return GPU_BAD_PARAMETER;
    g->render.stream_bytes = bytes;
    if (!stream_begin(g))
        g->render.wait = GPU_WAIT_SLOT;
    return GPU_LATER;
}

/* ==== 6  The renderer's events ================================================================ */

/* What the current command made is not there after all. */
static void undo(virtio_gpu *g, const gpu_request *q)
{
    uint32_t type = dxpu_get_le32(q->command);
    gpu_context *c = find_context(g, context_in(q));
    gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    if (type == 0x0200 && c)
        context_forget(g, c);
    if (type == 0x0204 && r)
        gpu_table_remove(g, r);
}

static void on_done(void *user, void *owner, int slot, bool good)
{
    virtio_gpu *g = user;
    gpu_request *q = owner;
    if (q) {
        q->answered++;
        q->refused |= !good;
    }
    if (q && q == g->current && g->render.wait == GPU_WAIT_ANSWER && g->render.move.resource) {
        gpu_move_answered(g, slot, good);
        return;
    }
    render_link_free(&g->render.link, slot);
    if (!q || q->answered < q->asked)
        return;
    if (q != g->current) {
        q->over = true;
        q->how = outcome(q);
        gpu_answer(g);
    } else if (g->render.wait == GPU_WAIT_ANSWER) {
        g->render.wait = GPU_WAIT_NOTHING;
        if (!good)
            undo(g, q);
        gpu_end(g, outcome(q));
    }
}

void gpu_drop_result(virtio_gpu *g, gpu_resource *r)
{
    gpu_resource **at = &g->render.results;
    if (!r->has_result)
        return;
    while (*at != r)
        at = &(*at)->next_result;
    *at = r->next_result;
    r->has_result = false;
}

/* Where the driver has taken its memory back it is lost. */
static void write_result(virtio_gpu *g, const gpu_resource *r)
{
    uint32_t at = 0;
    if (!r->backing || r->backing_bytes < RENDER_RESULT_BYTES || !virtio_running(&g->v) ||
        !fn_masters(&g->v.fn))
        return;
    for (const fn_range *p = r->backing; at < RENDER_RESULT_BYTES; p++) {
        uint32_t bytes = RENDER_RESULT_BYTES - at;
        bytes = bytes < p->bytes ? bytes : p->bytes;
        fn_write(&g->v.fn, p->address, r->result + at, bytes);
        at += bytes;
    }
}

/* True when any was written, or was not needed. */
static bool write_results(virtio_gpu *g)
{
    bool any = false;
    while (g->render.results && fn_room(&g->v.fn)) {
        gpu_resource *r = g->render.results;
        gpu_drop_result(g, r);
        write_result(g, r);
        any = true;
    }
    if (any)
        gpu_answer(g);
    return any;
}

/* A renderer sends any number of them: of each resource the last one is kept until there is room to
   write it. */
static void on_result(void *user, uint32_t resource, const uint8_t *result)
{
    virtio_gpu *g = user;
    gpu_resource *r = gpu_find(g, resource);
    if (!gpu_is_rendered(g, r) || r->target || r->bind != RENDER_BIND_CUSTOM ||
        r->width < RENDER_RESULT_BYTES)
        return;
    memcpy(r->result, result, RENDER_RESULT_BYTES);
    if (r->has_result)
        return;
    r->has_result = true;
    r->next_result = g->render.results;
    g->render.results = r;
}

static void on_lost(void *user)
{
    virtio_gpu *g = user;
    gpu_request *q = g->current;
    for (virtio_request *r = g->render.sent.head; r; r = r->next) {
        gpu_request *s = (gpu_request *)r;
        s->how = s->over ? s->how : GPU_UNSPECIFIED;
        s->over = true;
    }
    gpu_answer(g);
    if (!q || g->render.wait == GPU_WAIT_NOTHING || g->render.wait == GPU_WAIT_START)
        return;
    fn_fetch_cancel(&g->v.fn, &q->r.fetch); /* to a slot */
    gpu_cancel(g);
    undo(g, q);
    gpu_end(g, GPU_UNSPECIFIED);
}

static const render_events events = { on_done, on_result, on_lost };

/* ==== 7  Life ================================================================================= */

int gpu_render_open(virtio_gpu *g, int launcher)
{
    g->render.slot = g->render.move.slot = -1;
    return render_link_open(&g->render.link, launcher, &events, g);
}

bool gpu_render_work(virtio_gpu *g)
{
    gpu_render *n = &g->render;
    bool any = write_results(g);
    gpu_reply how;
    if (!g->current)
        return any;
    if (n->wait == GPU_WAIT_START) {
        if (!render_link_settled(&n->link))
            return any;
        n->wait = GPU_WAIT_NOTHING;
        how = n->again(g, g->current);
        if (how != GPU_LATER)
            gpu_end(g, how);
        return true;
    }
    if (n->move.resource)
        return gpu_move_work(g) || any;
    return (n->wait == GPU_WAIT_SLOT && stream_begin(g)) || any;
}

void gpu_render_cancel(virtio_gpu *g)
{
    gpu_render *n = &g->render;
    render_link_free(&n->link, n->slot);
    n->slot = -1;
    gpu_move_stop(g);
    n->wait = GPU_WAIT_NOTHING;
}

void gpu_render_forget(virtio_gpu *g)
{
    memset(g->render.context, 0, sizeof g->render.context);
    g->count.contexts = 0;
    render_link_renew(&g->render.link);
}
