/* dxpu-manager - knows the pool: which box slot is lent to which host, for whom
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api.h"
#include "log.h"
#include "api_head.h"
#include "audit.h"
#include "console.h"
#include "core.h"
#include "etcd_gateway.h"
#include "fabric.h"
#include "follow.h"
#include "notify.h"
#include "open_files.h"
#include "program.h"
#include "sandbox.h"
#include "store_copy.h"
#include "wire.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_OF(number) TEXT(number)
#define TEXT(text)      #text

enum {
    CHECK_MS = 500,
    RETENTION_S_MAX = 1000000000,
    FILES_BESIDE = 64 /* descriptors beside the connections: store, listeners, libevent */
};

#define FOLDER "/var/lib/dxpu"

static struct {
    const char *listen, *http, *tokens, *store, *audit, *export, *import;
    store_etcd_settings etcd;
    uint64_t grace_ms, reach_ms, retention_s, heartbeat_ms, status_ms, default_quota, events,
        connections, http_connections, http_waiting, http_streams, nodes, slots;
    sandbox_settings sandbox;
    bool shared_hosts, no_direct, json, stats, standby;
    const char *users_at;
    keys_settings keys;
} set = { "127.0.0.1:4457",
          "127.0.0.1:4456",
          NULL,
          NULL,
          NULL,
          NULL,
          NULL,
          { NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, 0, 0, 0, 0, 0 },
          CORE_GRACE_MS,
          CORE_REACH_MS,
          CORE_RETENTION_S,
          1000,
          5000,
          POOL_NONE,
          10000,
          4096,
          512,
          256,
          64,
          65536,
          1048576,
          { NULL, false, false },
          false,
          false,
          false,
          false,
          false,
          NULL,
          { NULL, NULL, NULL, false, false } };

static const option_row rows[] = {
    { "listen", "ADDR:PORT", "address where proxies register (127.0.0.1:4457)", OPTION_TEXT,
      &set.listen, 0, 0 },
    { "http", "ADDR:PORT", "address of the HTTP and JSON interface (127.0.0.1:4456)", OPTION_TEXT,
      &set.http, 0, 0 },
    { "tokens", "FILE",
      "tokens of users: lines of ROLE TENANT TOKEN [name=] [expires=] (every client, on loopback "
      "only)",
      OPTION_TEXT, &set.tokens, 0, 0 },
    { "store", "FILE",
      "the pool's tables, or etcd://HOST[:PORT][,HOST...][/PREFIX] (" FOLDER
      "/manager.db; not root: dxpu-manager.db here)",
      OPTION_TEXT, &set.store, 0, 0 },
    { "etcd-ca", "FILE", "certificates that sign those of etcd (no TLS, on loopback only)",
      OPTION_TEXT, &set.etcd.ca, 0, 0 },
    { "etcd-cert", "FILE", "certificate of this manager for etcd (none)", OPTION_TEXT,
      &set.etcd.cert, 0, 0 },
    { "etcd-key", "FILE", "secret key of that certificate", OPTION_TEXT, &set.etcd.key, 0, 0 },
    { "standby", NULL, "answer reads while another manager leads, and take its place when it ends",
      OPTION_FLAG, &set.standby, 0, 0 },
    { "users-at", "URL",
      "URL of this manager for users, to which standbys redirect them (none: standbys refuse)",
      OPTION_TEXT, &set.users_at, 0, 0 },
    { "export", "FILE", "write the records of the store to this file, and exit", OPTION_TEXT,
      &set.export, 0, 0 },
    { "import", "FILE", "read records into a store that has none, and exit", OPTION_TEXT,
      &set.import, 0, 0 },
    { "grace-ms", "MS", "grace period before an unreachable box is marked broken (30000)",
      OPTION_NUMBER, &set.grace_ms, 100, 86400000 },
    { "reach-ms", "MS",
      "how long a box may fail to bind, or to answer a host, before the lease moves (10000)",
      OPTION_NUMBER, &set.reach_ms, 100, 3600000 },
    { "retention", "SECONDS",
      "how long retained data are kept; 0: no limit (" TEXT_OF(CORE_RETENTION_S) ")", OPTION_NUMBER,
      &set.retention_s, 0, RETENTION_S_MAX },
    { "heartbeat-ms", "MS", "heartbeat interval of proxies (1000)", OPTION_NUMBER,
      &set.heartbeat_ms, 50, 60000 },
    { "status-ms", "MS", "interval of counter requests to proxies (5000)", OPTION_NUMBER,
      &set.status_ms, 100, 3600000 },
    { "default-quota", "SLOTS", "quota of a tenant without one of its own (no limit)",
      OPTION_NUMBER, &set.default_quota, 0, POOL_NONE },
    { "shared-hosts", NULL, "tenants may use hosts without an owner, too", OPTION_FLAG,
      &set.shared_hosts, 0, 0 },
    { "no-direct", NULL,
      "devices of all leases reach one another through their hosts alone (dxpu-host --p2p)",
      OPTION_FLAG, &set.no_direct, 0, 0 },
    { "events", "N", "number of events kept (10000)", OPTION_NUMBER, &set.events, 100, 10000000 },
    { "connections", "N", "maximum connections of proxies (4096)", OPTION_NUMBER, &set.connections,
      1, 1000000 },
    { "http-connections", "N", "maximum HTTP connections of users with a token (512)",
      OPTION_NUMBER, &set.http_connections, 4, 100000 },
    { "http-waiting", "N", "maximum HTTP requests that wait for a lease (256)", OPTION_NUMBER,
      &set.http_waiting, 1, 100000 },
    { "http-streams", "N", "maximum HTTP streams of events (64)", OPTION_NUMBER, &set.http_streams,
      1, 100000 },
    { "nodes", "N", "maximum boxes and hosts (65536)", OPTION_NUMBER, &set.nodes, 1, 1000000 },
    { "slots", "N", "maximum slots of all boxes and hosts together (1048576)", OPTION_NUMBER,
      &set.slots, 1, 8000000 },
    KEYS_OPTIONS(set.keys),
    AUDIT_OPTION(set.audit),
    SANDBOX_OPTIONS(set.sandbox),
    { "stats", NULL, "print statistics on stderr at exit, in the format of --log", OPTION_FLAG,
      &set.stats, 0, 0 },
    { "json", NULL, "print statistics as one JSON object on stdout at exit", OPTION_FLAG, &set.json,
      0, 0 },
};

static option_program program = {
    "dxpu-manager",
    "lends the slots of boxes to hosts, for tenants",
    NULL,
    rows,
    sizeof rows / sizeof rows[0],
    "SIGUSR1 prints statistics, SIGHUP reloads --tokens and --peers and reopens --audit, "
    "Ctrl-C\n"
    "stops; hosts and boxes continue.\n"
    "exit status: 0 stopped on request, 2 usage, 3 system error, 4 the store cannot be used now,\n"
    "5 the store is damaged, or not this manager's\n",
    NULL,
    0,
    NULL
};

static struct {
    struct event_base *base;
    struct event *due, *hangup;
    store *store;
    core *core;
    wire *wire;
    keys *keys;
    api *api;
    audit *audit;
    uint64_t start_ns,
        check_ms; /* when to look again whether the store is still there (etcd_now_ms()) */
    bool stopping, store_failed;
    bool waited;        /* as a standby */
    histogram turns_ns; /* of the loop: what each took of a processor */
} the;

/* Signals that arrived before the loop catches them. */
static struct {
    volatile sig_atomic_t stop, hangup, usr1;
} early;

/* ==== Statistics ============================================================================== */

static void report_pool(report *r)
{
    const pool *p = core_pool(the.core);
    uint32_t models = 0;
    (void)core_models(the.core, &models);
    uint32_t(*of)[POOL_STATES] = calloc(models + 1, sizeof *of);
    if (of)
        core_count_slots(the.core, of);
    report_open(r, "pool");
    report_number(r, "boxes", p->boxes);
    report_number(r, "hosts", p->hosts);
    report_number(r, "slots", p->slots);
    report_number(r, "leases", p->leases);
    report_number(r, "epoch", p->epoch);
    for (unsigned state = 0; state < POOL_STATES; state++) {
        uint64_t count = 0;
        for (uint32_t m = 0; of && m < models; m++)
            count += of[m][state];
        report_number(r, pool_state_name(state), count);
    }
    report_close(r);
    free(of);
}

static void fill_stats(report *r)
{
    report_number(r, "uptime_s", (dxpu_udp_now_ns() - the.start_ns) / 1000000000u);
    report_pool(r);
    wire_report(the.wire, r);
    store_report(the.store, r);
    report_open(r, "loop");
    report_histogram(r, "turn_us", &the.turns_ns);
    report_close(r);
    if (the.audit) {
        char head[AUDIT_HASH_TEXT_BYTES];
        report_open(r, "audit");
        report_number(r, "lines", audit_lines(the.audit));
        report_number(r, "lost", audit_lost(the.audit));
        report_text(r, "head", audit_head(the.audit, head));
        report_close(r);
    }
}

/* ==== Callbacks =============================================================================== */

static void on_stop(void)
{
    the.stopping = true;
}

static void on_usr1(void)
{
    program_log(fill_stats);
}

static void on_hangup(evutil_socket_t number, short what, void *user)
{
    (void)number;
    (void)what;
    (void)user;
    (void)audit_reopen(the.audit);
    if (set.tokens && api_reload(the.api))
        log_note("the tokens are reloaded");
    else if (set.tokens)
        log_warning("the tokens are unchanged: the new ones were refused");
    if (set.keys.peers && !keys_reload(the.keys))
        wire_recheck(the.wire);
}

static void on_due(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user; /* settle() follows */
}

/* "dxpu-manager: slot.broken 10.3, lease c00000003: its box is unreachable" */
static void say(const core_event *e)
{
    char about[64] = "";
    int len = 0;
    if (e->slot)
        len = snprintf(about, sizeof about, " %u.%u", e->node, e->slot);
    else if (e->node)
        len = snprintf(about, sizeof about, " %u", e->node);
    if (e->lease)
        snprintf(about + len, sizeof about - (size_t)len, "%s lease %llx", len ? "," : "",
                 (unsigned long long)e->lease);
    log_info("%s%s: %s", core_event_name(e->type), about, e->text);
}

static void audit_event(const core_event *e)
{
    char lease[24];
    const audit_field fields[] = { { "event", NULL, e->number }, { "node", NULL, e->node },
                                   { "slot", NULL, e->slot },    { "lease", lease, 0 },
                                   { "tenant", e->tenant, 0 },   { "text", e->text, 0 } };
    snprintf(lease, sizeof lease, "%llx", (unsigned long long)e->lease);
    audit_write(the.audit, core_event_name(e->type), fields, sizeof fields / sizeof fields[0]);
}

static void on_asked(void *user, const api_asked *what)
{
    const audit_field fields[] = {
        { "role", what->role, 0 },        { "tenant", what->tenant, 0 },
        { "token", what->token, 0 },      { "from", what->from, 0 },
        { "method", what->method, 0 },    { "target", what->target, 0 },
        { "status", NULL, what->status }, { "unwritten", NULL, what->left_out }
    };
    (void)user;
    log_debug("%s %s from %s: %llu", what->method, what->target, what->from,
              (unsigned long long)what->status);
    audit_write(the.audit, "api.request", fields,
                sizeof fields / sizeof fields[0] - !what->left_out);
}

static void on_event(void *user, const core_event *e)
{
    (void)user;
    audit_event(e);
    if (log_shows(LOG_AT_INFO))
        say(e);
    if (the.api)
        api_event(the.api, e);
}

static void on_status(void *user, uint32_t node, const dxpu_control_status *st)
{
    (void)user;
    if (the.api)
        api_report(the.api, node, st);
}

static void on_clock(void *user)
{
    (void)user;
    wire_clock(the.core);
}

/* Also of a request that waited while this program was stopped. */
static bool on_doubt(void *user)
{
    (void)user;
    return !store_is_sure(the.store);
}

static void on_changed(void *user)
{
    (void)user; /* settle() follows */
}

static void on_early(int number)
{
    if (number == SIGHUP)
        early.hangup = 1;
    else if (number == SIGUSR1)
        early.usr1 = 1;
    else
        early.stop = 1;
}

/* A standby waits for long; until the loop runs no signal may end it but by its own way. */
static void catch_early(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    struct sigaction how = { .sa_handler = on_early, .sa_flags = SA_RESTART };
    (void)sigemptyset(&how.sa_mask);
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaction(numbers[i], &how, NULL); /* fails for wrong arguments only */
}

static bool stopped_early(void)
{
    if (early.stop && !the.stopping) {
        notify_stopping();
        the.stopping = true;
    }
    return the.stopping;
}

/* What the signals asked for, now that the loop catches them. */
static void take_early(void)
{
    (void)stopped_early();
    if (early.hangup)
        on_hangup(SIGHUP, EV_SIGNAL, NULL);
    if (early.usr1)
        on_usr1();
    early.hangup = early.usr1 = 0;
}

/* ==== The loop ================================================================================ */

/* How long the store may go without a look. */
static unsigned check_within(void)
{
    unsigned within = store_check_ms(the.store);
    return within < CHECK_MS ? within : CHECK_MS;
}

/* Nothing more is acknowledged when somebody has removed its file, or another manager leads. */
static bool check_store(void)
{
    store_fault fault;
    uint64_t now = etcd_now_ms();
    if (now < the.check_ms)
        return true;
    store_error rc = store_check(the.store, &fault);
    the.check_ms = now + check_within();
    if (rc == STORE_OK)
        return true;
    log_error("%s", fault.text);
    return false;
}

static void say_serving(void)
{
    notify_ready("users at http://%s", api_address(the.api));
}

/* Say once that the store fails, and once that it works again.  False: it has to be opened again,
   which is left to whoever starts this program. */
static bool watch_store(void)
{
    char text[256];
    store_fault fault;
    bool failed = core_store_failed(the.core, text);
    if (failed && !the.store_failed) {
        log_error("%s", text);
        notify_status("%s", text);
    }
    if (!failed && the.store_failed) {
        log_note("the store can be written again");
        say_serving();
    }
    the.store_failed = failed;
    if (!failed || store_commit(the.store, NULL, 0, &fault) != STORE_E_IO)
        return check_store();
    log_error("%s", fault.text);
    return false;
}

/* Can the core go on?  False: whoever starts this program has to. */
static bool watch_core(void)
{
    char text[256];
    if (!watch_store())
        return false;
    if (!core_is_dead(the.core))
        return true;
    (void)core_store_failed(the.core, text);
    log_error("%s; start again", text);
    return false;
}

/* Wakes for the core, and for the store: however quiet the pool is, a lease of etcd is renewed. */
static void set_due(uint64_t now)
{
    uint64_t next = core_next_ms(the.core);
    uint64_t wait = next > now ? next - now : 1;
    unsigned within = check_within();
    if (wait > within)
        wait = within;
    struct timeval tv = { 0, (suseconds_t)(wait * 1000) };
    (void)event_add(the.due, &tv);
}

/* What follows from the callbacks that ran: what is due, orders, and when to wake.  False: the
   store cannot be used any more. */
static bool settle(void)
{
    uint64_t now = dxpu_udp_now_ns() / 1000000u;
    wire_clock(the.core);
    if (!check_store()) /* one that was stopped for long may not lead any more: no order leaves */
        return false;
    if (core_next_ms(the.core) <= now)
        core_tick(the.core);
    wire_pump(the.wire);
    if (!watch_core())
        return false;
    if (set.standby && wire_is_cut_off(the.wire)) {
        log_error("all proxies fell silent: giving up the lead, as another manager may reach them; "
                  "restart this one");
        return false; /* closing the store gives the lead up */
    }
    set_due(now);
    return true;
}

/* Of this thread. */
static uint64_t processor_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int run_manager(void)
{
    say_serving();
    take_early();
    uint64_t begin_ns = processor_ns();
    while (!the.stopping) {
        if (!settle()) {
            (void)event_base_loop(the.base, EVLOOP_NONBLOCK); /* answers that say so */
            return PROGRAM_STORE;
        }
        if (event_base_loop(the.base, EVLOOP_ONCE) < 0) {
            log_error("cannot wait for events: %s", strerror(errno));
            return PROGRAM_SYSTEM;
        }
        uint64_t end_ns = processor_ns();
        histogram_add(&the.turns_ns, end_ns - begin_ns);
        begin_ns = end_ns;
    }
    return PROGRAM_GOOD;
}

/* ==== Opening ================================================================================= */

/* As many descriptors as connections may be asked for. */
static int raise_files(void)
{
    unsigned users = (unsigned)set.http_connections;
    uint64_t want = set.connections + users + api_lobby(users) + FILES_BESIDE;
    uint64_t allowed = open_files_allow(want);
    if (allowed >= want)
        return 0;
    log_error("--connections %llu and --http-connections %u need %llu open files, and %llu are "
              "allowed: ask for fewer, or " OPEN_FILES_REMEDY,
              (unsigned long long)set.connections, users, (unsigned long long)want,
              (unsigned long long)allowed);
    return -1;
}

static const char *store_path(void)
{
    if (set.store)
        return set.store;
    if (geteuid())
        return "dxpu-manager.db";
    (void)mkdir(FOLDER, 0700); /* opening the store reports what is wrong with it */
    return FOLDER "/manager.db";
}

/* Will the same file be as bad when this program is started again? */
static int store_status(store_error code)
{
    if (code == STORE_E_MEMORY)
        return PROGRAM_SYSTEM;
    return code == STORE_E_CORRUPT || code == STORE_E_FOREIGN || code == STORE_E_NEWER
               ? PROGRAM_DAMAGED
               : PROGRAM_STORE;
}

/* NULL, or what is wrong with the options about the store. */
static const char *check_store_options(void)
{
    const store_etcd_settings given = set.etcd;
    bool etcd = set.store && store_etcd_is(set.store);
    if (set.export && set.import)
        return "--export and --import cannot be used together";
    if (!etcd && (given.ca || given.cert || given.key || set.standby))
        return "--etcd-ca, --etcd-cert, --etcd-key and --standby need --store etcd://...";
    if (set.standby && (set.export || set.import))
        return "--export and --import cannot be used with --standby";
    if (!etcd)
        return NULL;
    store_etcd_default(&set.etcd);
    set.etcd.where = set.store;
    set.etcd.ca = given.ca;
    set.etcd.cert = given.cert;
    set.etcd.key = given.key;
    return store_etcd_check(&set.etcd);
}

/* Whom another manager names that finds the store in use. */
/* For people: the process, and where it serves users, if that is not said in another way. */
static const char *own_name(void)
{
    static char name[STORE_NAME_BYTES];
    char host[32];
    size_t len = set.http ? strlen(set.http) : 0;
    bool is_fixed = len > 2 && strcmp(set.http + len - 2, ":0") != 0 && !set.users_at;
    if (gethostname(host, sizeof host))
        host[0] = 0;
    host[sizeof host - 1] = 0;
    snprintf(name, sizeof name, "%s.%ld%s%.60s%s", host[0] ? host : "dxpu-manager", (long)getpid(),
             is_fixed ? " (http://" : "", is_fixed ? set.http : "", is_fixed ? ")" : "");
    return name;
}

static api_settings users_settings(void)
{
    api_settings users;
    api_settings_default(&users);
    users.at = set.http;
    users.tokens = set.tokens;
    users.connections = (unsigned)set.http_connections;
    users.waiting = (unsigned)set.http_waiting;
    users.streams = (unsigned)set.http_streams;
    users.shared_hosts = set.shared_hosts;
    return users;
}

static core_settings tables_settings(void)
{
    core_settings settings;
    core_settings_default(&settings);
    settings.grace_ms = set.grace_ms;
    settings.reach_ms = set.reach_ms;
    settings.retention_ms = set.retention_s * 1000;
    settings.default_quota = (uint32_t)set.default_quota;
    settings.no_direct = set.no_direct;
    settings.events = (uint32_t)set.events;
    settings.nodes = (uint32_t)set.nodes;
    settings.slots = (uint32_t)set.slots;
    return settings;
}

/* Reads are answered, with tokens of now. */
static void serve_readers(const char *leader)
{
    static follow_settings reads;
    reads = (follow_settings){ set.etcd, tables_settings(), users_settings() };
    reads.etcd.waiting = NULL;
    reads.etcd.reader = reads.tables.reader = true;
    reads.users.asked = on_asked;
    if (early.hangup || !leader)
        follow_stop();
    if (early.hangup)
        (void)audit_reopen(the.audit);
    early.hangup = 0;
    if (leader)
        follow_start(&reads);
}

enum { STANDBY_SAYS_MS = 60000 }; /* why it cannot use etcd */

/* A standby's port for proxies is closed, so that they go on to the manager that leads. */
static bool wait_for_lead(const char *leader, const char *why)
{
    static char said[STORE_NAME_BYTES];
    static uint64_t said_ms; /* a reason names a member, another one each time */
    const char *who = leader ? leader : "";
    uint64_t now = etcd_now_ms();
    if (stopped_early())
        return false;
    if (!leader || *leader)
        serve_readers(leader);
    if (the.waited && strcmp(said, who) == 0 && !early.usr1 &&
        (leader || now - said_ms < STANDBY_SAYS_MS))
        return true;
    said_ms = now;
    early.usr1 = 0;
    snprintf(said, sizeof said, "%s", who);
    the.waited = true;
    if (leader)
        log_note("standby: %s leads", leader);
    else
        log_warning("standby: %s; trying again", why);
    notify_ready("standby: %s", leader ? leader : "etcd cannot be used");
    return true;
}

static int open_tables(void)
{
    store_fault fault;
    (void)umask(077);
    set.etcd.name = own_name();
    set.etcd.waiting = set.standby ? wait_for_lead : NULL;
    set.etcd.users = set.users_at;
    the.store = set.etcd.where ? store_open_etcd(&set.etcd, &fault)
                               : store_open_sqlite(store_path(), &fault);
    follow_stop(); /* the port is this one's now */
    if (the.store || the.stopping)
        return PROGRAM_GOOD;
    log_error("%s", fault.text);
    return store_status(fault.code);
}

/* Prints how old an imported file is: later changes are lost. */
static void say_age(const char *file)
{
    struct stat st;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (stat(file, &st) == 0 && now.tv_sec >= st.st_mtime)
        log_note("the file was last modified %lld s ago; later changes are not in it; when boxes "
                 "and hosts have registered, 'dxpu adopt --all --dry-run' lists the leases that it "
                 "lacks",
                 (long long)(now.tv_sec - st.st_mtime));
}

/* --export and --import; only an export from etcd is made while a manager runs. */
static int copy_store(void)
{
    store_fault fault;
    uint64_t records;
    set.etcd.reader = set.export != NULL;
    if (set.export && !set.etcd.where && access(store_path(), F_OK)) { /* opening would make it */
        log_error("cannot open %s: %s; name the store of a manager", store_path(), strerror(errno));
        return PROGRAM_STORE;
    }
    int rc = open_tables();
    if (rc)
        return rc;
    store_error done = set.export ? store_export(the.store, set.export, &records, &fault)
                                  : store_import(the.store, set.import, &records, &fault);
    store_close(the.store);
    the.store = NULL;
    if (done != STORE_OK) {
        log_error("%s", fault.text);
        return done == STORE_E_ARG ? PROGRAM_USAGE : store_status(done);
    }
    log_note("%llu records %s %s", (unsigned long long)records,
             set.export ? "written to" : "read from", set.export ? set.export : set.import);
    if (set.import)
        say_age(set.import);
    return PROGRAM_GOOD;
}

/* A standby may have read its files long ago. */
static void refresh(void)
{
    early.hangup = 0;
    (void)audit_reopen(the.audit);
    if (set.keys.peers)
        (void)keys_reload(the.keys); /* says itself what is wrong with them */
}

static int open_store(void)
{
    store_fault fault;
    core_settings settings = tables_settings();
    core_result why;
    struct timespec t;
    int rc = open_tables();
    if (rc || the.stopping)
        return rc;
    if (the.waited)
        refresh();
    store_error unfinished = store_check_import(the.store, &fault);
    if (unfinished != STORE_OK) {
        log_error("%s", fault.text);
        return store_status(unfinished);
    }
    settings.salt = (uint64_t)fabric_random() << 32 | fabric_random();
    settings.on_event = on_event;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    the.core =
        core_open(the.store, &settings, (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u,
                  dxpu_udp_now_ns() / 1000000u, &why);
    if (!the.core) {
        log_error("%s", why.text);
        return why.code == CORE_E_DAMAGED  ? PROGRAM_DAMAGED
               : why.code == CORE_E_MEMORY ? PROGRAM_SYSTEM
                                           : PROGRAM_STORE;
    }
    return PROGRAM_GOOD;
}

/* Its proxies have another --manager-key than that of a new key: none gets in, and a file that
   was moved, or a --key forgotten, is remade silently. */
static void warn_of_new_key(void)
{
    uint32_t count, keyed = 0;
    const core_node *node = core_nodes(the.core, &count);
    for (uint32_t i = 0; i < count; i++)
        keyed += node[i].keyed;
    if (keyed && keys_own_new(the.keys))
        log_warning(
            "WARNING: this public key is new, and %u node%s of the store know%s "
            "another; was --key meant to be another file? else give them this --manager-key",
            (unsigned)keyed, keyed == 1 ? "" : "s", keyed == 1 ? "s" : "");
}

static int open_ports(void)
{
    wire_settings proxies;
    api_settings users = users_settings();
    bool wrong;
    wire_settings_default(&proxies);
    proxies.listen = set.listen;
    proxies.keys = the.keys;
    proxies.connections = (unsigned)set.connections;
    proxies.heartbeat_ms = (unsigned)set.heartbeat_ms;
    proxies.status_ms = (unsigned)set.status_ms;
    proxies.on_status = on_status;
    the.wire = wire_open(the.base, the.core, &proxies);
    if (!the.wire)
        return PROGRAM_SYSTEM;
    users.clock = on_clock;
    users.doubtful = on_doubt;
    users.changed = on_changed;
    users.asked = on_asked;
    the.api = api_open(the.base, the.core, &users, &wrong);
    if (!the.api)
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    if (!set.etcd.where)
        log_note("the store is %s", store_path());
    log_note("users at http://%s", api_address(the.api));
    if (!api_is_loopback(api_address(the.api)))
        log_warning("WARNING: --http: tokens go in clear text beyond this machine; "
                    "put a reverse proxy with TLS before it (dxpu-manager(1), NETWORK)");
    if (!set.keys.plain && !keys_count(the.keys, KEYS_BOX) && !keys_count(the.keys, KEYS_HOST))
        log_warning("no key is authorized; give public keys of boxes and hosts with "
                    "--peers (may=box, may=host) or --peer");
    return PROGRAM_GOOD;
}

static int open_manager(void)
{
    int rc;
    bool wrong = false;
    the.start_ns = dxpu_udp_now_ns();
    the.keys = keys_open(&set.keys, &wrong);
    if (!the.keys)
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    if (set.audit) {
        the.audit = audit_open("dxpu-manager", set.audit);
        if (!the.audit)
            return PROGRAM_SYSTEM;
    }
    if (set.standby)
        catch_early();
    rc = open_store();
    if (rc || the.stopping)
        return rc;
    the.base = event_base_new();
    the.due = the.base ? evtimer_new(the.base, on_due, NULL) : NULL;
    the.hangup = the.base ? evsignal_new(the.base, SIGHUP, on_hangup, NULL) : NULL;
    if (!the.due || !the.hangup || event_add(the.hangup, NULL)) {
        log_error("out of memory");
        return PROGRAM_SYSTEM;
    }
    warn_of_new_key();
    return open_ports();
}

static void close_manager(void)
{
    api_close(the.api);
    the.api = NULL; /* no event goes there any more */
    wire_close(the.wire);
    if (the.due)
        event_free(the.due);
    if (the.hangup)
        event_free(the.hangup);
    if (the.base)
        event_base_free(the.base);
    if (the.core)
        core_close(the.core);
    store_close(the.store);
    keys_close(the.keys);
    audit_close(the.audit);
}

int main(int argc, char **argv)
{
    program_loop loop = { NULL, on_stop, on_usr1, NULL, run_manager };
    const char *wrong;
    bool wrong_user = false;
    int rc = program_options(&program, argc, argv);
    if (rc != PROGRAM_GO)
        return rc;
    notify_start();
    if (raise_files() || sandbox_start(&set.sandbox, &wrong_user))
        return wrong_user ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    wrong = keys_check(&set.keys);
    if (!wrong)
        wrong = wire_check(set.listen, &set.keys);
    if (!wrong)
        wrong = api_check(set.http);
    if (!wrong && set.users_at)
        wrong = api_check_users_at(set.users_at);
    if (!wrong)
        wrong = check_store_options();
    if (wrong)
        return program_usage(wrong);
    if (set.export || set.import)
        return copy_store();
    console_start();
    rc = open_manager();
    if (!rc && !the.stopping) {
        loop.base = the.base;
        rc = program_run(&loop);
        console_end();
        if (set.stats)
            program_log(fill_stats);
        if (set.json && program_print(true, fill_stats) && !rc)
            rc = PROGRAM_SYSTEM;
    }
    close_manager();
    return rc;
}
