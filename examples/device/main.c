/* dxpu-device - serves one device model by vfio-user, in a process of its own
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "kinds.h"
#include "log.h"
#include "notify.h"
#include "options.h"
#include "program.h"
#include "render_start.h"
#include "sandbox.h"
#include "server.h"

#include <event2/event.h>
#include <stdlib.h>

enum { TICK_US = 10000, END_MS = 60000 };

static struct {
    server_settings server;
    unsigned mode;
    uint64_t disk_threads;
    sandbox_settings sandbox;
    bool stats;
} set = { .disk_threads = JOBS_SHARE,
          .server.device = {
              .memory_bytes = 16u << 20, .mps_bytes = 4096, .mrrs_bytes = 512, .identity = 1 } };

static struct {
    struct event_base *base;
    struct event *ready, *tick;
    server *server;
    bool failed;
} the;

static const option_row shared_rows[] = {
    { "socket", "FILE", "UNIX socket to listen on", OPTION_TEXT, &set.server.socket, 1, 107 },
    { "socket-mode", "600|660|666", "permissions of the socket (600)", OPTION_CHOICE, &set.mode, 0,
      0 },
    { "memory", "SIZE", "memory of the device, a power of two (16M)", OPTION_SIZE,
      &set.server.device.memory_bytes, 4096, (uint64_t)1 << 40 },
    { "mps", "BYTES", "largest Max_Payload_Size of the device (4096)", OPTION_NUMBER,
      &set.server.device.mps_bytes, 128, 4096 },
    { "mrrs", "BYTES", "Max_Read_Request_Size of the device (512)", OPTION_NUMBER,
      &set.server.device.mrrs_bytes, 128, 4096 },
    SANDBOX_OPTIONS(set.sandbox),
    { "stats", NULL, "print statistics on stderr at exit, in the format of --log", OPTION_FLAG,
      &set.stats, 0, 0 },
};

static const option_row disk_rows[] = {
    { "file", "FILE[,...]", "storage of its blocks (memory)", OPTION_TEXT, &set.server.device.file,
      0, 0 },
    { "size", "SIZE", "size of each namespace or disk (its file's, or --memory)", OPTION_SIZE,
      &set.server.device.file_bytes, 1u << 20, (uint64_t)1 << 44 },
    { "block", "BYTES", "logical block size, 512 or 4096 (512)", OPTION_NUMBER,
      &set.server.device.block_bytes, 512, 4096 },
    { "serial", "TEXT", "serial number (from --identity)", OPTION_TEXT, &set.server.device.serial,
      1, 20 },
    { "identity", "N", "number that no other device of the fabric has (1)", OPTION_NUMBER,
      &set.server.device.identity, 1, UINT64_MAX },
    { "disk-threads", "N", "concurrent accesses to its medium, 0: in its loop (4)", OPTION_NUMBER,
      &set.disk_threads, 0, 64 },
};
static const option_row nvme_rows[] = {
    { "cmb", "SIZE", "controller memory buffer for queues, a power of two from 64K on (none)",
      OPTION_SIZE, &set.server.device.cmb_bytes, 0, 1 << 30 },
    { "namespaces", "N", "namespaces in memory, without --file (1)", OPTION_NUMBER,
      &set.server.device.namespaces, 1, 32 },
    { "layout", "FILE", "file with its list of namespaces (beside the first --file)", OPTION_TEXT,
      &set.server.device.layout, 1, 4095 },
};
static const option_row blk_rows[] = {
    { "read-only", NULL, "the client cannot write", OPTION_FLAG, &set.server.device.read_only, 0,
      0 },
};
static const option_row net_rows[] = {
    { "tap", "NAME", "tap interface of its frames", OPTION_TEXT, &set.server.device.tap, 0, 0 },
    { "net-fd", "N", "inherited descriptor of a tap, or of a datagram socket", OPTION_NUMBER,
      &set.server.device.descriptor, 3, 1 << 20 },
    { "identity", "N", "number of which its address is made (1)", OPTION_NUMBER,
      &set.server.device.identity, 1, UINT64_MAX },
};
static const option_row gpu_rows[] = {
    { "render", NULL, "3D, in software, by a process dxpu-render", OPTION_FLAG,
      &set.server.device.render, 0, 0 },
    { "render-node", "PATH", "3D, on the GPU of this DRM node", OPTION_TEXT,
      &set.server.device.render_node, 1, 4095 },
};
static const option_row eptest_rows[] = {
    { "bar", "SIZE", "size of its 64-bit prefetchable BAR, a power of two (64K)", OPTION_SIZE,
      &set.server.device.bar_bytes, 4096, (uint64_t)1 << 44 },
};

/* ==== The loop ================================================================================ */

static void work(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
    if (!the.failed && server_work(the.server)) {
        the.failed = true;
        (void)event_base_loopbreak(the.base);
    }
}

static void on_stop(void)
{
    (void)event_base_loopexit(the.base, NULL);
}

static void fill_stats(report *r)
{
    server_report(the.server, r);
}

static void on_usr1(void)
{
    program_log(fill_stats);
}

static int run_loop(void)
{
    const struct timeval each = { 0, TICK_US };
    the.ready =
        event_new(the.base, server_descriptor(the.server), EV_READ | EV_PERSIST, work, NULL);
    the.tick = event_new(the.base, -1, EV_PERSIST, work, NULL);
    if (!the.ready || !the.tick || event_add(the.ready, NULL) || event_add(the.tick, &each)) {
        log_error("out of memory");
        return PROGRAM_SYSTEM;
    }
    notify_ready("%s at %s", set.server.kind->name, set.server.socket);
    log_note("%s at %s", set.server.kind->name, set.server.socket);
    return event_base_dispatch(the.base) < 0 || the.failed ? PROGRAM_SYSTEM : PROGRAM_GOOD;
}

/* ==== The program ============================================================================= */

/* What is wrong with the options together; NULL: nothing. */
static const char *check(void)
{
    const device_settings *d = &set.server.device;
    if (!set.server.socket)
        return "--socket FILE is required: where clients connect";
    if (d->memory_bytes & (d->memory_bytes - 1))
        return "--memory: must be a power of two";
    if (d->bar_bytes & (d->bar_bytes - 1))
        return "--bar: must be a power of two";
    if (d->mps_bytes & (d->mps_bytes - 1))
        return "--mps: 128, 256, 512, 1024, 2048 or 4096";
    if (d->mrrs_bytes & (d->mrrs_bytes - 1))
        return "--mrrs: 128, 256, 512, 1024, 2048 or 4096";
    if (d->file && d->namespaces)
        return "--namespaces: --file makes as many as it names files";
    if (d->layout && !d->file)
        return "--layout requires --file";
    if (d->read_only && !d->file)
        return "--read-only requires --file";
    if (set.server.kind == &virtio_blk_kind && d->file && strchr(d->file, ','))
        return "--file: a virtio-blk device has one";
    if (set.server.kind == &virtio_net_kind && !d->tap == !d->descriptor)
        return "one of --tap NAME and --net-fd N is required";
    if ((d->render || d->render_node) && set.sandbox.user)
        return "--render cannot be used with --user; start it as that user";
    return NULL;
}

static int serve(void)
{
    program_loop loop;
    int rc = PROGRAM_SYSTEM;
    the.base = event_base_new();
    the.server = the.base ? server_open(&set.server) : NULL;
    if (the.server) {
        memset(&loop, 0, sizeof loop);
        loop.base = the.base;
        loop.on_stop = on_stop;
        loop.on_usr1 = on_usr1;
        loop.run = run_loop;
        rc = program_run(&loop);
        if (set.stats)
            on_usr1();
    }
    program_end_within(END_MS, "a disk has not answered for 60 s: ended without waiting for it");
    if (the.ready)
        event_free(the.ready);
    if (the.tick)
        event_free(the.tick);
    server_close(the.server);
    if (the.base)
        event_base_free(the.base);
    return rc;
}

/* Before the sandbox.  0, or -1 after a message. */
static int start_renderer(void)
{
    device_settings *d = &set.server.device;
    if (!d->render && !d->render_node)
        return 0;
    d->renderer = render_start(d->render_node, set.sandbox.off);
    return d->renderer < 0 ? -1 : 0;
}

static const device_kind *const kinds[] = DEVICE_KIND_LIST;

static int run_device(const option_call *call)
{
    static const unsigned modes[] = { 0600, 0660, 0666 };
    const char *why;
    bool wrong;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!strcmp(kinds[i]->name, call->verb->name))
            set.server.kind = kinds[i];
    }
    set.server.mode = modes[set.mode];
    set.server.disk_threads = (unsigned)set.disk_threads;
    why = check();
    if (why)
        return program_usage(why);
    notify_start();
    if (start_renderer())
        return PROGRAM_SYSTEM;
    if (sandbox_start(&set.sandbox, &wrong))
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    return serve();
}

#define ABOUT "Serves the device to one vfio-user client at a time: a slot of dxpu-box, or QEMU."
#define TAIL                                                                                       \
    "SIGUSR1 prints statistics, Ctrl-C ends it.\n"                                                 \
    "exit status: 0 stopped on request, 2 usage, 3 system error\n"
#define SEE "See 'dxpu-device COMMAND --help' for the options of each.\n"
#define VERB(name, brief, ...)                                                                     \
    {                                                                                              \
        name, "", brief, ABOUT, TAIL, 0, 0, { __VA_ARGS__ }, run_device                            \
    }
#define SHARED OPTION_ROWS(shared_rows)
#define DISK   OPTION_ROWS(disk_rows)
/* VERB_kind(name) of each of DEVICE_KINDS: one that has none does not compile. */
#define VERB_memory(name) VERB(name, "memory behind one BAR", SHARED)
#define VERB_nvme(name)   VERB(name, "an NVMe controller", DISK, OPTION_ROWS(nvme_rows), SHARED)
#define VERB_vga(name)    VERB(name, "a display adapter", SHARED)
#define VERB_eptest(name)                                                                          \
    VERB(name, "the PCI endpoint test function", OPTION_ROWS(eptest_rows), SHARED)
#define VERB_virtio_blk(name)                                                                      \
    VERB(name, "a virtio block device", DISK, OPTION_ROWS(blk_rows), SHARED)
#define VERB_virtio_gpu(name) VERB(name, "a virtio display adapter", OPTION_ROWS(gpu_rows), SHARED)
#define VERB_virtio_net(name) VERB(name, "a virtio network adapter", OPTION_ROWS(net_rows), SHARED)
#define VERB_OF(kind, name)   VERB_##kind(name)
static const option_verb verbs[] = { DEVICE_KINDS(VERB_OF, DEVICE_KIND_COMMA) };
static const option_verbs all_verbs = { NULL, verbs, sizeof verbs / sizeof verbs[0] };
static const option_verbs *const groups[] = { &all_verbs };

int main(int argc, char **argv)
{
    static char version[80];
    option_program program = {
        "dxpu-device", "serves a device model by vfio-user", version, NULL, 0, SEE TAIL, groups, 1,
        NULL
    };
    option_call call;
    int rc;
    snprintf(version, sizeof version, "%s, sandbox by %s", DXPU_VERSION, sandbox_name());
    rc = program_parse(&program, argc, argv, &call);
    return rc == PROGRAM_GO ? call.verb->run(&call) : rc;
}
