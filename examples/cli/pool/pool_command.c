/* pool_command.c - the commands that go to the manager: which there are, their options and help
   SPDX-License-Identifier: MIT

   CONTENTS   1 Options   2 Commands   3 Running one */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"

#include <stddef.h>
#include <string.h>

/* ==== 1  Options ============================================================================== */

static pool_call call = { .timeout_s = 10, .retry_s = 10, .count = 1, .wait_s = UINT64_MAX };

static const option_row common[] = {
    { "json", NULL, "the manager's answer, as one JSON document", OPTION_FLAG, &call.json, 0, 0 },
    { "manager", "URL",
      "address of dxpu-manager, or several: URL,URL (DXPU_MANAGER, else " POOL_MANAGER ")",
      OPTION_TEXT, &call.settings.manager, 1, 0 },
    { "token-file", "FILE", "file with the token, readable only by its owner (else DXPU_TOKEN)",
      OPTION_TEXT, &call.settings.token_file, 1, 0 },
    { "insecure", NULL, "send the token over http:// to another machine", OPTION_FLAG,
      &call.settings.insecure, 0, 0 },
    { "timeout", "S", "timeout for an answer, seconds (10)", OPTION_NUMBER, &call.timeout_s, 1,
      3600 },
    { "retry", "S",
      "seconds to retry reads, and requests that certainly had no effect; 0: no retry (10)",
      OPTION_NUMBER, &call.retry_s, 0, 3600 },
};

#define HOST_ROW                                                                                   \
    {                                                                                              \
        "host", "N", "the host, by number or name", OPTION_TEXT, &call.host, 1, 0                  \
    }
#define MODEL_ROW(help)                                                                            \
    {                                                                                              \
        "model", "M", help, OPTION_TEXT, &call.model, 1, 0                                         \
    }
#define ATTRIBUTES_ROW(help)                                                                       \
    {                                                                                              \
        "attributes", "A", help, OPTION_TEXT, &call.attributes, 1, 0                               \
    }
#define NODE_ROW(help)                                                                             \
    {                                                                                              \
        "node", "N", help, OPTION_TEXT, &call.node, 1, 0                                           \
    }
#define TENANT_ROW(help)                                                                           \
    {                                                                                              \
        "tenant", "T", help, OPTION_TEXT, &call.tenant, 1, 0                                       \
    }
#define FOR_ROW(help)                                                                              \
    {                                                                                              \
        "for", "TIME", help, OPTION_SECONDS, &call.for_s, 1, UINT64_MAX                            \
    }
#define WAIT_ROW(help)                                                                             \
    {                                                                                              \
        "wait", "[S]", help, OPTION_NUMBER, &call.wait_s, 0, 1000000                               \
    }
#define FLAG_ROW(name, target, help)                                                               \
    {                                                                                              \
        name, NULL, help, OPTION_FLAG, &call.target, 0, 0                                          \
    }
/* A flag by the name of its target. */
#define NAMED_ROW(target, help) FLAG_ROW(#target, target, help)
#define YES_ROW                 NAMED_ROW(yes, "erase data without asking")
#define WAIT_UP_ROW             WAIT_ROW("until the host has all devices, S seconds at most (60)")

static const option_row backup_rows[] = {
    { "every", "S", "repeat, with S seconds between two copies", OPTION_NUMBER, &call.every_s, 1,
      86400 },
};

static const option_row list_rows[] = {
    { "state", "S",
      "slots that are free, spare, leased, wiping, drained, broken or quarantined, or retained; "
      "leases that are pending, active, degraded, parked or ended; boxes and hosts that are "
      "connected or disconnected",
      OPTION_TEXT, &call.state, 1, 0 },
    MODEL_ROW("slots with this model"),
    ATTRIBUTES_ROW("slots with all of these: render=software,rack=7"),
    { "device", "SLOT", "slots with a function of this one's device (10.3, shelf1.3)", OPTION_TEXT,
      &call.device, 1, 0 },
    NODE_ROW("slots of this box, leases of this host; by number or name"),
    TENANT_ROW("leases of this tenant"),
};
static const option_row create_rows[] = {
    HOST_ROW,
    MODEL_ROW("model of the slots; 'dxpu pool' lists the models"),
    ATTRIBUTES_ROW("slots, and replacements, with all of these: size=1T,rack=7; 'dxpu list slots' "
                   "shows them"),
    { "count", "N", "number of slots (1)", OPTION_NUMBER, &call.count, 1, 64 },
    { "need", "WHERE", "any, same-box, same-group (of a box's fast links) or spread (any)",
      OPTION_TEXT, &call.need, 1, 0 },
    { "device", "KIND",
      "any, whole (the slot has its device to itself) or function (of a device that several slots "
      "share) (any)",
      OPTION_TEXT, &call.device, 1, 0 },
    NAMED_ROW(exclusive,
              "no other tenant has a function of the slots' devices while the lease exists"),
    NAMED_ROW(apart, "no two of the slots are functions of one device"),
    { "peer", "ID",
      "a lease of the same host whose devices they are to reach directly: slots in its boxes go "
      "first",
      OPTION_TEXT, &call.peer, 1, 0 },
    TENANT_ROW("owner of the lease; a tenant's token implies it"),
    FOR_ROW("it expires after 90s, 30m, 2h, 7d (never)"),
    { "key", "K", "idempotency key: the same request gives the same lease", OPTION_TEXT, &call.key,
      1, 0 },
    NAMED_ROW(replace,
              "another device takes the place of one that breaks, or whose box is unreachable; the "
              "data of the old one are retained for the lease"),
    FLAG_ROW("no-replace", no_replace,
             "the lease waits for its box instead (models that keep data)"),
    WAIT_UP_ROW,
};
static const option_row release_rows[] = {
    NAMED_ROW(
        keep,
        "data are retained for the manager's --retention: 'dxpu lease recover' takes the lease "
        "back, 'dxpu lease discard' wipes it"),
    WAIT_ROW("wait until the data are wiped, or the host gave them up; S seconds at most (60)"),
    YES_ROW,
};
static const option_row park_rows[] = {
    WAIT_ROW("wait until the host gave them up, S seconds at most (60)"),
};
static const option_row recover_rows[] = { WAIT_UP_ROW };
static const option_row yes_rows[] = { YES_ROW };
static const option_row extend_rows[] = {
    FOR_ROW("from now: 90s, 30m, 2h, 7d"),
    FLAG_ROW("no-end", no_end, "it never expires"),
};
static const option_row attach_rows[] = { HOST_ROW, WAIT_UP_ROW };
static const option_row drain_rows[] = {
    NAMED_ROW(move,
              "leases there get other, empty slots now: their guests see a removal, and their data "
              "in this box are WIPED; a lease that is parked, has ended, or was made with "
              "--no-replace, stays, with its data"),
    NAMED_ROW(off, "back into service"),
    WAIT_ROW("wait until no slot is leased, held by a host or being wiped any more, S seconds at "
             "most (any time); with --move exit status 1 when leases stay"),
    YES_ROW,
};
static const option_row direct_rows[] = {
    NAMED_ROW(off, "forbid it: devices reach others through their hosts alone"),
};
static const option_row replace_rows[] = {
    NAMED_ROW(force,
              "also where the lease's slots would no longer be in one box, in one group, or apart, "
              "as it asks"),
    YES_ROW,
};
static const option_row break_rows[] = {
    NAMED_ROW(all, "all functions of the slot's device, which other slots have"),
};
static const option_row repair_rows[] = {
    NAMED_ROW(
        keep,
        "the slot's data are still those of its lease, though its box lost its state: nothing "
        "is wiped (refused unless the box has the same file or disk)"),
    YES_ROW,
};
static const option_row adopt_rows[] = {
    NAMED_ROW(all, "all quarantined slots"),
    FLAG_ROW("dry-run", dry_run, "show what would be done, and change nothing"),
    TENANT_ROW("tenant of the leases (as their boxes report, else their hosts' owners)"),
};
static const option_row owner_rows[] = {
    FLAG_ROW("no-owner", no_owner,
             "only operators can use the host (but see dxpu-manager's --shared-hosts)"),
};
static const option_row tenant_rows[] = {
    { "quota", "N", "slots, or none: no limit", OPTION_TEXT, &call.quota, 1, 0 },
    FLAG_ROW("no-direct", no_direct, "forbid its devices to reach one another without the host"),
    NAMED_ROW(direct, "allow it again (where hosts have dxpu-host --p2p)"),
};
static const option_row spares_rows[] = {
    { "failures-per-year", "X", "failures of one slot", OPTION_TEXT, &call.failures, 1, 0 },
    { "repair-days", "D", "days until a broken slot is repaired", OPTION_TEXT, &call.repair, 1, 0 },
    { "risk", "P", "risk that a broken slot finds no spare (0.001)", OPTION_TEXT, &call.risk, 1,
      0 },
};
static const option_row events_rows[] = {
    NAMED_ROW(follow, "the last ten events, then new ones, until Ctrl-C"),
    { "lease", "ID", "events of this lease", OPTION_TEXT, &call.lease, 1, 0 },
    { "type", "PREFIX", "types with this prefix: lease, slot.broken, ...", OPTION_TEXT, &call.type,
      1, 0 },
    NODE_ROW("events of this node, by number or name"),
    { "after", "N", "events after number N", OPTION_NUMBER, &call.after, 0, INT64_MAX },
    { "last", "N", "the last N (all; with --follow 10, and 0: new ones only)", OPTION_NUMBER,
      &call.last, 0, 1000000 },
};

/* What was given, as bits; flags by their value. */
static const struct {
    unsigned bit;
    const char *name;
    const void *target;
    const bool *flag;
} bits[] = {
    { POOL_STATE, "--state", &call.state, NULL },
    { POOL_HOST, "--host", &call.host, NULL },
    { POOL_MODEL, "--model", &call.model, NULL },
    { POOL_ATTRIBUTES, "--attributes", &call.attributes, NULL },
    { POOL_DEVICE, "--device", &call.device, NULL },
    { POOL_DIRECT, "--direct", NULL, &call.direct },
    { POOL_NO_DIRECT, "--no-direct", NULL, &call.no_direct },
    { POOL_NODE, "--node", &call.node, NULL },
    { POOL_TENANT, "--tenant", &call.tenant, NULL },
    { POOL_QUOTA, "--quota", &call.quota, NULL },
    { POOL_FOR, "--for", &call.for_s, NULL },
    { POOL_WAIT, "--wait", &call.wait_s, NULL },
    { POOL_AFTER, "--after", &call.after, NULL },
    { POOL_LAST, "--last", &call.last, NULL },
    { POOL_FAILURES, "--failures-per-year", &call.failures, NULL },
    { POOL_REPAIR, "--repair-days", &call.repair, NULL },
    { POOL_RISK, "--risk", &call.risk, NULL },
    { POOL_REPLACE, "--replace", NULL, &call.replace },
    { POOL_NO_REPLACE, "--no-replace", NULL, &call.no_replace },
    { POOL_KEEP, "--keep", NULL, &call.keep },
    { POOL_NO_END, "--no-end", NULL, &call.no_end },
    { POOL_MOVE, "--move", NULL, &call.move },
    { POOL_OFF, "--off", NULL, &call.off },
    { POOL_FOLLOW, "--follow", NULL, &call.follow },
    { POOL_NO_OWNER, "--no-owner", NULL, &call.no_owner },
    { POOL_YES, "--yes", NULL, &call.yes },
    { POOL_FORCE, "--force", NULL, &call.force },
    { POOL_ALL, "--all", NULL, &call.all },
    { POOL_DRY_RUN, "--dry-run", NULL, &call.dry_run },
};

const char *pool_option_name(unsigned given)
{
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (bits[i].bit & given)
            return bits[i].name;
    }
    return "that option";
}

static unsigned given_bits(void)
{
    unsigned given = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (bits[i].flag ? *bits[i].flag : options_given(bits[i].target))
            given |= bits[i].bit;
    }
    return given;
}

/* ==== 2  Commands ============================================================================= */

static int run_pool(const option_call *c, int (*command)(pool_call *));

#define RUN(command)                                                                               \
    static int run_##command(const option_call *c)                                                 \
    {                                                                                              \
        return run_pool(c, pool_##command);                                                        \
    }
RUN(overview)
RUN(list)
RUN(show)
RUN(lease_create)
RUN(lease_release)
RUN(lease_park)
RUN(lease_recover)
RUN(lease_discard)
RUN(lease_extend)
RUN(lease_attach)
RUN(clock_confirm)
RUN(adopt)
RUN(backup)
RUN(drain)
RUN(direct)
RUN(slot)
RUN(forget)
RUN(rekey)
RUN(set_owner)
RUN(set_tenant)
RUN(set_spares)
RUN(events)
RUN(top)

/* clang-format off: a command is read as a paragraph */
#define NO_ROWS                                                                                    \
    {                                                                                              \
        NULL, 0                                                                                    \
    }
#define WITH(rows)                                                                                 \
    {                                                                                              \
        OPTION_ROWS(rows), OPTION_ROWS(common)                                                     \
    }
#define WITHOUT_ROWS                                                                               \
    {                                                                                              \
        NO_ROWS, OPTION_ROWS(common)                                                               \
    }
#define TAIL                                                                                       \
    "Exit status: 0 done, 1 refused, or not done in time, 2 wrong usage, 3 no connection,\n"       \
    "4 erases data and was not confirmed (--yes).\n"

static const option_verb verbs[] = {
    { "pool", "", "summary of the pool",
      "Shows a summary of the pool: models and the states of their slots, boxes, hosts, leases.",
      TAIL, 0, 0, WITHOUT_ROWS, run_overview },
    { "top", "", "live view",
      "Shows leases, slots and events, refreshed each second until q or Ctrl-C. Prints once if "
      "standard output is not a terminal, or with --json.",
      TAIL, 0, 0, WITHOUT_ROWS, run_top },
    { "list", "boxes|hosts|slots|leases|tenants", "one line for each",
      "Prints one line for each object.", TAIL, 1, 1, WITH(list_rows), run_list },
    { "show", "node|slot|lease ID", "details and last events",
      "Shows everything about one node (number or name), slot (10.3, shelf1.3) or lease, and its "
      "last events. "
      "With --json only the node, slot or lease.",
      TAIL, 2, 2, WITHOUT_ROWS, run_show },
    { "lease create", "--host N --model M", "lend slots to a host",
      "Lends slots to a host, which plugs their devices into its guest.", TAIL, 0, 0,
      WITH(create_rows), run_lease_create },
    { "lease release", "ID", "end a lease",
      "Ends a lease: the host loses the devices; their data, and what is retained, are wiped.",
      TAIL, 1, 1, WITH(release_rows), run_lease_release },
    { "lease park", "ID", "take a lease from its host, with its data",
      "Takes the devices of a lease from its host; the lease keeps them, and their data, until "
      "'dxpu lease attach' gives them to a host.",
      TAIL, 1, 1, WITH(park_rows), run_lease_park },
    { "lease extend", "ID --for TIME | --no-end", "set when a lease expires",
      "Sets when a lease expires.", TAIL, 1, 1, WITH(extend_rows), run_lease_extend },
    { "lease attach", "ID --host N", "attach a parked lease to a host",
      "Attaches a parked lease to a host.", TAIL, 1, 1, WITH(attach_rows), run_lease_attach },
    { "lease recover", "ID [SLOT]", "take back what is retained for a lease",
      "Takes back what is retained for a lease (one slot of it, or all): each slot returns with "
      "its data, in place of its replacement, which is retained in turn if it keeps data. A lease "
      "that has ended returns as a whole, parked: 'dxpu lease attach'.",
      TAIL, 1, 2, WITH(recover_rows), run_lease_recover },
    { "lease discard", "ID [SLOT]", "give up what is retained for a lease",
      "Gives up what is retained for a lease (one slot of it, or all), or a lease that "
      "has ended: it is wiped.",
      TAIL, 1, 2, WITH(yes_rows), run_lease_discard },
    { "drain", "BOX", "take a box out of service",
      "Takes a box (by number or name) out of service: it gets no new leases.", TAIL, 1, 1,
      WITH(drain_rows), run_drain },
    { "direct", "BOX [--off]", "allow or forbid direct requests between devices",
      "Allows that devices of a box (by number or name) reach other devices of their hosts "
      "directly, where hosts ask for it (dxpu-host --p2p), or forbids it (--off).",
      TAIL, 1, 1, WITH(direct_rows), run_direct },
    { "replace", "SLOT", "give a slot's lease another slot: 10.3, shelf1.3",
      "Gives the lease of a slot (10.3, shelf1.3) another, empty one in its place; the guest sees "
      "a removal and an add. The data in the old one are WIPED, also with --no-replace.",
      TAIL, 1, 1, WITH(replace_rows), run_slot },
    { "break", "SLOT", "declare a slot broken",
      "Declares a slot (10.3, shelf1.3) broken: it is not lent, and its lease gets another one if "
      "the lease allows it.",
      TAIL, 1, 1, WITH(break_rows), run_slot },
    { "repair", "SLOT", "declare that a slot works",
      "Declares that a broken or quarantined slot (10.3, shelf1.3) works; it is wiped before it is "
      "lent again, or keeps its lease's data (--keep).",
      TAIL, 1, 1, WITH(repair_rows), run_slot },
    { "backup", "FILE", "copy the manager's store into a file",
      "Writes all records of the manager's store into a file, which is replaced as a whole, while "
      "the manager runs. 'dxpu-manager --import FILE' reads it into a new store. With --every on "
      "another machine, a manager there can take the first one's place.",
      TAIL, 1, 1, WITH(backup_rows), run_backup },
    { "adopt", "SLOT | --all [--dry-run]", "take in leases that the store does not know",
      "After a backup of the store was restored, boxes have leases that it does not know, and "
      "their slots are quarantined. Where box and host agree, each slot becomes a lease of its "
      "own, or returns to its lease; slots that their box has wiped become free. Nothing is "
      "erased.",
      TAIL, 0, 1, WITH(adopt_rows), run_adopt },
    { "reset", "SLOT", "reset the device in a slot",
      "Resets the device in a slot (10.3, shelf1.3). While it is lent, its guest sees a removal "
      "and an add.",
      TAIL, 1, 1, WITHOUT_ROWS, run_slot },
    { "forget", "NODE", "remove a node that is gone for good",
      "Removes a node (by number or name) that is gone for good and has no leases.", TAIL, 1, 1,
      WITHOUT_ROWS, run_forget },
    { "rekey", "NODE", "accept another key at a node's next register",
      "Lets a disconnected node (by number or name) change its key to the one with which it "
      "registers next. Otherwise a node is accepted only with its first key.",
      TAIL, 1, 1, WITHOUT_ROWS, run_rekey },
    { "owner", "HOST TENANT | HOST --no-owner", "set the owner of a host",
      "Sets the owner of a host (by number or name): a tenant can use and see only its own hosts. "
      "Existing leases stay.",
      TAIL, 1, 2, WITH(owner_rows), run_set_owner },
    { "tenant", "NAME --quota N", "limit the slots of a tenant",
      "Sets the maximum number of slots of a tenant, and whether its devices may reach one another "
      "without their hosts.",
      TAIL, 1, 1, WITH(tenant_rows), run_set_tenant },
    { "spares", "MODEL N | MODEL --failures-per-year X --repair-days D", "reserve slots of a model",
      "Reserves N slots of a model to replace broken ones, or computes N from the rate of failures "
      "and the time of repairs.",
      TAIL, 1, 2, WITH(spares_rows), run_set_spares },
    { "events", "", "past and new events", "Shows past events.", TAIL, 0, 0, WITH(events_rows),
      run_events },
    { "clock confirm", "", "confirm the manager's clock after a step",
      "Confirms that the manager's clock is right after a step: leases expire again.", TAIL, 0, 0,
      WITHOUT_ROWS, run_clock_confirm },
};
/* clang-format on */

const option_verbs pool_verbs = {
    "The pool, through dxpu-manager (--manager URL or DXPU_MANAGER; --token-file or DXPU_TOKEN)",
    verbs, sizeof verbs / sizeof *verbs
};

/* ==== 3  Running one ========================================================================== */

int pool_need(const pool_call *r, unsigned options)
{
    char names[100] = "";
    unsigned missing = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        size_t at = strlen(names);
        if (bits[i].bit & options & ~r->given)
            snprintf(names + at, sizeof names - at, "%s%s", missing++ ? " and " : "", bits[i].name);
    }
    return missing ? options_wrong("%s %s required", names, missing == 1 ? "is" : "are") : 0;
}

static int run_pool(const option_call *c, int (*command)(pool_call *))
{
    int rc;
    const char *why;
    call.verb = c->verb;
    call.words = c->count;
    for (unsigned i = 0; i < c->count && i < POOL_WORDS_MAX; i++)
        call.word[i] = c->words[i];
    call.given = given_bits();
    call.settings.timeout_s = (unsigned)call.timeout_s;
    why = pool_client_open(&call.client, &call.settings);
    rc = why ? options_wrong("%s", why) : command(&call);
    pool_client_close(&call.client);
    return rc == EXIT_WOKEN ? EXIT_ALL : rc;
}
