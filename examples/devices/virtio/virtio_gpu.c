/* virtio_gpu.c - see virtio_gpu.h
   SPDX-License-Identifier: MIT

   Commands are read as soon as they are available, and done one after the other in the order of
   their queue.  A command that needs more of the driver's memory is `current` until it has it; the
   cursor does not wait for it.

   CONTENTS   1 Rectangles   2 Replies   3 Commands   4 Requests   5 Kind */
#include "virtio_gpu_model.h"

#include <stdlib.h>

enum { /* of the device's configuration */
       CONFIG_SCANOUTS = 8,
       CONFIG_CAPSETS = 12,
       CONFIG_BYTES = 16
};

enum { FLAG_FENCE = 1 };

static virtio_gpu *gpu_of(virtio *v)
{
    return (virtio_gpu *)v;
}

static gpu_request *request_of(virtio_request *r)
{
    return (gpu_request *)r;
}

/* ==== 1  Rectangles =========================================================================== */

gpu_rect gpu_rect_at(const uint8_t *p)
{
    gpu_rect r = { dxpu_get_le32(p), dxpu_get_le32(p + 4), dxpu_get_le32(p + 8),
                   dxpu_get_le32(p + 12) };
    return r;
}

bool gpu_rect_fits(const gpu_rect *r, uint32_t width, uint32_t height)
{
    return r->x <= width && r->width <= width - r->x && r->y <= height &&
           r->height <= height - r->y;
}

/* ==== 2  Replies ============================================================================== */

static void answered(virtio_gpu *g, virtio_request *r)
{
    virtio_finish(r, 0);
    if (g->render.answering != request_of(r))
        return;
    g->render.answering = NULL;
    gpu_answer(g);
}

static void body_sent(virtio *v, virtio_request *r)
{
    answered(gpu_of(v), r);
}

static void reply_sent(virtio *v, virtio_request *r)
{
    gpu_request *q = request_of(r);
    uint64_t room = r->writable_bytes;
    uint32_t bytes = room < q->body_bytes ? (uint32_t)room : q->body_bytes;
    if (q->body && bytes)
        virtio_write(v, r, q->body, bytes, body_sent);
    else
        answered(gpu_of(v), r);
}

/* As much of it as there is room for: cursor commands of Linux's driver have none. */
static void reply(virtio_gpu *g, gpu_request *q, gpu_reply how)
{
    uint64_t room = q->r.writable_bytes;
    uint32_t bytes = room < q->reply_bytes ? (uint32_t)room : q->reply_bytes;
    memset(q->reply, 0, GPU_HEADER_BYTES);
    dxpu_put_le32(q->reply, how);
    if (q->bytes >= GPU_HEADER_BYTES && (dxpu_get_le32(q->command + 4) & FLAG_FENCE)) {
        dxpu_put_le32(q->reply + 4, FLAG_FENCE);
        memcpy(q->reply + 8, q->command + 8, 12); /* fence and context */
    }
    g->count.commands++;
    g->count.commands_failed += how >= GPU_UNSPECIFIED;
    if (bytes)
        virtio_write(&g->v, &q->r, q->reply, bytes, reply_sent);
    else
        virtio_finish(&q->r, 0);
}

/* A fence says that all before it is done, too: so the queue's commands are answered in order, and
   behind results. */
void gpu_answer(virtio_gpu *g)
{
    virtio_list *l = &g->render.sent;
    while (l->head && request_of(l->head)->over && !g->render.answering && !g->render.results) {
        gpu_request *q = request_of(virtio_list_take(l));
        /* a body goes after the reply: others would overtake it in between */
        if (q->body && q->r.writable_bytes)
            g->render.answering = q;
        reply(g, q, q->how);
    }
}

void gpu_sent(virtio_gpu *g)
{
    gpu_request *q = g->current;
    g->current = NULL;
    virtio_list_append(&g->render.sent, &q->r);
}

void gpu_end(virtio_gpu *g, gpu_reply how)
{
    gpu_request *q = g->current;
    q->over = true;
    q->how = how;
    gpu_sent(g);
    gpu_answer(g);
}

/* ==== 3  Commands ============================================================================= */

typedef struct command {
    uint32_t type;
    uint32_t bytes;   /* with the header, at least */
    uint32_t feature; /* that it needs; 0: none */
    gpu_reply (*run)(virtio_gpu *g, gpu_request *q);
} command;

static const command controls[] = { { 0x0100, 24, 0, gpu_display_info },
                                    { 0x0101, 40, 0, gpu_create },
                                    { 0x0102, 32, 0, gpu_unref },
                                    { 0x0103, 48, 0, gpu_set_scanout },
                                    { 0x0104, 48, 0, gpu_flush },
                                    { 0x0105, 56, 0, gpu_transfer_begin },
                                    { 0x0106, 32, 0, gpu_attach },
                                    { 0x0107, 32, 0, gpu_detach },
                                    { 0x0108, 32, GPU_F_VIRGL, gpu_get_capset_info },
                                    { 0x0109, 32, GPU_F_VIRGL, gpu_get_capset },
                                    { 0x010a, 32, GPU_F_EDID, gpu_get_edid },
                                    { 0x0200, 96, GPU_F_VIRGL, gpu_context_create },
                                    { 0x0201, 24, GPU_F_VIRGL, gpu_context_destroy },
                                    { 0x0202, 32, GPU_F_VIRGL, gpu_context_attach },
                                    { 0x0203, 32, GPU_F_VIRGL, gpu_context_detach },
                                    { 0x0204, 72, GPU_F_VIRGL, gpu_create_3d },
                                    { 0x0205, 72, GPU_F_VIRGL, gpu_move_to_host },
                                    { 0x0206, 72, GPU_F_VIRGL, gpu_move_from_host },
                                    { 0x0207, 32, GPU_F_VIRGL, gpu_submit } };
static const command cursors[] = { { 0x0300, 56, 0, gpu_cursor_update },
                                   { 0x0301, 56, 0, gpu_cursor_move } };
enum {
    CONTROLS = sizeof controls / sizeof controls[0],
    CURSORS = sizeof cursors / sizeof cursors[0]
};

static gpu_reply run(virtio_gpu *g, gpu_request *q, const command *list, unsigned count)
{
    uint32_t type = q->bytes >= 4 ? dxpu_get_le32(q->command) : 0;
    q->reply_bytes = GPU_HEADER_BYTES;
    if (q->r.failed)
        return GPU_UNSPECIFIED;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].type != type || (list[i].feature & ~g->v.accepted))
            continue;
        return q->bytes < list[i].bytes ? GPU_BAD_PARAMETER : list[i].run(g, q);
    }
    return GPU_UNSPECIFIED;
}

/* ==== 4  Requests ============================================================================= */

static void fetched(virtio *v, virtio_request *r)
{
    (void)v;
    request_of(r)->fetched = true;
}

static virtio_list *arrived_with(virtio_gpu *g, const virtio_request *r)
{
    return &g->arrived[r->queue - g->v.queue];
}

/* virtio_type.request */
static void gpu_request_begin(virtio *v, virtio_request *r)
{
    gpu_request *q = request_of(r);
    uint64_t all = r->readable_bytes;
    q->bytes = all < GPU_COMMAND_BYTES ? (uint32_t)all : GPU_COMMAND_BYTES;
    q->fetched = !q->bytes;
    q->body = NULL;
    q->asked = q->answered = 0;
    q->refused = q->over = false;
    /* where the read fails, nothing of another tenant's command gets into the reply */
    memset(q->command, 0, sizeof q->command);
    virtio_list_append(arrived_with(gpu_of(v), r), r);
    if (q->bytes)
        virtio_read(v, r, q->command, q->bytes, fetched);
}

/* virtio_type.release */
static void gpu_release(virtio *v, virtio_request *r)
{
    virtio_gpu *g = gpu_of(v);
    virtio_list_remove(arrived_with(g, r), r);
    virtio_list_remove(&g->render.sent, r);
    render_link_disown(&g->render.link, r);
    if (g->render.answering == request_of(r))
        g->render.answering = NULL;
    if (g->current != request_of(r))
        return;
    gpu_cancel(g);
    g->current = NULL;
}

/* The queue's next command, when it is here. */
static gpu_request *next_command(virtio_gpu *g, unsigned queue)
{
    virtio_request *r = g->arrived[queue].head;
    return r && request_of(r)->fetched ? request_of(virtio_list_take(&g->arrived[queue])) : NULL;
}

static bool cursor_work(virtio_gpu *g)
{
    gpu_request *q = next_command(g, GPU_CURSOR);
    if (!q)
        return false;
    g->count.cursor_commands++;
    reply(g, q, run(g, q, cursors, CURSORS));
    return true;
}

static bool control_work(virtio_gpu *g)
{
    gpu_reply how;
    gpu_request *q;
    if (g->current || !render_link_place(&g->render.link))
        return false;
    q = next_command(g, GPU_CONTROL);
    if (!q)
        return false;
    g->current = q;
    how = run(g, q, controls, CONTROLS);
    if (how != GPU_LATER)
        gpu_end(g, how);
    return true;
}

/* virtio_type.work: a command of each queue, and what a transfer can ask for. */
static bool gpu_work(virtio *v)
{
    virtio_gpu *g = gpu_of(v);
    bool any = cursor_work(g);
    any |= control_work(g);
    any |= gpu_transfer_work(g);
    any |= gpu_render_work(g);
    return any;
}

/* virtio_type.reset */
static void gpu_reset(virtio *v)
{
    gpu_screen_dark(gpu_of(v));
    gpu_forget_all(gpu_of(v));
    gpu_render_forget(gpu_of(v));
}

static const virtio_type gpu_type = {
    .request = gpu_request_begin, .release = gpu_release, .reset = gpu_reset, .work = gpu_work
};

/* ==== 5  Kind ================================================================================= */

static void gpu_destroy(void *device)
{
    virtio_gpu *g = device;
    g->closing = true;
    virtio_close(&g->v);
    gpu_free_old(g);
    render_link_close(&g->render.link);
    free(g);
}

/* "none", "software", or the DRM node: "renderD128" */
static void name_renderer(virtio_gpu *g, const device_settings *s)
{
    const char *node = s->render_node ? strrchr(s->render_node, '/') : NULL;
    const char *name = node ? node + 1 : s->render_node;
    snprintf(g->drawn_by, sizeof g->drawn_by, "%s",
             !s->renderer ? "none"
             : name       ? name
                          : "software");
}

static void *gpu_create_device(const device_settings *s, const device_port *port)
{
    const virtio_setup setup = { .type = 16,
                                 .class_code = VIRTIO_GPU_CLASS,
                                 .queues = GPU_QUEUES,
                                 .features = GPU_F_EDID | (s->renderer ? GPU_F_VIRGL : 0u),
                                 .requests = 256,
                                 .request_bytes = sizeof(gpu_request),
                                 .config_bytes = CONFIG_BYTES,
                                 .ordered = true };
    virtio_gpu *g = calloc(1, sizeof *g);
    bool failed;
    if (!g)
        return NULL;
    for (unsigned i = 0; i < GPU_QUEUES; i++)
        virtio_list_clear(&g->arrived[i]);
    virtio_list_clear(&g->render.sent);
    edid_make(g->screen.edid, s->identity);
    dxpu_put_le32(g->v.config + CONFIG_SCANOUTS, 1);
    dxpu_put_le32(g->v.config + CONFIG_CAPSETS, s->renderer ? RENDER_CAPSETS : 0);
    name_renderer(g, s);
    failed = gpu_render_open(g, s->renderer) != 0;
    failed |= virtio_open(&g->v, &setup, &gpu_type, s, port) != 0; /* both: both are closed */
    if (failed) {
        gpu_destroy(g);
        return NULL;
    }
    return g;
}

static void gpu_report(void *device, report *r)
{
    const virtio_gpu *g = device;
#define GPU_PRINT(name) report_number(r, #name, g->count.name);
    GPU_COUNTERS(GPU_PRINT)
#undef GPU_PRINT
#define RENDER_PRINT(name) report_number(r, #name, g->render.link.count.name);
    RENDER_COUNTERS(RENDER_PRINT)
#undef RENDER_PRINT
    virtio_report(&g->v, r);
}

static void gpu_tick(void *device, uint64_t now_ns)
{
    virtio_gpu *g = device;
    (void)render_link_tick(&g->render.link, now_ns);
    virtio_tick(device, now_ns);
}

static int gpu_descriptor(const void *device)
{
    const virtio_gpu *g = device;
    return render_link_descriptor(&g->render.link);
}

static void gpu_attributes(const void *device, char out[DEVICE_ATTRIBUTES_BYTES])
{
    const virtio_gpu *g = device;
    snprintf(out, DEVICE_ATTRIBUTES_BYTES, "render=%s", g->drawn_by);
}

const device_kind virtio_gpu_kind = { .name = "virtio-gpu",
                                      .model = "gpu",
                                      .vendor = VIRTIO_GPU_VENDOR,
                                      .device = VIRTIO_GPU_DEVICE,
                                      .class_code = VIRTIO_GPU_CLASS,
                                      .create = gpu_create_device,
                                      .destroy = gpu_destroy,
                                      .tlp = virtio_tlp,
                                      .event = virtio_event,
                                      .reset = virtio_reset,
                                      .report = gpu_report,
                                      .tick = gpu_tick,
                                      .descriptor = gpu_descriptor,
                                      .picture = gpu_picture,
                                      .values = virtio_values,
                                      .attributes = gpu_attributes };
