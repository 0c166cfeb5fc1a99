/* api_render.c - dxpu-render by its messages: what it draws, and what it refuses
   SPDX-License-Identifier: MIT

   Skipped where the program cannot render: `dxpu-render --check` says why.

   CONTENTS   1 A renderer   2 Requests   3 Drawing   4 Hostile requests   5 The sandbox */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "render_program.h"
#include "render_wire.h"
#include "virgl_stream.h"

/* ==== 1  A renderer =========================================================================== */

enum { HANG_MS = 20000, TARGET = 1, VERTICES = 2, RESULT = 3, CONTEXT = 1 };

typedef struct renderer {
    pid_t pid;
    int socket, memory;
    uint8_t *shared;
    uint32_t number;
    uint8_t reply[RENDER_REPLY_BYTES];
    uint8_t result[RENDER_REPLY_BYTES]; /* the last one; all 0: none */
} renderer;

/* The next message; false: it has ended. */
static bool receive(renderer *r)
{
    struct pollfd p = { r->socket, POLLIN, 0 };
    ssize_t n;
    assert_int_equal(poll(&p, 1, HANG_MS), 1);
    n = recv(r->socket, r->reply, sizeof r->reply, 0);
    if (n <= 0)
        return false;
    assert_int_equal(n, RENDER_REPLY_BYTES);
    assert_true(render_reply_fits(r->reply, (size_t)n));
    return true;
}

static void start(renderer *r)
{
    int pair[2];
    memset(r, 0, sizeof *r);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    r->memory = memfd_create("test", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(r->memory, RENDER_MEMORY_BYTES), 0);
    assert_int_equal(fcntl(r->memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    r->shared = mmap(NULL, RENDER_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->memory, 0);
    assert_ptr_not_equal(r->shared, MAP_FAILED);
    r->socket = pair[0];
    r->pid = fork();
    if (r->pid == 0) {
        (void)dup2(pair[1], 100);
        (void)dup2(r->memory, 101);
        (void)close(pair[0]);
        (void)execl(render_program(), "dxpu-render", "--socket-fd", "100", "--memory-fd", "101",
                    "-q", (char *)NULL);
        _exit(127);
    }
    (void)close(pair[1]);
    assert_true(receive(r));
    assert_int_equal(render_word(r->reply, 0), RENDER_READY);
}

/* Its exit status, below 0 a signal. */
static int stop(renderer *r)
{
    int status;
    (void)close(r->socket);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    (void)munmap(r->shared, RENDER_MEMORY_BYTES);
    (void)close(r->memory);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static uint8_t *slot(renderer *r, unsigned i)
{
    return r->shared + (size_t)i * RENDER_SLOT_BYTES;
}

/* ==== 2  Requests ============================================================================= */

static void put_request(renderer *r, uint8_t m[RENDER_REQUEST_BYTES], uint32_t op, uint32_t context,
                        uint32_t resource, unsigned count, const uint32_t *words)
{
    memset(m, 0, RENDER_REQUEST_BYTES);
    render_put(m, RENDER_OP, op);
    render_put(m, RENDER_NUMBER, ++r->number);
    render_put(m, RENDER_CONTEXT, context);
    render_put(m, RENDER_RESOURCE, resource);
    for (unsigned i = 0; i < count; i++)
        render_put(m, RENDER_ARGUMENTS + i, words[i]);
}

/* Its status. */
static uint32_t await(renderer *r)
{
    for (;;) {
        assert_true(receive(r));
        if (render_word(r->reply, 0) == RENDER_DONE)
            break;
        memcpy(r->result, r->reply, sizeof r->result);
    }
    assert_int_equal(render_word(r->reply, 1), r->number);
    return render_word(r->reply, RENDER_STATUS);
}

static uint32_t ask(renderer *r, uint32_t op, uint32_t context, uint32_t resource, unsigned count,
                    const uint32_t *words)
{
    uint8_t m[RENDER_REQUEST_BYTES];
    put_request(r, m, op, context, resource, count, words);
    assert_int_equal(send(r->socket, m, sizeof m, 0), sizeof m);
    return await(r);
}

#define WORDS(...)                                                                                 \
    (unsigned)(sizeof((uint32_t[]){ __VA_ARGS__ }) / 4), (uint32_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static uint32_t create(renderer *r, uint32_t id, uint32_t target, uint32_t format, uint32_t bind,
                       uint32_t width, uint32_t height)
{
    return ask(r, RENDER_RESOURCE_CREATE, 0, id,
               WORDS(target, format, bind, width, height, 1, 1, 0, 0, 0)) ||
           ask(r, RENDER_ATTACH, CONTEXT, id, 0, NULL);
}

static uint32_t submit(renderer *r, const virgl_stream *s)
{
    memcpy(slot(r, 2), s->word, s->count * 4);
    return ask(r, RENDER_SUBMIT, CONTEXT, 0, WORDS(2, s->count * 4, RENDER_FENCE));
}

static uint32_t move(renderer *r, uint32_t op, uint32_t x, uint32_t y, uint32_t width,
                     uint32_t height)
{
    return ask(
        r, op, CONTEXT, TARGET,
        WORDS(1, width * height * 4, 0, x, y, 0, width, height, 1, width * 4, width * height * 4));
}

static void set_up(renderer *r)
{
    start(r);
    assert_int_equal(ask(r, RENDER_CONTEXT_CREATE, CONTEXT, 0, 0, NULL), 0);
    assert_int_equal(create(r, TARGET, VS_TEXTURE_2D, VS_BGRA, VS_RENDER_TARGET | VS_SAMPLER_VIEW,
                            VS_SIDE, VS_SIDE),
                     0);
    assert_int_equal(create(r, VERTICES, 0, VS_R8, VS_VERTEX_BUFFER, VS_VERTICES_BYTES, 1), 0);
    assert_int_equal(create(r, RESULT, 0, VS_R8, VS_CUSTOM, VS_RESULT_BYTES, 1), 0);
}

/* ==== 3  Drawing ============================================================================== */

static void test_clear_and_triangle(void **state)
{
    virgl_stream s = { .count = 0 };
    renderer r;
    (void)state;
    set_up(&r);
    vs_target(&s, TARGET);
    vs_clear(&s);
    assert_int_equal(submit(&r, &s), 0);
    assert_int_equal(move(&r, RENDER_READ, 0, 0, VS_SIDE, VS_SIDE), 0);
    assert_int_equal(dxpu_get_le32(slot(&r, 1)), VS_CLEARED);
    assert_int_not_equal(vs_wrong(slot(&r, 1)), 0); /* so it is seen where nothing was drawn */
    s.count = 0;
    vs_pipeline(&s, VERTICES);
    vs_draw(&s);
    assert_int_equal(submit(&r, &s), 0);
    assert_int_equal(move(&r, RENDER_READ, 0, 0, VS_SIDE, VS_SIDE), 0);
    assert_int_equal(vs_wrong(slot(&r, 1)), 0);
    assert_int_equal(stop(&r), 0);
}

static void test_capability_sets(void **state)
{
    renderer r;
    uint32_t bytes;
    (void)state;
    start(&r);
    bytes = render_word(r.reply, 5);
    assert_true(bytes > 700); /* of set 2, which Mesa asks for */
    assert_int_equal(dxpu_get_le32(slot(&r, 1)),
                     render_word(r.reply, 4)); /* begins with its version */
    assert_int_equal(stop(&r), 0);
}

/* Only the pixels of the rectangle change. */
static void test_rectangles(void **state)
{
    renderer r;
    virgl_stream s = { .count = 0 };
    (void)state;
    set_up(&r);
    vs_target(&s, TARGET);
    vs_clear(&s);
    assert_int_equal(submit(&r, &s), 0);
    for (unsigned i = 0; i < 8 * 4 * 4; i++)
        slot(&r, 1)[i] = (uint8_t)(i * 7);
    assert_int_equal(move(&r, RENDER_WRITE, 5, 9, 8, 4), 0);
    memset(slot(&r, 1), 0, RENDER_SLOT_BYTES);
    assert_int_equal(move(&r, RENDER_READ, 0, 0, VS_SIDE, VS_SIDE), 0);
    for (uint32_t y = 0; y < VS_SIDE; y++) {
        for (uint32_t x = 0; x < VS_SIDE; x++) {
            const uint8_t *p = slot(&r, 1) + y * VS_ROW_BYTES + x * 4;
            bool inside = x >= 5 && x < 13 && y >= 9 && y < 13;
            assert_int_equal(p[0], inside ? (uint8_t)(((y - 9) * 32 + (x - 5) * 4) * 7)
                                          : (uint8_t)VS_CLEARED);
        }
    }
    assert_int_equal(stop(&r), 0);
}

/* It arrives before the end of what it follows from, once. */
static void test_query(void **state)
{
    renderer r;
    virgl_stream s = { .count = 0 };
    uint32_t samples;
    (void)state;
    set_up(&r);
    vs_target(&s, TARGET);
    vs_clear(&s);
    vs_pipeline(&s, VERTICES);
    assert_int_equal(submit(&r, &s), 0);
    assert_int_equal(render_word(r.result, 0), 0);
    s.count = 0;
    vs_query_begin(&s, RESULT);
    vs_draw(&s);
    vs_query_end(&s);
    assert_int_equal(submit(&r, &s), 0);
    assert_int_equal(render_word(r.result, 0), RENDER_RESULT);
    assert_int_equal(render_word(r.result, 1), RESULT);
    assert_int_equal(render_word(r.result, 2), 1); /* it is there */
    samples = render_word(r.result, 4);
    assert_in_range(samples, VS_SIDE * (VS_SIDE - 1) / 2, VS_SIDE * (VS_SIDE + 1) / 2);
    memset(r.result, 0, sizeof r.result);
    s.count = 0;
    vs_clear(&s);
    assert_int_equal(submit(&r, &s), 0);
    assert_int_equal(render_word(r.result, 0), 0);
    assert_int_equal(stop(&r), 0);
}

/* ==== 4  Hostile requests ===================================================================== */

/* What is not there, or does not fit, fails, and the next request is done. */
static void test_s244_what_is_not_there(void **state)
{
    renderer r;
    virgl_stream s = { .count = 0 };
    (void)state;
    set_up(&r);
    vs_begin(&s, 7, 0, 800); /* longer than the stream */
    vs_put(&s, 4);
    (void)submit(&r, &s); /* the library may end it without saying so */
    assert_int_not_equal(ask(&r, RENDER_SUBMIT, 77, 0, WORDS(0, 4, RENDER_FENCE)), 0);
    assert_int_not_equal(move(&r, RENDER_READ, 60, 0, 8, 4), 0);
    assert_int_not_equal(move(&r, RENDER_WRITE, 0, 63, 8, 2), 0);
    assert_int_not_equal(
        ask(&r, RENDER_READ, CONTEXT, 99, WORDS(1, 64, 0, 0, 0, 0, 4, 4, 1, 16, 64)), 0);
    /* fewer bytes than the rectangle has */
    assert_int_not_equal(
        ask(&r, RENDER_READ, CONTEXT, TARGET, WORDS(1, 64, 0, 0, 0, 0, 8, 8, 1, 32, 64)), 0);
    assert_int_not_equal(create(&r, 9, VS_TEXTURE_2D, 9999, 2, 4, 4), 0);
    (void)ask(&r, RENDER_RESOURCE_DESTROY, 0, 99, 0, NULL);
    (void)ask(&r, RENDER_CONTEXT_DESTROY, 99, 0, 0, NULL);
    (void)ask(&r, RENDER_ATTACH, 99, 99, 0, NULL);
    /* the context is not used any more after such a stream */
    assert_int_equal(ask(&r, RENDER_CONTEXT_CREATE, 2, 0, 0, NULL), 0);
    assert_int_equal(ask(&r, RENDER_ATTACH, 2, TARGET, 0, NULL), 0);
    assert_int_equal(ask(&r, RENDER_READ, 2, TARGET, WORDS(1, 64, 0, 0, 0, 0, 4, 4, 1, 16, 64)), 0);
    assert_int_equal(stop(&r), 0);
}

static void expect_end(const uint8_t *m, size_t bytes)
{
    renderer r;
    start(&r);
    assert_int_equal(send(r.socket, m, bytes, 0), bytes);
    assert_false(receive(&r));
    assert_int_equal(stop(&r), 3);
}

static void test_s244_malformed_requests(void **state)
{
    renderer numbers = { .number = 0 };
    uint8_t m[RENDER_REQUEST_BYTES + 4] = { 0 };
    (void)state;
    put_request(&numbers, m, RENDER_CONTEXT_CREATE, CONTEXT, 0, 0, NULL);
    expect_end(m, RENDER_REQUEST_BYTES + 4);
    put_request(&numbers, m, RENDER_SUBMIT, CONTEXT, 0, WORDS(RENDER_SLOTS, 4, 0));
    expect_end(m, RENDER_REQUEST_BYTES);
}

/* The same, without a process for each. */
static void test_s244_bounds(void **state)
{
    static const struct {
        unsigned word;
        uint32_t value;
    } bad[] = { { RENDER_OP, 0 },
                { RENDER_OP, RENDER_OPS },
                { RENDER_SLOT, RENDER_SLOTS },
                { RENDER_BYTES, 0 },
                { RENDER_BYTES, RENDER_SLOT_BYTES + 4 },
                { RENDER_LEVEL, 32 },
                { RENDER_BOX, 0xfffffff0u },
                { RENDER_BOX + 3, 0 },
                { RENDER_BOX + 5, 1u << 31 },
                { RENDER_STRIDE, 65 },
                { RENDER_LAYER_STRIDE, 0xffffffffu } };
    renderer r = { .number = 0 };
    uint8_t m[RENDER_REQUEST_BYTES];
    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_request(&r, m, RENDER_READ, CONTEXT, TARGET, WORDS(1, 64, 0, 0, 0, 0, 4, 4, 1, 16, 64));
        assert_true(render_request_fits(m, sizeof m));
        render_put(m, bad[i].word, bad[i].value);
        assert_false(render_request_fits(m, sizeof m));
    }
    put_request(&r, m, RENDER_SUBMIT, CONTEXT, 0, WORDS(0, 6, 0));
    assert_false(render_request_fits(m, sizeof m));
}

/* ==== 5  The sandbox ========================================================================== */

/* What the filter refuses: cli_sandbox.py. */

static bool file_says(pid_t pid, const char *name, const char *line)
{
    char path[60], text[4096];
    FILE *f;
    size_t n;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    return strstr(text, line) != NULL;
}

static bool status_says(pid_t pid, const char *line)
{
    return file_says(pid, "status", line);
}

static void test_s245_sandbox(void **state)
{
    renderer r;
    (void)state;
    start(&r);
#ifdef DXPU_SECCOMP
    assert_true(status_says(r.pid, "\nSeccomp:\t2\n"));
#endif
    assert_true(status_says(r.pid, "\nNoNewPrivs:\t1\n"));
    assert_true(status_says(r.pid, "\nCapEff:\t0000000000000000\n"));
    assert_false(status_says(getpid(), "\nSeccomp:\t2\n"));
    assert_int_equal(stop(&r), 0);
}

/* Where memory is short, it ends before the box. */
static void test_s245_short_memory(void **state)
{
    renderer r;
    (void)state;
    start(&r);
    assert_true(file_says(r.pid, "oom_score_adj", "1000\n"));
    assert_false(file_says(getpid(), "oom_score_adj", "1000\n"));
    assert_int_equal(stop(&r), 0);
}

int main(void)
{
    const struct CMUnitTest without[] = { cmocka_unit_test(test_s244_bounds) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clear_and_triangle),
        cmocka_unit_test(test_capability_sets),
        cmocka_unit_test(test_rectangles),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_s244_what_is_not_there),
        cmocka_unit_test(test_s244_malformed_requests),
        cmocka_unit_test(test_s245_sandbox),
        cmocka_unit_test(test_s245_short_memory),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    int rc = cmocka_run_group_tests_name("render wire", without, NULL, NULL);
    if (!render_works())
        return rc;
    return rc + cmocka_run_group_tests_name("render", tests, NULL, NULL);
}
