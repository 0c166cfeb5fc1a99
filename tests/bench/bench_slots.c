/* Several devices through one pair of proxies: a port with a channel to each of the first N slots
   of a running dxpu-box, whose memory devices are all read at once.

   With a process and more: what a read costs that box, and its hosts, in processor time, for HOSTS
   hosts, each with SLOTS slots, BUSY of them (all) with READS reads under way; all of them block.
   READS 0: what slots cost that do nothing, HOSTS 0: that have no host.

   usage: bench_slots ROUNDS MILLISECONDS ADDR:PORT FIRST-EPOCH
                      [BOX-PID HOSTS SLOTS CORES READS [BUSY]] */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime, MAP_ANONYMOUS */
#endif
#include "fabric.h"

#include "bench.h"
#include "enumerate.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOGETHER_MAX = 8, DEVICES_MAX = 512, HOSTS_MAX = 64, CORES_MAX = 16 };
enum { DEPTH = 32, READ_BYTES = 256, MPS = 512, MS = 1000000, BAR_BYTES = 65536 };
enum { COMPLETION_HEADERS = 4096, COMPLETION_UNITS = 32768 };
enum { LOOK_NS = MS, PATIENCE_MS = 60000 };
enum { FEW_CHANNELS = 8 }; /* with more, a turn serves those that have work, as a box's port does */
#define BAR_AT     0x8000000000u
#define TIMEOUT_NS 60000000000u

typedef struct device {
    fabric_channel *channel;
    enumerate setup;
    dxpu_tags tags;
    dxpu_tag_entry entries[DEPTH];
    bool asked;
    uint32_t at; /* of the next read */
    uint64_t bytes;
} device;

/* What a host did while it was measured. */
typedef struct work {
    double cpu_ns;
    uint64_t reads, frames;
} work;

/* What hosts and the process that started them share. */
typedef struct common {
    atomic_uint ready, finished;
    atomic_bool go, may_close;
    work of[HOSTS_MAX];
} common;

typedef struct usage {
    double ns;
    uint64_t waits; /* times that it gave its core away */
} usage;

/* How a box is measured. */
typedef struct plan {
    unsigned hosts, slots, cores, depth, busy;
    long box_pid;
} plan;

static fabric port;
static device devices[DEVICES_MAX], *by_index[FABRIC_CHANNELS_MAX];
static unsigned count, busy = DEVICES_MAX, depth = DEPTH;
static uint64_t begin_ns, end_ns, length_ns;
static bool finished, closing;
static common *shared; /* NULL: this process is alone */
static work *own, before;

static void submit(device *d, dxpu_tlp *t, uint64_t now)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    int tag = dxpu_tags_alloc(&d->tags);
    t->tag = (uint16_t)tag;
    bench_must(tag >= 0 && dxpu_tlp_encode(t, out, sizeof out, &tlp.len) == DXPU_OK &&
                   dxpu_channel_submit(&d->channel->ch, tlp, now, 0) == DXPU_OK,
               "submit");
}

static void read_next(device *d, uint64_t now)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 4;
    t.address = BAR_AT + d->at;
    t.length_dw = READ_BYTES / 4;
    t.first_be = t.last_be = 0xf;
    d->at = (d->at + READ_BYTES) % BAR_BYTES;
    submit(d, &t, now);
}

static void take(device *d, uint64_t now)
{
    dxpu_delivery got;
    while ((got = dxpu_channel_peek(&d->channel->ch, DXPU_COMPLETION)).tlp.len) {
        dxpu_tlp t;
        bench_must(dxpu_tlp_decode(got.tlp, &t) == DXPU_OK, "a completion");
        if (d->asked)
            enumerate_answer(&d->setup, &t, 0);
        else
            d->bytes += t.status == DXPU_CPL_SC ? t.payload.len : 0;
        d->asked = false;
        dxpu_channel_take(&d->channel->ch, DXPU_COMPLETION, now);
    }
}

static bool all_ready(void)
{
    for (unsigned i = 0; i < count; i++) {
        if (!devices[i].channel->up || !enumerate_done(&devices[i].setup))
            return false;
    }
    return true;
}

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    device *d = by_index[c->id & FABRIC_INDEX_MASK];
    (void)user;
    take(d, now);
    bench_must(!d->setup.why, "a device cannot be set up");
    if (!d->asked && !enumerate_done(&d->setup)) {
        dxpu_tlp t;
        uint8_t payload[4];
        if (enumerate_request(&d->setup, &t, payload)) {
            submit(d, &t, now);
            d->asked = true;
        }
    }
    while (begin_ns && now < end_ns && d < devices + busy && d->tags.in_flight < depth)
        read_next(d, now);
    return false;
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
    bench_must(end_ns && now >= end_ns, "a channel was lost");
    if (!fabric_busy(&port))
        fabric_stop(&port);
}

static uint64_t on_next_ns(void *user)
{
    (void)user;
    if (closing)
        return DXPU_NEVER;
    if (begin_ns && !finished)
        return end_ns;
    return begin_ns || (shared && all_ready()) ? dxpu_udp_now_ns() + LOOK_NS : DXPU_NEVER;
}

static work done(void)
{
    work w = { bench_cpu_ns(), 0, 0 };
    for (unsigned i = 0; i < count; i++) {
        const dxpu_counters *n = &devices[i].channel->ch.count;
        w.reads += devices[i].bytes / READ_BYTES;
        w.frames += n->tx_frames + n->rx_frames;
    }
    return w;
}

/* All hosts begin together, once each has set up its devices. */
static bool may_begin(void)
{
    static bool said;
    if (!all_ready())
        return false;
    if (!shared)
        return true;
    if (!said)
        atomic_fetch_add(&shared->ready, 1);
    said = true;
    return atomic_load(&shared->go);
}

/* What the box spends on the end of a channel is no part of what is measured. */
static void finish(void)
{
    if (own && !finished) {
        *own = done();
        atomic_fetch_add(&shared->finished, 1);
    }
    finished = true;
    closing = !own || atomic_load(&shared->may_close);
    if (closing)
        fabric_close_all(&port, DXPU_REASON_DETACH);
}

static void on_tick(void *user, uint64_t now)
{
    (void)user;
    if (!begin_ns && may_begin()) {
        begin_ns = now;
        end_ns = now + length_ns;
        if (own)
            before = done();
        for (unsigned i = 0; i < count; i++)
            devices[i].channel->more = true; /* its first reads */
        fabric_stir(&port);
    } else if (begin_ns && now >= end_ns && !closing) {
        finish();
    }
}

static void dial(device *d, uint16_t node, uint64_t epoch, uint16_t slot, const dxpu_udp_path *path)
{
    dxpu_channel_config cfg;
    memset(d, 0, sizeof *d);
    bench_must(dxpu_tags_init(&d->tags, d->entries, DEPTH, 0, DXPU_TAGS_32, TIMEOUT_NS) == DXPU_OK,
               "tags");
    enumerate_start(&d->setup, BAR_AT, MPS);
    dxpu_channel_config_default(&cfg);
    cfg.epoch = epoch;
    cfg.local.node = node;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = slot;
    cfg.tags = &d->tags;
    d->channel = fabric_dial(&port, &cfg, NULL, path, 1, dxpu_udp_now_ns());
    bench_must(d->channel != NULL, "dial");
    by_index[d->channel->id & FABRIC_INDEX_MASK] = d;
}

static void open_port(unsigned wait)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { NULL, NULL, on_up, on_work, on_down, on_next_ns, on_tick, NULL, NULL };
    set.wait = wait;
    set.keys = keys_none();
    set.hold_ms = 10000; /* on a loaded machine no host is lost */
    begin_ns = end_ns = 0;
    finished = closing = false;
    bench_must(!fabric_open(&port, &set, DEVICES_MAX, &cb), "a port");
    port.few = FEW_CHANNELS;
}

/* Megabytes a second of all, beside those of one device; the least and the most that one of them
   had, beside the fair share. */
static void measure(const dxpu_udp_address *box, uint64_t epoch)
{
    dxpu_udp_path path;
    static double alone;
    uint64_t all = 0, least = UINT64_MAX, most = 0;
    double seconds = (double)length_ns / 1e9;
    char row[64];
    open_port(DXPU_UDP_BUSY);
    port.base.rx.header[DXPU_COMPLETION] = COMPLETION_HEADERS;
    port.base.rx.data[DXPU_COMPLETION] = COMPLETION_UNITS;
    bench_must(fabric_route(&port, box, 1, &path) == DXPU_OK, "no way to the box");
    for (unsigned i = 0; i < count; i++)
        dial(&devices[i], 1, epoch, (uint16_t)(i + 1), &path);
    bench_must(fabric_run(&port) == 0, "the loop");
    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes = devices[i].bytes;
        all += bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    fabric_close(&port);
    if (count == 1)
        alone = (double)all;
    snprintf(row, sizeof row, "devices %u", count);
    bench_result(row, (double)all / 1e6 / seconds, alone / 1e6 / seconds);
    if (count > 1) {
        snprintf(row, sizeof row, "devices %u, least share", count);
        bench_result(row, (double)least * count / (double)all, 1);
        snprintf(row, sizeof row, "devices %u, largest share", count);
        bench_result(row, (double)most * count / (double)all, 1);
    }
    fflush(stdout);
}

/* ==== What a box and its hosts pay ============================================================ */

/* The number after these words, at the begin of a line. */
static unsigned long long number_after(const char *words, const char *path)
{
    char line[256], *rest = NULL;
    size_t len = strlen(words);
    FILE *file = fopen(path, "r");
    bench_must(file != NULL, path);
    while (!rest && fgets(line, sizeof line, file))
        rest = strncmp(line, words, len) ? NULL : line + len;
    fclose(file);
    bench_must(rest != NULL, path);
    return strtoull(rest, NULL, 10);
}

/* Of all its threads. */
static usage usage_of(long pid)
{
    usage sum = { 0, 0 };
    char tasks[64], path[sizeof tasks + 300];
    struct dirent *task;
    DIR *dir;
    snprintf(tasks, sizeof tasks, "/proc/%ld/task", pid);
    dir = opendir(tasks);
    bench_must(dir != NULL, tasks);
    while ((task = readdir(dir))) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/schedstat", tasks, task->d_name);
        sum.ns += (double)number_after("", path);
        snprintf(path, sizeof path, "%s/%s/status", tasks, task->d_name);
        sum.waits += number_after("voluntary_ctxt_switches:", path);
    }
    closedir(dir);
    return sum;
}

/* One host, a process of its own. */
static void serve(const plan *p, const dxpu_udp_address *box, unsigned host, uint64_t epoch)
{
    dxpu_udp_path path[CORES_MAX];
    own = &shared->of[host];
    count = p->slots;
    depth = p->depth;
    busy = p->busy;
    open_port(DXPU_UDP_BLOCK);
    for (unsigned i = 0; i < p->cores; i++) {
        dxpu_udp_address at = *box;
        bench_must(fabric_port_further(&at, i) && fabric_route(&port, &at, 1, &path[i]) == DXPU_OK,
                   "no way to the box");
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned slot = host * count + i;
        dial(&devices[i], (uint16_t)(host + 1), epoch, (uint16_t)(slot + 1),
             &path[slot % p->cores]);
    }
    bench_must(fabric_run(&port) == 0, "the loop");
    own->cpu_ns -= before.cpu_ns;
    own->frames -= before.frames;
    fabric_close(&port);
}

static void milliseconds(unsigned long n)
{
    struct timespec t = { (time_t)(n / 1000), (long)(n % 1000) * MS };
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

/* Until all hosts have counted themselves there. */
static void wait_for(atomic_uint *those, unsigned hosts)
{
    for (unsigned ms = 0; atomic_load(those) < hosts; ms++) {
        bench_must(ms < PATIENCE_MS && waitpid(-1, NULL, WNOHANG) <= 0, "a host");
        milliseconds(1);
    }
}

static void measure_costs(const plan *p, const dxpu_udp_address *box, uint64_t epoch)
{
    work all = { 0, 0, 0 };
    usage begin, end;
    memset(shared, 0, sizeof *shared);
    for (unsigned i = 0; i < p->hosts; i++) {
        pid_t child = fork();
        bench_must(child >= 0, "fork");
        if (!child) {
            serve(p, box, i, epoch);
            exit(0);
        }
    }
    wait_for(&shared->ready, p->hosts);
    begin = usage_of(p->box_pid);
    atomic_store(&shared->go, true);
    milliseconds((unsigned long)(length_ns / MS));
    wait_for(&shared->finished, p->hosts);
    end = usage_of(p->box_pid);
    atomic_store(&shared->may_close, true);
    for (unsigned i = 0; i < p->hosts; i++) {
        int status;
        bench_must(wait(&status) > 0 && status == 0, "a host");
        all.cpu_ns += shared->of[i].cpu_ns;
        all.reads += shared->of[i].reads;
        all.frames += shared->of[i].frames;
    }
    bench_result("box ns", end.ns - begin.ns, 0);
    bench_result("box waits", (double)(end.waits - begin.waits), 0);
    bench_result("hosts ns", all.cpu_ns, 0);
    bench_result("reads", (double)all.reads, 0);
    bench_result("frames", (double)all.frames, 0);
}

static unsigned number(const char *text, unsigned low, unsigned high)
{
    unsigned long n = strtoul(text, NULL, 10);
    bench_must(n >= low && n <= high, "HOSTS SLOTS CORES READS BUSY");
    return (unsigned)n;
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    dxpu_udp_address box;
    uint64_t epoch = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    bench_must(epoch && !dxpu_udp_parse(argv[3], &box), "ADDR:PORT FIRST-EPOCH");
    length_ns = a.count * (uint64_t)MS;
    if (argc > 9) {
        plan p = { number(argv[6], 0, HOSTS_MAX),
                   number(argv[7], 1, DEVICES_MAX),
                   number(argv[8], 1, CORES_MAX),
                   number(argv[9], 0, DEPTH),
                   argc > 10 ? number(argv[10], 1, DEVICES_MAX) : DEVICES_MAX,
                   strtol(argv[5], NULL, 10) };
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        bench_must(shared != MAP_FAILED, "memory");
        for (unsigned r = 0; r < a.rounds; r++)
            measure_costs(&p, &box, epoch++);
        return 0;
    }
    for (unsigned r = 0; r < a.rounds; r++) {
        for (count = 1; count <= TOGETHER_MAX; count *= 2)
            measure(&box, epoch++);
    }
    return 0;
}
