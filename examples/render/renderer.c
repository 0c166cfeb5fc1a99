/* renderer.c - see renderer.h
   SPDX-License-Identifier: MIT

   A command stream is copied before virglrenderer reads it: it looks at a word more than once.
   Pixels may change under it; no length is among them.

   Results of queries go to resources with RENDER_BIND_CUSTOM, into memory that they have here, a
   mailbox, and nothing says when.  A mailbox is 0 until then, and its first word is not in a
   result: so after everything that was drawn all of them are looked at.

   CONTENTS   1 Resources   2 Results and fences   3 Requests   4 The loop   5 Begin */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* ppoll() */
#endif
#include "renderer.h"

#ifdef DXPU_VIRGL

#include "first_draw.h"
#include "log.h"
#include "render_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <virgl/virglrenderer.h>

/* Of virglrenderer's interface, which leaves it to its users. */
struct virgl_box {
    uint32_t x, y, z, w, h, d;
};

enum {
    MAILBOXES = 1024,
    LOOK_NS = 200000, /* how often fences are looked at while there are any */
    SAID_MOST = 50,   /* messages of the library in the log: a guest can cause any number */
    CAPSETS_FROM = 1
};

typedef struct mailbox {
    uint32_t resource; /* 0: free */
    uint32_t bytes;
    struct iovec iov;
} mailbox;

static struct {
    int socket, node;
    unsigned char *memory;
    mailbox box[MAILBOXES];
    uint32_t fence[RENDER_PENDING]; /* numbers of requests, in their order */
    unsigned fences;
    uint32_t retired; /* the last fence that the library reported; 0: none */
    unsigned said;
    uint32_t stream[RENDER_SLOT_BYTES / 4];
} the;

/* ==== 1  Resources ============================================================================ */

static mailbox *find_box(uint32_t resource)
{
    for (unsigned i = 0; i < MAILBOXES; i++) {
        if (the.box[i].resource == resource)
            return &the.box[i];
    }
    return NULL;
}

static bool is_mailbox(const struct virgl_renderer_resource_create_args *a)
{
    return a->bind == RENDER_BIND_CUSTOM && !a->target && a->width >= RENDER_RESULT_BYTES &&
           a->width <= RENDER_MAILBOX_BYTES;
}

/* Without one the results of its queries are lost. */
static void box_open(const struct virgl_renderer_resource_create_args *a)
{
    mailbox *m = is_mailbox(a) ? find_box(0) : NULL;
    void *memory = m ? calloc(1, a->width) : NULL;
    if (!memory)
        return;
    m->iov.iov_base = memory;
    m->iov.iov_len = m->bytes = a->width;
    if (virgl_renderer_resource_attach_iov((int)a->handle, &m->iov, 1)) {
        free(memory);
        return;
    }
    m->resource = a->handle;
    memset(memory, 0, m->bytes); /* attaching may have written */
}

static void box_close(uint32_t resource)
{
    mailbox *m = find_box(resource);
    struct iovec *iov;
    int count;
    if (!m)
        return;
    virgl_renderer_resource_detach_iov((int)resource, &iov, &count);
    free(m->iov.iov_base);
    memset(m, 0, sizeof *m);
}

static int resource_create(const uint8_t *m)
{
    const uint8_t *w = m + RENDER_ARGUMENTS * 4;
    struct virgl_renderer_resource_create_args a = { .handle = render_word(m, RENDER_RESOURCE),
                                                     .target = render_word(w, 0),
                                                     .format = render_word(w, 1),
                                                     .bind = render_word(w, 2),
                                                     .width = render_word(w, 3),
                                                     .height = render_word(w, 4),
                                                     .depth = render_word(w, 5),
                                                     .array_size = render_word(w, 6),
                                                     .last_level = render_word(w, 7),
                                                     .nr_samples = render_word(w, 8),
                                                     .flags = render_word(w, 9) };
    int rc = a.handle ? virgl_renderer_resource_create(&a, NULL, 0) : -1;
    if (!rc)
        box_open(&a);
    return rc;
}

static void resource_destroy(uint32_t resource)
{
    if (!resource)
        return;
    box_close(resource);
    virgl_renderer_resource_unref(resource);
}

/* ==== 2  Results and fences =================================================================== */

/* False: the other end is gone. */
static bool send_reply(uint32_t kind, const uint32_t *words, unsigned count)
{
    uint8_t m[RENDER_REPLY_BYTES] = { 0 };
    ssize_t n;
    render_put(m, 0, kind);
    for (unsigned i = 0; i < count; i++)
        render_put(m, 1 + i, words[i]);
    do
        n = send(the.socket, m, sizeof m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof m;
}

static bool done(uint32_t number, int status)
{
    const uint32_t words[] = { number, status ? 1 : 0 };
    return send_reply(RENDER_DONE, words, 2);
}

static bool send_results(void)
{
    for (unsigned i = 0; i < MAILBOXES; i++) {
        mailbox *m = &the.box[i];
        const uint8_t *result = m->iov.iov_base;
        uint32_t words[1 + RENDER_RESULT_BYTES / 4] = { m->resource };
        if (!m->resource || !render_word(result, 0))
            continue;
        for (unsigned k = 0; k < RENDER_RESULT_BYTES / 4; k++)
            words[1 + k] = render_word(result, k);
        memset(m->iov.iov_base, 0, RENDER_RESULT_BYTES);
        if (!send_reply(RENDER_RESULT, words, sizeof words / sizeof words[0]))
            return false;
    }
    return true;
}

/* virgl_renderer_callbacks.write_fence: this one, and those before it */
static void on_fence(void *cookie, uint32_t fence)
{
    (void)cookie;
    the.retired = fence;
}

static bool look_at_fences(void)
{
    unsigned over = 0;
    if (!the.fences)
        return true;
    the.retired = 0;
    virgl_renderer_poll();
    if (!send_results())
        return false;
    for (unsigned i = 0; the.retired && i < the.fences && !over; i++)
        over = the.fence[i] == the.retired ? i + 1 : 0;
    for (unsigned i = 0; i < over; i++) {
        if (!done(the.fence[i], 0))
            return false;
    }
    the.fences -= over;
    memmove(the.fence, the.fence + over, the.fences * sizeof the.fence[0]);
    return true;
}

/* ==== 3  Requests ============================================================================= */

static bool submit(const uint8_t *m)
{
    uint32_t number = render_word(m, RENDER_NUMBER), context = render_word(m, RENDER_CONTEXT);
    uint32_t bytes = render_word(m, RENDER_BYTES);
    int rc;
    memcpy(the.stream, the.memory + (size_t)render_word(m, RENDER_SLOT) * RENDER_SLOT_BYTES, bytes);
    rc = virgl_renderer_submit_cmd(the.stream, (int)context, (int)(bytes / 4));
    if (!rc && (render_word(m, RENDER_FLAGS) & RENDER_FENCE) && the.fences < RENDER_PENDING &&
        !virgl_renderer_create_fence((int)number, context)) {
        the.fence[the.fences++] = number;
        return look_at_fences();
    }
    return send_results() && done(number, rc);
}

static int transfer(const uint8_t *m)
{
    struct iovec iov = { the.memory + (size_t)render_word(m, RENDER_SLOT) * RENDER_SLOT_BYTES,
                         render_word(m, RENDER_BYTES) };
    struct virgl_box box = {
        render_word(m, RENDER_BOX),     render_word(m, RENDER_BOX + 1),
        render_word(m, RENDER_BOX + 2), render_word(m, RENDER_BOX + 3),
        render_word(m, RENDER_BOX + 4), render_word(m, RENDER_BOX + 5),
    };
    uint32_t resource = render_word(m, RENDER_RESOURCE), context = render_word(m, RENDER_CONTEXT);
    uint32_t level = render_word(m, RENDER_LEVEL), stride = render_word(m, RENDER_STRIDE);
    uint32_t layer = render_word(m, RENDER_LAYER_STRIDE);
    if (render_word(m, RENDER_OP) == RENDER_READ)
        return virgl_renderer_transfer_read_iov(resource, context, level, stride, layer, &box, 0,
                                                &iov, 1);
    return virgl_renderer_transfer_write_iov(resource, context, (int)level, stride, layer, &box, 0,
                                             &iov, 1);
}

/* False: the other end is gone. */
static bool handle(const uint8_t *m)
{
    uint32_t context = render_word(m, RENDER_CONTEXT), resource = render_word(m, RENDER_RESOURCE);
    int rc = 0;
    switch (render_word(m, RENDER_OP)) {
    case RENDER_CONTEXT_CREATE:
        rc = virgl_renderer_context_create(context, 4, "dxpu");
        break;
    case RENDER_CONTEXT_DESTROY:
        virgl_renderer_context_destroy(context);
        break;
    case RENDER_RESOURCE_CREATE:
        rc = resource_create(m);
        break;
    case RENDER_RESOURCE_DESTROY:
        resource_destroy(resource);
        break;
    case RENDER_ATTACH:
        virgl_renderer_ctx_attach_resource((int)context, (int)resource);
        break;
    case RENDER_DETACH:
        virgl_renderer_ctx_detach_resource((int)context, (int)resource);
        break;
    case RENDER_SUBMIT:
        return submit(m);
    default:
        rc = transfer(m);
        break;
    }
    return done(render_word(m, RENDER_NUMBER), rc);
}

/* ==== 4  The loop ============================================================================= */

static bool send_ready(void)
{
    uint32_t words[1 + RENDER_CAPSETS * 2] = { RENDER_VERSION };
    for (uint32_t i = 0; i < RENDER_CAPSETS; i++) {
        uint32_t *of = words + 1 + (size_t)i * 2;
        virgl_renderer_get_cap_set(CAPSETS_FROM + i, &of[0], &of[1]);
        if (of[1] > RENDER_CAPSET_BYTES) {
            log_error("a capability set of %u bytes", (unsigned)of[1]);
            return false;
        }
        if (of[1])
            virgl_renderer_fill_caps(CAPSETS_FROM + i, of[0],
                                     the.memory + (size_t)i * RENDER_SLOT_BYTES);
    }
    return send_reply(RENDER_READY, words, sizeof words / sizeof words[0]);
}

int renderer_serve(int socket, unsigned char *memory)
{
    const struct timespec look = { 0, LOOK_NS };
    uint8_t m[RENDER_REQUEST_BYTES + 1]; /* a longer message is seen as such */
    the.socket = socket;
    the.memory = memory;
    for (bool there = send_ready(); there; there = look_at_fences()) {
        struct pollfd p = { socket, POLLIN, 0 };
        ssize_t n;
        if (ppoll(&p, 1, the.fences ? &look : NULL, NULL) <= 0)
            continue;
        n = recv(socket, m, sizeof m, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 0;
        if (n < 0)
            continue;
        if (!render_request_fits(m, (size_t)n)) {
            log_error("a request that is not as render_wire.h says; ended");
            return -1;
        }
        if (!handle(m))
            return 0;
    }
    return 0;
}

/* ==== 5  Begin ================================================================================ */

static int node_of(void *cookie)
{
    int fd = the.node;
    (void)cookie;
    the.node = -1; /* the library's */
    return fd;
}

__attribute__((format(printf, 1, 0))) static void on_message(const char *format, va_list args)
{
    char text[200];
    if (the.said == SAID_MOST)
        return;
    (void)vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    the.said++;
    log_debug("%s%s", text, the.said == SAID_MOST ? " (no more of these)" : "");
}

/* With what it made gone again. */
static int draw_once(void)
{
    struct virgl_renderer_resource_create_args target = { .handle = 1,
                                                          .target = 2,
                                                          .format = 1,
                                                          .bind = 2 | 8,
                                                          .width = 16,
                                                          .height = 16,
                                                          .depth = 1,
                                                          .array_size = 1 },
                                               vertices = { .handle = 2,
                                                            .format = 64,
                                                            .bind = 1 << 4,
                                                            .width = 96,
                                                            .height = 1,
                                                            .depth = 1,
                                                            .array_size = 1 };
    uint32_t pixels[16 * 16] = { 0 };
    struct iovec iov = { pixels, sizeof pixels };
    struct virgl_box box = { 0, 0, 0, 16, 16, 1 };
    unsigned words = first_draw(1, 2, the.stream);
    int rc = virgl_renderer_context_create(1, 4, "dxpu");
    rc = rc ? rc : virgl_renderer_resource_create(&target, NULL, 0);
    rc = rc ? rc : virgl_renderer_resource_create(&vertices, NULL, 0);
    if (rc)
        return rc;
    virgl_renderer_ctx_attach_resource(1, 1);
    virgl_renderer_ctx_attach_resource(1, 2);
    rc = virgl_renderer_submit_cmd(the.stream, 1, (int)words);
    rc = rc ? rc : virgl_renderer_transfer_read_iov(1, 1, 0, 64, 0, &box, 0, &iov, 1);
    virgl_renderer_resource_unref(1);
    virgl_renderer_resource_unref(2);
    virgl_renderer_context_destroy(1);
    return rc ? rc : pixels[8 * 16 + 8] != 0xffffffff;
}

int renderer_open(int node)
{
    static struct virgl_renderer_callbacks callbacks = { .version = 2,
                                                         .write_fence = on_fence,
                                                         .get_drm_fd = node_of };
    int rc;
    the.node = node;
    (void)virgl_set_debug_callback(on_message);
    /* its cookie must not be NULL */
    rc = virgl_renderer_init(&the, VIRGL_RENDERER_USE_EGL | VIRGL_RENDERER_USE_SURFACELESS,
                             &callbacks);
    if (rc) {
        log_error("virglrenderer does not start (%d): is libegl1 with libegl-mesa0, and "
                  "libgl1-mesa-dri or the driver of --render-node, installed?",
                  rc);
        return -1;
    }
    rc = draw_once();
    if (rc)
        log_error("a first triangle was not drawn (%d): the GL driver does not work", rc);
    return rc ? -1 : 0;
}

const char *renderer_name(void)
{
    return "virglrenderer";
}

#else

#include "log.h"

int renderer_open(int node)
{
    (void)node;
    log_error("built without virglrenderer: install libvirglrenderer-dev and build dxpu again");
    return -1;
}

int renderer_serve(int socket, unsigned char *memory)
{
    (void)socket;
    (void)memory;
    return -1;
}

const char *renderer_name(void)
{
    return "no virglrenderer";
}

#endif
