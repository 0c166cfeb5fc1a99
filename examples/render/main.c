/* dxpu-render - renders for one virtio display adapter, in a process of its own
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "log.h"
#include "options.h"
#include "program.h"
#include "render_wire.h"
#include "renderer.h"
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MOST = 256 };

static struct {
    uint64_t socket, shared, memory, threads;
    const char *node;
    bool check;
    sandbox_settings sandbox;
} set = { .socket = 3, .shared = 4, .memory = (uint64_t)2 << 30, .threads = 2 };

static const option_row rows[] = {
    { "render-node", "PATH", "DRM node of the GPU that renders (none: in software)", OPTION_TEXT,
      &set.node, 1, 4095 },
    { "socket-fd", "N", "inherited descriptor: socket of the display adapter (3)", OPTION_NUMBER,
      &set.socket, 0, 1 << 20 },
    { "memory-fd", "N", "inherited descriptor: the memory that they share (4)", OPTION_NUMBER,
      &set.shared, 0, 1 << 20 },
    { "memory", "SIZE", "memory that rendering may take (2G)", OPTION_SIZE, &set.memory, 64u << 20,
      (uint64_t)1 << 40 },
    { "threads", "N", "threads that render in software (2)", OPTION_NUMBER, &set.threads, 1, 32 },
    { "check", NULL, "draw once and exit", OPTION_FLAG, &set.check, 0, 0 },
    SANDBOX_OPTIONS(set.sandbox),
};

static int wrong(const char *what)
{
    log_error("%s: %s", what, strerror(errno));
    return PROGRAM_SYSTEM;
}

/* 0, or -1 and errno */
static int limit_to(unsigned what, uint64_t most)
{
    const struct rlimit l = { most, most };
    return setrlimit(what, &l);
}

/* Where memory is short, this goes before the box that lends it: it can be started again.  Raising
   it needs no right. */
static void offer_itself(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1000", 4) != 4)
        log_note("/proc/self/oom_score_adj: %s", strerror(errno));
    if (fd >= 0)
        (void)close(fd);
}

static int limit(void)
{
#ifdef __SANITIZE_ADDRESS__
    const uint64_t memory = RLIM_INFINITY; /* its shadow counts as such */
#else
    const uint64_t memory = set.memory;
#endif
    if (limit_to(RLIMIT_DATA, memory))
        return wrong("--memory");
    if (limit_to(RLIMIT_CORE, 0) || limit_to(RLIMIT_NOFILE, FILES_MOST))
        return wrong("limits");
    offer_itself();
    return PROGRAM_GOOD;
}

/* What the libraries below virglrenderer ask the environment: software alone unless there is a
   node, and no files of theirs. */
static int prepare(void)
{
    char threads[12];
    snprintf(threads, sizeof threads, "%u", (unsigned)set.threads);
    if (setenv("MESA_SHADER_CACHE_DISABLE", "true", 1) || setenv("LP_NUM_THREADS", threads, 1) ||
        (!set.node && setenv("LIBGL_ALWAYS_SOFTWARE", "true", 1)))
        return wrong("environment");
    return PROGRAM_GOOD;
}

/* -1: none. */
static int open_node(bool *failed)
{
    int fd = set.node ? open(set.node, O_RDWR | O_CLOEXEC | O_NOCTTY) : -1;
    *failed = set.node && fd < 0;
    if (*failed)
        log_error("--render-node: %s: %s", set.node, strerror(errno));
    return fd;
}

/* NULL after a message. */
static unsigned char *map_shared(void)
{
    struct stat st;
    void *at;
    if (fstat((int)set.socket, &st) || !S_ISSOCK(st.st_mode)) {
        log_error("--socket-fd: descriptor %u is not a socket; dxpu-box and dxpu-device start this "
                  "program, --check tries it",
                  (unsigned)set.socket);
        return NULL;
    }
    if (fstat((int)set.shared, &st) || st.st_size != RENDER_MEMORY_BYTES ||
        !(fcntl((int)set.shared, F_GET_SEALS) & F_SEAL_SHRINK)) {
        log_error("--memory-fd: descriptor %u must be memory of %u bytes, sealed against shrinking",
                  (unsigned)set.shared, (unsigned)RENDER_MEMORY_BYTES);
        return NULL;
    }
    at = mmap(NULL, RENDER_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, (int)set.shared, 0);
    if (at != MAP_FAILED)
        return at;
    (void)wrong("--memory-fd");
    return NULL;
}

static int render(void)
{
    unsigned char *shared = set.check ? NULL : map_shared();
    bool failed;
    int node;
    if (!set.check && !shared)
        return PROGRAM_SYSTEM;
    node = open_node(&failed);
    if (failed || renderer_open(node))
        return PROGRAM_SYSTEM;
    if (sandbox_enter_as(set.node ? SANDBOX_GPU_RENDERER : SANDBOX_RENDERER))
        return PROGRAM_SYSTEM;
    if (set.check) {
        log_note("a triangle was drawn, %s", set.node ? set.node : "in software");
        return PROGRAM_GOOD;
    }
    return renderer_serve((int)set.socket, shared) ? PROGRAM_SYSTEM : PROGRAM_GOOD;
}

#define TAIL                                                                                       \
    "dxpu-box and dxpu-device start it for each virtio-gpu with --render.\n"                       \
    "exit status: 0 the display adapter is gone, 2 usage, 3 system error\n"

int main(int argc, char **argv)
{
    static char version[100];
    option_program program = { "dxpu-render",
                               "renders for one virtio display adapter",
                               version,
                               rows,
                               sizeof rows / sizeof rows[0],
                               TAIL,
                               NULL,
                               0,
                               NULL };
    bool wrong_use;
    int rc;
    snprintf(version, sizeof version, "%s, %s, sandbox by %s", DXPU_VERSION, renderer_name(),
             sandbox_name());
    rc = program_parse(&program, argc, argv, NULL);
    if (rc != PROGRAM_GO)
        return rc;
    (void)signal(SIGPIPE, SIG_IGN);
    if (sandbox_start(&set.sandbox, &wrong_use))
        return wrong_use ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    rc = limit();
    rc = rc ? rc : prepare();
    rc = rc ? rc : render();
    /* not exit(): what the libraries do at the end of a process, the filter does not let them */
    (void)fflush(NULL);
    _exit(rc);
}
