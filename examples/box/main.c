/* dxpu-box - lends the devices of its slots to hosts over the network
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "console.h"
#include "log.h"
#include "kinds.h"
#include "leases.h"
#include "notify.h"
#include "open_files.h"
#include "program.h"
#include "reload.h"
#include "render_start.h"
#include "sandbox.h"
#include "shards.h"
#include "shots.h"
#include "starter.h"

#include <stdlib.h>
#include <sys/socket.h>

enum { SLOTS_MAX = 1024 };
enum { SLOT_FILES = 64, FILES_BESIDE = 256 }; /* descriptors */
enum { END_MS = 60000 };                      /* below the 90 s after which systemd kills */

/* NVMe has room for 20, and further slots add their number */
enum { SERIAL_MAX = 16, MODEL_MAX = 31 };

static struct {
    fabric_settings fabric;
    keys_settings keys;
    uint64_t slots, node, disk_threads;
    device_settings device;
    unsigned kind; /* index into kinds */
    option_list slot;
    manager_settings manager;
    const char *advertise, *model;
    uint64_t group_slots;
    const char *record, *state, *control;
    sandbox_settings sandbox;
    uint64_t limit_tlps, limit_bytes;
    dxpu_guard_allowed allowed;
    bool json, stats, isolate, hot_plug, p2p;
} set = { .fabric = FABRIC_SETTINGS_DEFAULT(NULL),
          .slots = 1,
          .disk_threads = JOBS_SHARE,
          .node = 2,
          .device = { .memory_bytes = 16u << 20, .mps_bytes = 4096, .mrrs_bytes = 512 } };

static const device_kind *const kinds[] = DEVICE_KIND_LIST;
static slot_plans plans;

static const option_row rows[] = {
    FABRIC_OPTIONS(set.fabric),
    KEYS_OPTIONS(set.keys),
    { "device", DEVICE_KINDS(DEVICE_KIND_NAME, "|"), "device model of the slots (memory)",
      OPTION_CHOICE, &set.kind, 0, 0 },
    { "file", "FILE[,...]",
      "nvme: one file per namespace, virtio-blk: one; further slots use FILE.2 and so on (memory)",
      OPTION_TEXT, &set.device.file, 0, 0 },
    { "namespaces", "N", "nvme: namespaces in memory, without --file (1)", OPTION_NUMBER,
      &set.device.namespaces, 1, 32 },
    { "size", "SIZE", "nvme, virtio-blk: size of each namespace or disk (its file's, or --memory)",
      OPTION_SIZE, &set.device.file_bytes, 1u << 20, (uint64_t)1 << 44 },
    { "block", "BYTES", "nvme, virtio-blk: logical block size, 512 or 4096 (512)", OPTION_NUMBER,
      &set.device.block_bytes, 512, 4096 },
    { "cmb", "SIZE", "nvme: controller memory buffer for queues, a power of two from 64K on (none)",
      OPTION_SIZE, &set.device.cmb_bytes, 0, 1 << 30 },
    { "no-push", NULL, "nvme, eptest: make no push rules, also for hosts that offer them",
      OPTION_FLAG, &set.device.no_push, 0, 0 },
    { "serial", "TEXT", "nvme, virtio-blk: serial number (from machine, node, slot and file)",
      OPTION_TEXT, &set.device.serial, 0, 0 },
    { "read-only", NULL, "virtio-blk: the host cannot write, and a wipe leaves the file as it is",
      OPTION_FLAG, &set.device.read_only, 0, 0 },
    { "tap", "NAME", "virtio-net: tap interface of its frames; further slots use NAME.2 and so on",
      OPTION_TEXT, &set.device.tap, 0, 0 },
    { "net-fd", "N", "virtio-net: inherited descriptor of a tap, or of a datagram socket",
      OPTION_NUMBER, &set.device.descriptor, 3, 1 << 20 },
    { "render", NULL, "virtio-gpu: 3D, in software, by a process dxpu-render for each slot",
      OPTION_FLAG, &set.device.render, 0, 0 },
    { "render-node", "PATH", "virtio-gpu: 3D, on the GPU of this DRM node", OPTION_TEXT,
      &set.device.render_node, 1, 4095 },
    { "p2p", NULL, "open channels to the other boxes that hosts name, and accept theirs",
      OPTION_FLAG, &set.p2p, 0, 0 },
    { "isolate", NULL, "run each slot's model in a process of its own, by dxpu-device", OPTION_FLAG,
      &set.isolate, 0, 0 },
    { "disk-threads", "N", "concurrent accesses of a slot to its medium, 0: in its loop (4)",
      OPTION_NUMBER, &set.disk_threads, 0, 64 },
    { "bar", "SIZE", "eptest: size of its 64-bit prefetchable BAR, a power of two (64K)",
      OPTION_SIZE, &set.device.bar_bytes, 4096, (uint64_t)1 << 44 },
    { "slots", "N", "slots, numbered from 1 (1)", OPTION_NUMBER, &set.slots, 1, SLOTS_MAX },
    { "slot", "N=KIND[,KEY=VALUE]...",
      "device of one slot, as --device and its options, vfio-user, nettlp, rawtlp, function "
      "or none; repeatable",
      OPTION_LIST, &set.slot, 1, 0 },
    { "cores", "N", "threads, each with its own slots and port, from --listen's on (1)",
      OPTION_NUMBER, &set.fabric.shards, 1, SHARDS_MAX },
    { "memory", "SIZE", "memory of each slot's device, a power of two (16M)", OPTION_SIZE,
      &set.device.memory_bytes, 4096, (uint64_t)1 << 40 },
    { "mps", "BYTES", "largest Max_Payload_Size of the devices (4096)", OPTION_NUMBER,
      &set.device.mps_bytes, 128, 4096 },
    { "mrrs", "BYTES", "Max_Read_Request_Size of the devices after a reset (512)", OPTION_NUMBER,
      &set.device.mrrs_bytes, 128, 4096 },
    { "node", "N", "number of this box in the fabric (2); a manager assigns another", OPTION_NUMBER,
      &set.node, 1, UINT32_MAX },
    { "state", "FILE", "file that persists leases and epochs across restarts", OPTION_TEXT,
      &set.state, 0, 0 },
    MANAGER_OPTIONS(set.manager),
    { "advertise", "ADDR:PORT[,...]",
      "addresses that the manager gives to hosts (those of --listen)", OPTION_TEXT, &set.advertise,
      0, 0 },
    { "group-slots", "N", "slots per group that share a switch or NVLink (no groups)",
      OPTION_NUMBER, &set.group_slots, 1, SLOTS_MAX },
    { "model", "TEXT", "model name of the devices at the manager (as --device)", OPTION_TEXT,
      &set.model, 0, 0 },
    { "control", "ADDR:PORT",
      "address for status, screenshots and plug (off); :PORT is on loopback", OPTION_TEXT,
      &set.control, 0, 0 },
    { "hot-plug", NULL,
      "let clients of --control plug and unplug devices, with any file that this process may open",
      OPTION_FLAG, &set.hot_plug, 0, 0 },
    { "limit-tlps", "N", "maximum TLPs per second from the device of a lease (no limit)",
      OPTION_NUMBER, &set.limit_tlps, 1000, LIMIT_RATE_MAX },
    { "limit-bytes", "SIZE", "maximum bytes per second to and from that device (no limit)",
      OPTION_SIZE, &set.limit_bytes, 4u << 20, LIMIT_RATE_MAX },
    { "allow-translated", NULL, "devices may use address translation (ATS, PRI)", OPTION_FLAG,
      &set.allowed.translated, 0, 0 },
    { "allow-pasid", NULL, "devices may name a process address space (PASID)", OPTION_FLAG,
      &set.allowed.pasid, 0, 0 },
    { "record", "FILE", "write every TLP that arrives to a pcap, in order", OPTION_TEXT,
      &set.record, 0, 0 },
    SANDBOX_OPTIONS(set.sandbox),
    { "stats", NULL, "print all statistics on stderr at exit, in the format of --log", OPTION_FLAG,
      &set.stats, 0, 0 },
    { "json", NULL, "print statistics as one JSON object on stdout at exit", OPTION_FLAG, &set.json,
      0, 0 },
};

static box the_box;

static void fill_stats(report *r)
{
    shards_report(&the_box, r);
}

static void on_stop(void)
{
    shards_stop(&the_box);
}

static void on_usr1(void)
{
    program_log(fill_stats);
    recorder_flush(&the_box.record);
}

/* S-176 */
static void warn_of_shared_slots(void)
{
    unsigned shared =
        set.keys.plain || set.manager.address ? 0 : keys_shared_slot(the_box.keys, the_box.count);
    if (shared)
        log_warning("WARNING: several public keys may open slot %u, so one host can take "
                    "it from another with a higher epoch; give each its slots= in --peers, or use "
                    "--manager",
                    shared);
}

static reload *the_reload;

static void on_hup(void)
{
    reload_start(the_reload);
}

static void on_keys(void *user)
{
    (void)user;
    warn_of_shared_slots();
    shards_keys_changed(&the_box);
    control_recheck(the_box.control);
}

static option_program program = {
    "dxpu-box",
    "lends the devices of its slots to hosts over the network",
    NULL,
    rows,
    sizeof rows / sizeof rows[0],
    "SIGUSR1 prints statistics, SIGHUP reloads --peers, Ctrl-C closes all channels gracefully.\n"
    "exit status: 0 stopped on request, 2 usage, 3 system error, 5 the file of --state or\n"
    "--identity is damaged\n",
    NULL,
    0,
    NULL
};

/* 1 to max printable characters. */
static bool is_word(const char *text, size_t max)
{
    size_t len = strlen(text);
    for (const char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            return false;
    }
    return len >= 1 && len <= max;
}

/* What is wrong with what a manager needs; NULL: nothing. */
static const char *check_manager(void)
{
    static char text[200];
    const char *why = NULL;
    if (!set.manager.address) {
        if (set.advertise || set.group_slots || set.model)
            return "--advertise, --group-slots and --model require --manager";
        return manager_check(&set.manager, &set.keys, NULL);
    }
    if (set.model && !is_word(set.model, MODEL_MAX))
        return "--model: 1 to 31 printable ASCII characters";
    if (set.advertise)
        why = dxpu_udp_parse_list(set.advertise, the_box.advertised, DXPU_CONTROL_PATHS_MAX,
                                  &the_box.advertised_count);
    snprintf(text, sizeof text, "--advertise: %s", why ? why : "");
    return why ? text : manager_check(&set.manager, &set.keys, set.state ? NULL : "--state FILE");
}

/* What is wrong with the keys, and with where it listens. */
static const char *check_fabric(void)
{
    const char *why = keys_check(&set.keys);
    if (!set.fabric.listen)
        set.fabric.listen = set.keys.plain && !set.keys.plain_network ? "127.0.0.1:4458" : "*:4458";
    return why ? why : fabric_check(&set.fabric, &set.keys);
}

/* What is wrong with --slot; NULL: nothing. */
static const char *make_plans(void)
{
    const char *bad = NULL;
    plans.count = (unsigned)set.slots;
    plans.kinds = kinds;
    plans.kind_count = sizeof kinds / sizeof kinds[0];
    plans.usual = &set.device;
    plans.slot = calloc(plans.count, sizeof *plans.slot);
    if (!plans.slot)
        return plan_no_memory;
    for (unsigned i = 0; i < set.slot.count && !bad; i++)
        bad = plan_add(&plans, set.slot.text[i]);
    return bad ? bad : plan_check(&plans);
}

/* What is wrong with the frames' place.  many: a descriptor cannot serve it. */
static const char *check_net(const device_settings *d, const device_kind *kind, bool many)
{
    if (kind != &virtio_net_kind && (d->tap || d->descriptor))
        return "--tap and --net-fd require --device virtio-net";
    if (kind == &virtio_net_kind && !d->tap == !d->descriptor)
        return "--device virtio-net: needs --tap NAME or --net-fd N";
    if (d->descriptor && many)
        return "--net-fd requires one slot, and no --isolate; else give --slot N=virtio-net,fd=N";
    return NULL;
}

static const char *plans_wrong;

/* What is wrong with the options together; NULL: nothing. */
static const char *check(void)
{
    if (set.hot_plug && (!set.control || set.isolate))
        return "--hot-plug requires --control, and no --isolate";
    if (set.fabric.shards > set.slots)
        return "--cores: must be at most --slots";
    if (set.device.memory_bytes & (set.device.memory_bytes - 1))
        return "--memory: must be a power of two";
    if (set.device.bar_bytes & (set.device.bar_bytes - 1))
        return "--bar: must be a power of two";
    if (set.device.mps_bytes & (set.device.mps_bytes - 1))
        return "--mps: 128, 256, 512, 1024, 2048 or 4096";
    if (set.device.mrrs_bytes & (set.device.mrrs_bytes - 1))
        return "--mrrs: 128, 256, 512, 1024, 2048 or 4096";
    if (set.device.file && set.device.namespaces)
        return "--namespaces: --file makes as many as it names files";
    if (set.device.read_only && (kinds[set.kind] != &virtio_blk_kind || !set.device.file))
        return "--read-only requires --device virtio-blk and --file";
    if (kinds[set.kind] == &virtio_blk_kind && set.device.file && strchr(set.device.file, ','))
        return "--file: a virtio-blk device has one";
    if (set.device.serial && (!set.device.serial[0] || strlen(set.device.serial) > SERIAL_MAX))
        return "--serial: 1 to 16 characters";
    for (const char *c = set.device.serial; c && *c; c++) {
        if (*c <= ' ' || *c > '~')
            return "--serial: only printable ASCII, and no blanks";
    }
    const char *wrong = check_net(&set.device, kinds[set.kind], set.slots > 1 || set.isolate);
    if (!wrong && (set.device.render || set.device.render_node) &&
        kinds[set.kind] != &virtio_gpu_kind)
        wrong = "--render and --render-node require --device virtio-gpu";
    if (!wrong)
        wrong = plans_wrong;
    if (!wrong)
        wrong = check_manager();
    if (!wrong)
        wrong = control_check(set.control, 0, &set.keys);
    return wrong ? wrong : check_fabric();
}

static int open_control(void)
{
    control_proxy proxy = { .user = &the_box,
                            .name = "dxpu-box",
                            .role = DXPU_CONTROL_ROLE_BOX,
                            .node = the_box.node,
                            .slots = (uint16_t)set.slots,
                            .screenshot = shards_screenshot,
                            .bind = shards_bind,
                            .unbind = shards_unbind,
                            .reset = shards_reset,
                            .drain = shards_drain,
                            .direct = shards_direct,
                            .plug = shards_plug,
                            .slot = shards_describe };
    manager_proxy link = { &the_box, shards_device, slots_paths, shards_node, shards_directs };
    if (!set.control && !set.manager.address)
        return 0;
    the_box.requests = requests_open(&proxy);
    if (!the_box.requests)
        return -1;
    the_box.shots = shots_open(&the_box);
    if (!the_box.shots)
        return -1;
    if (set.control)
        the_box.control =
            control_open(the_box.base, set.control, 0, the_box.keys, the_box.requests);
    if (set.manager.address)
        the_box.manager = manager_open(the_box.base, &set.manager, the_box.identity, the_box.keys,
                                       the_box.requests, &link);
    leases_tell(&the_box);
    return (set.control && !the_box.control) || (set.manager.address && !the_box.manager) ? -1 : 0;
}

/* Of slots whose model is in this process: others' dxpu-device starts its own.  Before the sandbox,
   as the starter.  0, or -1 after a message and *rc, an exit status. */
static int start_renderers(int *rc)
{
    *rc = PROGRAM_SYSTEM;
    for (unsigned i = 0; i < set.slots; i++) {
        const slot_plan *p = &plans.slot[i];
        const device_settings *d = p->kind ? &p->set : &set.device;
        if ((p->kind ? p->kind : kinds[set.kind]) != &virtio_gpu_kind ||
            (!d->render && !d->render_node))
            continue;
        if (set.sandbox.user) {
            *rc = program_usage("--render cannot be used with --user; start the box as that user");
            return -1;
        }
        if (set.isolate)
            continue;
        if (!the_box.renderers)
            the_box.renderers = calloc(set.slots, sizeof *the_box.renderers);
        if (!the_box.renderers) {
            log_error("out of memory");
            return -1;
        }
        the_box.renderers[i] = render_start(d->render_node, set.sandbox.off);
        if (the_box.renderers[i] < 0)
            return -1;
    }
    return 0;
}

static struct event *starter_over;

/* It ends with the box alone; without it no device is started again. */
static void on_starter(evutil_socket_t fd, short what, void *user)
{
    char any;
    (void)what;
    (void)user;
    if (recv(fd, &any, 1, MSG_DONTWAIT) != 0)
        return;
    log_error("--isolate: the process that starts devices is gone, and they with it; restart the "
              "box");
    (void)event_del(starter_over);
}

/* 0, or an exit status after a message. */
static int watch_starter(void)
{
    if (!the_box.starter)
        return PROGRAM_GOOD;
    starter_seal(the_box.starter);
    starter_over = event_new(the_box.base, the_box.starter, EV_READ | EV_PERSIST, on_starter, NULL);
    if (starter_over && !event_add(starter_over, NULL))
        return PROGRAM_GOOD;
    log_error("out of memory");
    return PROGRAM_SYSTEM;
}

/* 0, or an exit status after a message. */
static int open_box(void)
{
    bool wrong;
    int rc;
    the_box.count = (unsigned)set.slots;
    the_box.plans = &plans;
    the_box.hot_plug = set.hot_plug;
    the_box.p2p = set.p2p;
    rc = slots_connectors(&the_box);
    if (rc)
        return rc;
    the_box.keys = set.fabric.keys = keys_open(&set.keys, &wrong);
    if (!the_box.keys)
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    the_box.disk_threads = (unsigned)set.disk_threads;
    the_box.node = set.manager.address ? 0 : (uint32_t)set.node; /* 0: the manager sets it */
    the_box.state_file = set.state;
    the_box.allowed = set.allowed;
    the_box.limit_tlps = set.limit_tlps;
    the_box.limit_bytes = set.limit_bytes;
    the_box.model = set.model;
    the_box.group_slots = (unsigned)set.group_slots;
    the_box.managed = the_box.directed = set.manager.address != NULL;
    if (the_box.managed) {
        rc = identity_file_open(set.manager.identity, the_box.identity);
        if (rc)
            return rc;
    }
    if (shards_open(&the_box, &set.fabric))
        return PROGRAM_SYSTEM;
    rc = slots_open(&the_box, kinds[set.kind], &set.device);
    if (!rc)
        rc = watch_starter();
    if (rc)
        return rc;
    return open_control() || recorder_open(&the_box.record, "--record", set.record) ? PROGRAM_SYSTEM
                                                                                    : PROGRAM_GOOD;
}

static int run_box(void)
{
    shards_say(&the_box);
    warn_of_shared_slots();
    if (!set.keys.plain && !set.manager.address && !keys_count(the_box.keys, KEYS_FABRIC))
        log_warning("no host is authorized; give public keys of hosts with --peer "
                    "or --peers");
    notify_ready("%u slot%s", the_box.count, the_box.count == 1 ? "" : "s");
    return shards_run(&the_box) ? PROGRAM_SYSTEM : PROGRAM_GOOD;
}

static int run_signalled(void)
{
    program_loop loop = { the_box.base, on_stop, on_usr1, on_hup, run_box };
    int rc = PROGRAM_SYSTEM;
    the_reload = reload_new(the_box.base, the_box.keys, on_keys, NULL);
    if (the_reload)
        rc = program_run(&loop);
    reload_free(the_reload);
    return rc;
}

/* A slot may have a file for each of 32 namespaces, or the interrupts of a device of another
   process. */
static void allow_files(void)
{
    uint64_t want = FILES_BESIDE + set.slots * SLOT_FILES;
    if (open_files_allow(want) < want)
        log_warning("%llu open files for all slots are more than allowed; " OPEN_FILES_REMEDY,
                    (unsigned long long)want);
}

int main(int argc, char **argv)
{
    const char *why;
    bool wrong;
    int rc = program_options(&program, argc, argv);
    if (rc != PROGRAM_GO)
        return rc;
    notify_start();
    set.sandbox.network = set.fabric.af_xdp != NULL;
    if (set.isolate && set.sandbox.user)
        return program_usage("--isolate cannot be used with --user; start the box as that user");
    plans_wrong = make_plans();
    if (set.isolate && (the_box.starter = starter_start()) < 0)
        return PROGRAM_SYSTEM;
    if (!plans_wrong && start_renderers(&rc))
        return rc;
    allow_files();
    if (sandbox_start(&set.sandbox, &wrong))
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    why = check(); /* it may ask for addresses of names: S-120 */
    if (why == plan_no_memory) {
        log_error("%s", why);
        return PROGRAM_SYSTEM;
    }
    if (why)
        return program_usage(why);
    console_start();
    rc = open_box();
    if (!rc)
        rc = run_signalled();
    console_end();
    if (the_box.base && the_box.slots) {
        if (set.stats)
            program_log(fill_stats);
        if (set.json && program_print(true, fill_stats))
            rc = PROGRAM_SYSTEM;
    }
    if (recorder_close(&the_box.record))
        rc = PROGRAM_SYSTEM;
    program_end_within(END_MS, "a disk has not answered for 60 s: ended without waiting for it; "
                               "what was not confirmed to a host or to the manager may not be on "
                               "it");
    manager_close(the_box.manager);
    the_box.manager = NULL; /* channels still end */
    control_close(the_box.control);
    shots_close(the_box.shots);
    requests_close(the_box.requests);
    slots_close(&the_box);
    if (starter_over)
        event_free(starter_over);
    if (shards_close(&the_box))
        rc = PROGRAM_SYSTEM;
    keys_close(the_box.keys);
    if (the_box.starter)
        starter_end(the_box.starter);
    plan_free(&plans);
    return rc;
}
