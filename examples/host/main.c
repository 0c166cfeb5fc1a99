/* dxpu-host - attaches the device of a box's slot and sends it TLPs
   SPDX-License-Identifier: MIT */
#include "bridge.h"
#include "console.h"
#include "log.h"
#include "control.h"
#include "direct.h"
#include "front.h"
#include "guests.h"
#include "load.h"
#include "notify.h"
#include "parent.h"
#include "program.h"
#include "reload.h"
#include "replay.h"
#include "sandbox.h"

static struct {
    fabric_settings fabric;
    link_settings link;
    load_settings load;
    host_settings host;
    manager_settings manager;
    keys_settings keys;
    const char *replay, *card;
    uint64_t repeat;
    bool direct, fill, stats, json;
    sandbox_settings sandbox;
} set = { FABRIC_SETTINGS_DEFAULT(NULL),
          { NULL, 1, 1, 1, 10000, 10000, 0, LINK_TAGS, NULL },
          { LOAD_NONE, 64, 1, 10000, 0, 1u << 20, 512 },
          { { NULL, 0, 8, 64u << 20, (uint64_t)64 << 30, GUEST_SOCKET_OWNER, 0, &bridge_form, NULL,
              false, false },
            NULL,
            NULL,
            1,
            NULL,
            0 },
          { NULL, NULL, NULL, NULL, 0 },
          { NULL, NULL, NULL, false, false },
          NULL,
          NULL,
          1,
          false,
          false,
          false,
          false,
          { NULL, false, false } };

static const option_row rows[] = {
    { "box", "ADDR:PORT", "address of the box; several are paths; [ADDR]:PORT for IPv6",
      OPTION_TEXT, &set.link.box, 0, 0 },
    { "slot", "N", "with --box: slot of the box (1)", OPTION_NUMBER, &set.link.slot, 1, 0xffff },
    { "epoch", "N", "with --box: lease epoch; a box refuses one below the highest it has seen (1)",
      OPTION_NUMBER, &set.link.epoch, 1, UINT64_MAX },
    { "node", "N", "number of this host in the fabric (1); a manager assigns another",
      OPTION_NUMBER, &set.link.node, 1, UINT32_MAX },
    { "replay", "FILE", "send the TLPs of a NetTLP capture", OPTION_TEXT, &set.replay, 0, 0 },
    { "fill", NULL, "pad truncated payloads with zeros instead of refusing the TLP", OPTION_FLAG,
      &set.fill, 0, 0 },
    { "repeat", "N", "number of times to send the capture (1)", OPTION_NUMBER, &set.repeat, 1,
      1000000000 },
    { "load", "none|read|write|mixed", "generate requests and check the data", OPTION_CHOICE,
      &set.load.kind, 0, 0 },
    { "size", "BYTES", "size of a generated read or write, a multiple of 4 (64)", OPTION_SIZE,
      &set.load.size, 4, 4096 },
    { "depth", "N", "generated reads in flight (1)", OPTION_NUMBER, &set.load.depth, 1,
      LOAD_DEPTH_MAX },
    { "count", "N", "number of generated operations (10000)", OPTION_NUMBER, &set.load.count, 1,
      UINT64_MAX },
    { "seconds", "N", "duration of the generated load, instead of --count", OPTION_NUMBER,
      &set.load.seconds, 0, 86400 },
    { "span", "SIZE", "memory that generated requests access (1M)", OPTION_SIZE, &set.load.span, 4,
      (uint64_t)1 << 32 },
    { "mps", "BYTES", "largest payload of generated writes (512)", OPTION_NUMBER, &set.load.mps,
      128, 4096 },
    { "card", "KIND,peer=ADDR[,KEY=VALUE]...",
      "serve a card in another machine's slot: nettlp or rawtlp", OPTION_TEXT, &set.card, 0, 0 },
    { "vfio-user", "SOCKET[,...]", "serve virtual machines that connect here, one per socket",
      OPTION_TEXT, &set.host.guest.socket, 0, 0 },
    { "socket-mode", "600|660", "permissions of the socket: owner (default), or owner and group",
      OPTION_CHOICE, &set.host.guest.socket_mode, 0, 0 },
    { "attach", "LIST",
      "slots to attach: SLOT=ADDR:PORT[,ADDR:PORT...]/BOX-SLOT[/EPOCH],...; a ; before the next "
      "guest",
      OPTION_TEXT, &set.host.attach, 0, 0 },
    { "slots", "N", "with --vfio-user: number of slots that each guest sees (8)", OPTION_NUMBER,
      &set.host.guest.slots, 1, 28 },
    { "direct", NULL, "each slot is a function of its own, at SOCKET.1, SOCKET.2, ...; no VMD",
      OPTION_FLAG, &set.direct, 0, 0 },
    { "interrupts", "auto|msi|msix",
      "with --direct: MSI in the place of MSI-X (default; virtio keeps it), always, or never",
      OPTION_CHOICE, &set.host.guest.interrupts, 0, 0 },
    { "qmp", "SOCKET[,bus=rp%u]",
      "with --direct: plug functions into root ports by QMP; a ; before the next guest",
      OPTION_TEXT, &set.host.guest.qmp, 0, 0 },
    { "topology", "root-ports|switch",
      "slots on the root bus (default), or below the paper's switch", OPTION_CHOICE,
      &set.host.guest.topology, 0, 0 },
    { "bar2", "SIZE", "window for 32-bit memory, a power of two (64M)", OPTION_SIZE,
      &set.host.guest.bar2_bytes, 1u << 20, (uint64_t)1 << 31 },
    { "bar4", "SIZE", "window for 64-bit memory, a power of two (64G)", OPTION_SIZE,
      &set.host.guest.bar4_bytes, 1u << 20, GUEST_BAR4_MAX },
    { "push", NULL, "offer push rules: send with a doorbell what the device reads next",
      OPTION_FLAG, &set.host.guest.push, 0, 0 },
    { "p2p", NULL, "let boxes carry what their devices send each other", OPTION_FLAG,
      &set.host.guest.p2p, 0, 0 },
    { "control", "ADDR:PORT", "address for attach, detach and status (off); :PORT is on loopback",
      OPTION_TEXT, &set.host.control, 0, 0 },
    MANAGER_OPTIONS(set.manager),
    { "record", "FILE", "write every TLP sent to a pcap, in order", OPTION_TEXT, &set.link.record,
      0, 0 },
    { "timeout-ms", "MS", "completion timeout of a request (10000)", OPTION_NUMBER,
      &set.link.timeout_ms, 1, 600000 },
    { "give-up-ms", "MS", "time without an answer of the box after which to stop (10000)",
      OPTION_NUMBER, &set.link.give_up_ms, 1, 86400000 },
    FABRIC_OPTIONS(set.fabric),
    KEYS_OPTIONS(set.keys),
    SANDBOX_OPTIONS(set.sandbox),
    { "stats", NULL,
      "print counters of channel, proxy and port on stderr at exit, in the format of --log",
      OPTION_FLAG, &set.stats, 0, 0 },
    { "json", NULL, "print results as one JSON object on stdout", OPTION_FLAG, &set.json, 0, 0 },
};

static const char *const headings[] = { "box",       "One slot of a box",
                                        "replay",    "Send it a capture",
                                        "load",      "Or send it generated requests",
                                        "card",      "Or what a card's machine requests",
                                        "vfio-user", "Or serve virtual machines",
                                        "record",    "Channels",
                                        "key",       "Keys and rights",
                                        "stats",     "Results, and all programs",
                                        NULL };

static guests *the_guests; /* NULL in the other modes */
static host_link the_link;
static replay the_replay;
static load the_load;
static front_settings the_card;
static front *the_front; /* NULL in the other modes */
static source the_source;

static bool all_results; /* of the next print: fabric and port, too */

static void fill_results(report *r)
{
    if (the_guests) {
        guests_report(the_guests, r);
        return;
    }
    the_source.report(the_source.self, r);
    if (!the_link.fabric.udp) /* a capture with nothing to send opens no port */
        return;
    link_report(&the_link, r);
    if (all_results)
        fabric_report(&the_link.fabric, r);
}

/* What --json prints with the rest: counters of the channel, the proxy and the port. */
static void fill_more(report *r)
{
    fabric_report(&the_link.fabric, r);
}

/* Results of a run, if there was one: without a channel they would all be 0.  0, or -1. */
static int finish(void)
{
    bool printed = set.json || the_link.ups; /* ups: of a source; of guests what is asked for */
    int rc = 0;
    all_results = set.json;
    if (printed)
        rc = program_print(set.json, fill_results);
    if (set.stats && (the_guests || the_link.fabric.udp))
        program_log(the_guests ? fill_results : fill_more);
    return rc;
}

static void on_stop(void)
{
    if (the_guests)
        guests_stop(the_guests);
    else
        link_stop(&the_link);
}

static void on_usr1(void)
{
    all_results = true;
    program_log(fill_results);
}

static reload *the_reload;

static void on_hup(void)
{
    reload_start(the_reload);
}

static void on_keys(void *user)
{
    (void)user;
    if (the_guests)
        guests_keys_changed(the_guests);
    else
        fabric_keys_changed(&the_link.fabric);
}

static option_program program = {
    "dxpu-host",
    "attaches the device of a box's slot and sends it TLPs",
    NULL,
    rows,
    sizeof rows / sizeof rows[0],
    "SIGUSR1 prints statistics, SIGHUP reloads --peers, Ctrl-C closes the channel gracefully.\n"
    "exit status: 0 done or stopped on request; 1 done, but requests got no answer, a\n"
    "generated one failed or returned wrong data, or a capture had nothing\n"
    "to send; 2 usage; 3 system error; 4 no channel to the box, or it refused; 5 the file of\n"
    "--identity is damaged\n",
    NULL,
    0,
    headings
};

static int usage(const char *what)
{
    return program_usage(what);
}

/* Where to listen by default: any port; with --plain only of this machine. */
static const char *any_address(bool v4, bool v6)
{
    if (set.keys.plain && !set.keys.plain_network)
        return v4 && v6 ? "127.0.0.1:0,[::1]:0" : v6 ? "[::1]:0" : "127.0.0.1:0";
    return v4 && v6 ? "0.0.0.0:0,[::]:0" : v6 ? "[::]:0" : "0.0.0.0:0";
}

static int check_fabric(void)
{
    const char *wrong = keys_check(&set.keys);
    if (!wrong)
        wrong = fabric_check(&set.fabric, &set.keys);
    return wrong ? usage(wrong) : 0;
}

/* Options that would be ignored. */
static const char *check_form(void)
{
    if (!set.direct)
        return options_given(&set.host.guest.interrupts) || set.host.guest.qmp
                   ? "--interrupts and --qmp require --direct"
                   : NULL;
    if (options_given(&set.host.guest.topology) || options_given(&set.host.guest.bar2_bytes) ||
        options_given(&set.host.guest.bar4_bytes))
        return "--direct cannot be used with --topology, --bar2 and --bar4";
    set.host.guest.form = &direct_form;
    return NULL;
}

static int check_guest(void)
{
    const char *wrong = check_form();
    int rc;
    set.host.node = set.link.node;
    if (wrong)
        return usage(wrong);
    if (set.replay || set.load.kind != LOAD_NONE || set.link.box || set.card)
        return usage("--vfio-user cannot be used with --box, --replay, --load and --card");
    if ((set.host.guest.bar2_bytes & (set.host.guest.bar2_bytes - 1)) ||
        (set.host.guest.bar4_bytes & (set.host.guest.bar4_bytes - 1)))
        return usage("--bar2, --bar4: must be a power of two");
    if (!set.fabric.listen)
        set.fabric.listen = any_address(true, false);
    set.fabric.shards = guests_count(set.host.guest.socket);
    rc = check_fabric();
    if (rc)
        return rc;
    wrong = manager_check(&set.manager, &set.keys, NULL);
    if (!wrong && set.manager.address) {
        set.host.manager = &set.manager;
        set.host.node = 0; /* M-56 */
        wrong = set.host.attach ? "--attach cannot be used with --manager, which attaches" : NULL;
    }
    if (!wrong)
        wrong = control_check(set.host.control, (unsigned)set.fabric.shards - 1, &set.keys);
    if (!wrong)
        wrong = guests_check(&set.host, &set.fabric);
    return wrong ? usage(wrong) : 0;
}

/* A port of each of the kinds that the box's addresses have. */
static const char *any_port(void)
{
    bool v4 = false, v6 = false;
    for (unsigned i = 0; i < the_link.paths; i++) {
        v6 |= the_link.box[i].u.any.sa_family == AF_INET6;
        v4 |= the_link.box[i].u.any.sa_family == AF_INET;
    }
    return any_address(v4 || !v6, v6);
}

static int check(void)
{
    char text[200];
    const char *wrong;
    if (set.host.guest.socket)
        return check_guest();
    if (set.host.control || set.manager.address || set.direct)
        return usage("--control, --manager and --direct require --vfio-user");
    if (!set.link.box)
        return usage(set.replay || set.load.kind != LOAD_NONE || set.card
                         ? "--box ADDR:PORT is required"
                         : "--vfio-user SOCKET is required, for a guest, or --box ADDR:PORT with "
                           "--replay FILE or --load read|write|mixed");
    wrong = dxpu_udp_parse_list(set.link.box, the_link.box, DXPU_PATHS_MAX, &the_link.paths);
    if (!wrong) /* these are the addresses that are dialed */
        wrong = keys_check_addresses(&set.keys, the_link.box, the_link.paths);
    if (wrong) {
        snprintf(text, sizeof text, "--box: %s", wrong);
        return usage(text);
    }
    if ((set.replay != NULL) + (set.load.kind != LOAD_NONE) + (set.card != NULL) != 1)
        return usage("give one of --replay FILE, --load read|write|mixed and --card");
    wrong = set.card ? front_read(&the_card, set.card) : NULL;
    if (wrong)
        return usage(wrong);
    if (set.load.size % 4)
        return usage("--size: must be a multiple of 4");
    if (set.load.mps & (set.load.mps - 1))
        return usage("--mps: 128, 256, 512, 1024, 2048 or 4096");
    if (!set.fabric.listen)
        set.fabric.listen = any_port();
    if (!set.replay) {
        set.link.tags_mode = set.card               ? DXPU_TAGS_256
                             : set.load.depth < 256 ? DXPU_TAGS_256
                                                    : DXPU_TAGS_768;
        set.link.tags = set.link.tags_mode;
    }
    return check_fabric();
}

/* Wherever TLPs come from: a capture, a generator, a card.  0, or the exit status. */
static int open_source(void)
{
    int rc;
    if (set.card) {
        the_front = front_open(&the_link, &the_card);
        rc = the_front ? 0 : -1;
        if (the_front)
            the_source = front_source(the_front);
    } else if (set.replay) {
        the_source = replay_source(&the_replay);
        rc = replay_open(&the_replay, &the_link, set.replay, set.fill, set.repeat);
    } else {
        the_source = load_source(&the_load);
        rc = load_open(&the_load, &the_link, &set.load);
    }
    return rc > 0 ? LINK_WRONG : rc ? LINK_SYSTEM : LINK_DONE; /* it said why */
}

static int run(void)
{
    notify_ready("sending to %s", set.link.box);
    return link_run(&the_link);
}

static int run_link(void)
{
    program_loop loop = { NULL, on_stop, on_usr1, on_hup, run };
    int rc = open_source();
    if (rc)
        return rc;
    if (link_open(&the_link, &set.link, &set.fabric, &the_source))
        return LINK_SYSTEM;
    if (the_front && front_listen(the_front))
        return LINK_SYSTEM;
    loop.base = dxpu_udp_base(the_link.fabric.udp);
    the_reload = reload_new(loop.base, set.fabric.keys, on_keys, NULL);
    rc = the_reload ? program_run(&loop) : LINK_SYSTEM;
    reload_free(the_reload);
    return rc;
}

static int the_parent = -1; /* of a worker */

static int serve(void)
{
    (void)keeper_tell(the_parent, PARENT_SERVED, NULL, 0);
    return guests_run(the_guests) ? PROGRAM_SYSTEM : PROGRAM_GOOD;
}

/* PARENT_ASK_ABANDON */
static void on_ask(unsigned char kind)
{
    if (kind & PARENT_ASK_ABANDON)
        guests_abandon(the_guests, kind & ~(unsigned)PARENT_ASK_ABANDON);
}

/* parent_settings.worker */
static int run_worker(const crossing_fds *links, bool again, const uint8_t key[CROSSING_KEY_BYTES],
                      int parent)
{
    const guests_links all = { links, again, key };
    program_loop loop = { NULL, on_stop, on_usr1, on_hup, serve };
    bool wrong;
    int rc;
    the_parent = parent;
    set.fabric.keys = keys_open(&set.keys, &wrong);
    if (!set.fabric.keys)
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    the_guests = guests_open(&set.host, &set.fabric, &all, &rc);
    if (the_guests) {
        loop.base = guests_base(the_guests);
        the_reload = reload_new(loop.base, set.fabric.keys, on_keys, NULL);
        rc = the_reload ? program_run_child(&loop, parent, on_ask) : PROGRAM_SYSTEM;
        reload_free(the_reload);
    }
    if (rc != PROGRAM_SYSTEM && rc != PROGRAM_DAMAGED && finish())
        rc = PROGRAM_SYSTEM;
    if (guests_close(the_guests))
        rc = PROGRAM_SYSTEM;
    keys_close(set.fabric.keys);
    return rc;
}

static int serve_guests(void)
{
    static guest_settings guest_of[GUESTS_MAX];
    static keeper_settings keeper[GUESTS_MAX];
    parent_settings all = { keeper, guests_count(set.host.guest.socket), run_worker };
    int rc = 0;
    for (unsigned n = 0; n < all.guests; n++) {
        rc |= guests_part(&set.host, n, &guest_of[n]);
        keeper[n].guest = &guest_of[n];
        keeper[n].hold_ms = set.fabric.hold_ms;
        keeper[n].wait = set.fabric.wait;
    }
    if (rc)
        log_error("out of memory");
    rc = rc ? PROGRAM_SYSTEM : parent_run(&all);
    for (unsigned n = 0; n < all.guests; n++)
        guests_part_free(&guest_of[n]);
    return rc;
}

static int send_source(void)
{
    bool wrong;
    int rc;
    set.fabric.keys = keys_open(&set.keys, &wrong);
    if (!set.fabric.keys)
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    rc = run_link();
    if (rc != LINK_SYSTEM && finish())
        rc = LINK_SYSTEM;
    front_close(the_front);
    if (link_close(&the_link))
        rc = LINK_SYSTEM;
    replay_close(&the_replay);
    load_close(&the_load);
    keys_close(set.fabric.keys);
    return rc;
}

int main(int argc, char **argv)
{
    bool wrong;
    int rc = program_options(&program, argc, argv);
    if (rc != PROGRAM_GO)
        return rc;
    notify_start();
    set.sandbox.network = set.fabric.af_xdp != NULL;
    if (sandbox_start(&set.sandbox, &wrong))
        return wrong ? PROGRAM_USAGE : PROGRAM_SYSTEM;
    rc = check(); /* it may ask for addresses of names: S-120 */
    if (rc)
        return rc;
    console_start();
    rc = set.host.guest.socket ? serve_guests() : send_source();
    console_end();
    return rc;
}
