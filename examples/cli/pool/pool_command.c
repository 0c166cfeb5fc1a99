/* pool_command.c - the commands that go to the manager: which there are, their options and help
   SPDX-License-Identifier: MIT

   CONTENTS   1 Commands   2 Help   3 Options   4 The command line */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ==== 1  Commands ============================================================================= */

#define YES_HELP  "  --yes              erase data without asking\n"
#define WAIT_HELP "  --wait [S]         wait until that is done, S seconds at most (60)\n"

static const pool_verb verbs[] = {
    { "pool", "", 0, 0, 0, 0, pool_overview,
      "Shows a summary of the pool: models and the states of their slots, boxes, hosts, "
      "leases.\n" },
    { "list", "boxes|hosts|slots|leases|tenants", 1, 0,
      POOL_STATE | POOL_MODEL | POOL_NODE | POOL_TENANT, 0, pool_list,
      "Prints one line for each.\n"
      "  --state S          slots that are free, spare, leased, wiping, drained, broken or\n"
      "                     quarantined, or retained; leases that are pending, active,\n"
      "                     degraded, parked or ended; boxes and hosts that are connected or away\n"
      "  --model M          slots with this model\n"
      "  --node N           slots of this box, leases of this host; by number or name\n"
      "  --tenant T         leases of this tenant\n" },
    { "show", "node N | slot N.S | lease ID", 2, 0, 0, 0, pool_show,
      "Shows everything about one node (by number or name), slot or lease, and its last events.\n"
      "With --json only the node, slot or lease.\n" },
    { "lease create", "", 0, 0,
      POOL_HOST | POOL_MODEL | POOL_COUNT | POOL_NEED | POOL_TENANT | POOL_FOR | POOL_KEY |
          POOL_REPLACE | POOL_NO_REPLACE | POOL_WAIT,
      POOL_HOST | POOL_MODEL, pool_lease_create,
      "Lends slots to a host, which plugs their devices into its guest.\n"
      "  --host N           the host, by number or name\n"
      "  --model M          model of the slots; 'dxpu pool' lists the models\n"
      "  --count N          number of slots (1)\n"
      "  --need WHERE       any, same-box, same-group (of a box's fast links) or spread (any)\n"
      "  --tenant T         owner of the lease; a tenant's token implies it\n"
      "  --for TIME         it expires after 90s, 30m, 2h, 7d (never)\n"
      "  --key K            idempotency key: the same request gives the same lease\n"
      "  --replace          another device takes the place of one that breaks, or whose box is\n"
      "                     unreachable; the data of the old one are retained for the lease\n"
      "  --no-replace       the lease waits for its box instead (models that keep data)\n"
      "  --wait [S]         until the host has all devices, S seconds at most (60)\n" },
    { "lease release", "ID", 1, 0, POOL_KEEP | POOL_WAIT | POOL_YES, 0, pool_lease_release,
      "Ends a lease: the host loses the devices; their data, and what is retained, are wiped.\n"
      "  --keep             data are retained for the manager's --retention: 'dxpu lease recover'\n"
      "                     takes the lease back, 'dxpu lease discard' wipes it\n"
      "  --wait [S]         wait until the data are wiped, or the host gave them up; S seconds at\n"
      "                     most (60)\n" YES_HELP },
    { "lease park", "ID", 1, 0, POOL_WAIT, 0, pool_lease_park,
      "Takes the devices of a lease from its host; the lease keeps them, and their data, until\n"
      "'dxpu lease attach' gives them to a host.\n"
      "  --wait [S]         wait until the host gave them up, S seconds at most (60)\n" },
    { "lease recover", "ID [SLOT]", 2, 1, POOL_WAIT, 0, pool_lease_recover,
      "Takes back what is retained for a lease (one slot of it, or all): each slot returns with "
      "its\n"
      "data, in place of its replacement, which is retained in turn if it keeps data.  A lease "
      "that\n"
      "has ended returns as a whole, parked: 'dxpu lease attach'.\n"
      "  --wait [S]         until the host has all devices, S seconds at most (60)\n" },
    { "lease discard", "ID [SLOT]", 2, 1, POOL_YES, 0, pool_lease_discard,
      "Gives up what is retained for a lease (one slot of it, or all), or a lease that has ended:\n"
      "it is wiped.\n" YES_HELP },
    { "clock confirm", "", 0, 0, 0, 0, pool_clock_confirm,
      "Confirms that the manager's clock is right after a step: leases expire again.\n" },
    { "lease extend", "ID --for TIME | --no-end", 1, 0, POOL_FOR | POOL_NO_END, 0,
      pool_lease_extend,
      "Sets when a lease expires.\n"
      "  --for TIME         from now: 90s, 30m, 2h, 7d\n"
      "  --no-end           never\n" },
    { "lease attach", "ID", 1, 0, POOL_HOST | POOL_WAIT, POOL_HOST, pool_lease_attach,
      "Attaches a parked lease to a host.\n"
      "  --host N           the host, by number or name\n"
      "  --wait [S]         until the host has all devices, S seconds at most (60)\n" },
    { "drain", "BOX", 1, 0, POOL_MOVE | POOL_OFF | POOL_WAIT | POOL_YES, 0, pool_drain,
      "Takes a box (by number or name) out of service: it gets no new leases.\n"
      "  --move             leases there get other, empty slots now: their guests see a removal,\n"
      "                     and their data in this box are WIPED; a lease that is parked, has\n"
      "                     ended, or was made with --no-replace, stays, with its data\n"
      "  --off              back into service\n"
      "  --wait [S]         until no slot is leased, held by a host or being wiped any more,\n"
      "                     S seconds at most (any time); with --move exit status 1 when leases\n"
      "                     stay\n" YES_HELP },
    { "replace", "SLOT", 1, 0, POOL_FORCE | POOL_YES, 0, pool_slot,
      "Gives the lease of a slot (10.3, shelf1.3) another, empty one in its place; the guest sees\n"
      "a removal and an add.  The data in the old one are WIPED, --no-replace or not.\n"
      "  --force            also where the lease's slots would no longer be in one box, in one\n"
      "                     group, or apart, as it asks\n" YES_HELP },
    { "break", "SLOT", 1, 0, 0, 0, pool_slot,
      "Declares a slot (10.3, shelf1.3) broken: it is not lent, and its lease gets another\n"
      "one if the lease allows it.\n" },
    { "repair", "SLOT", 1, 0, POOL_YES, 0, pool_slot,
      "Declares that a broken or quarantined slot (10.3, shelf1.3) works; it is wiped before it "
      "is\n"
      "lent again.\n" YES_HELP },
    { "reset", "SLOT", 1, 0, 0, 0, pool_slot,
      "Resets the device in a slot (10.3, shelf1.3).  While it is lent, its guest sees a removal\n"
      "and an add.\n" },
    { "forget", "NODE", 1, 0, 0, 0, pool_forget,
      "Removes a node (by number or name) that is gone for good and has no leases.\n" },
    { "rekey", "NODE", 1, 0, 0, 0, pool_rekey,
      "Lets a disconnected node (by number or name) change its key to the one with which it\n"
      "registers next.  Otherwise a node is accepted only with its first key.\n" },
    { "owner", "HOST TENANT | HOST --nobody", 2, 0, POOL_NOBODY, 0, pool_set_owner,
      "Sets the owner of a host (by number or name): a tenant can use and see only its own hosts.\n"
      "Existing leases stay.\n"
      "  --nobody           no owner: only operators can use it (but see dxpu-manager's\n"
      "                     --shared-hosts)\n" },
    { "tenant", "NAME", 1, 0, POOL_QUOTA, POOL_QUOTA, pool_set_tenant,
      "Sets the maximum number of slots of a tenant.\n"
      "  --quota N          slots, or none: no limit\n" },
    { "spares", "MODEL N | MODEL --failures-per-year X --repair-days D", 2, 0,
      POOL_FAILURES | POOL_REPAIR | POOL_RISK, 0, pool_set_spares,
      "Reserves N slots of a model to replace broken ones, or computes N from:\n"
      "  --failures-per-year X  failures of one slot\n"
      "  --repair-days D    days until a broken slot is repaired\n"
      "  --risk P           risk that a broken slot finds no spare (0.001)\n" },
    { "events", "", 0, 0, POOL_FOLLOW | POOL_LEASE | POOL_TYPE | POOL_AFTER | POOL_LAST | POOL_NODE,
      0, pool_events,
      "Shows past events.\n"
      "  --follow           the last ten events, then new ones, until Ctrl-C\n"
      "  --lease ID         events of this lease\n"
      "  --type PREFIX      types with this prefix: lease, slot.broken, ...\n"
      "  --node N           events of this node, by number or name\n"
      "  --after N          events after number N\n"
      "  --last N           the last N (all; with --follow 10, and 0: new ones only)\n" },
    { "top", "", 0, 0, 0, 0, pool_top,
      "Shows leases, slots and events, refreshed each second until q or Ctrl-C.  Where standard\n"
      "output is no terminal, and with --json: once.\n" },
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* ==== 2  Help ================================================================================= */

static const char common_help[] =
    "  --json             what the manager says, as one JSON document\n"
    "  --manager URL      address of dxpu-manager (DXPU_MANAGER, else " POOL_MANAGER ")\n"
    "  --token-file FILE  file with the token, readable only by its owner (else DXPU_TOKEN)\n"
    "  --insecure         send the token over http:// to another machine\n"
    "  --timeout S        timeout for an answer, seconds (10)\n";
static const char status_help[] =
    "Exit status: 0 done, 1 refused, or not done in time, 2 wrong usage, 3 no connection,\n"
    "4 erases data and was not confirmed (--yes).\n";

static void print_usage(const pool_verb *v)
{
    static const struct {
        unsigned option;
        const char *text;
    } needed[] = { { POOL_HOST, " --host N" },
                   { POOL_MODEL, " --model M" },
                   { POOL_QUOTA, " --quota N|none" } };
    printf("dxpu %s%s%s", v->name, *v->usage ? " " : "", v->usage);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (v->needs & needed[i].option)
            fputs(needed[i].text, stdout);
    }
    fputs(" [OPTIONS]\n", stdout);
}

static void print_help(const pool_verb *v)
{
    printf("usage: ");
    print_usage(v);
    printf("\n%s%s\n%s", v->help, common_help, status_help);
}

/* `dxpu lease --help`: those whose name begins with that word. */
static void print_group(const char *word)
{
    const char *before = "usage: ";
    for (size_t i = 0; i < VERBS; i++) {
        size_t len = strcspn(verbs[i].name, " ");
        if (strlen(word) == len && strncmp(verbs[i].name, word, len) == 0) {
            fputs(before, stdout);
            print_usage(&verbs[i]);
            before = "       ";
        }
    }
    printf("\nSee 'dxpu %s COMMAND --help' for details.\n", word);
}

/* ==== 3  Options ============================================================================== */

typedef enum value_kind {
    FLAG,    /* bool */
    BIT,     /* none but its bit in `given` */
    TEXT,    /* const char * */
    NUMBER,  /* uint64_t, from least to most */
    SECONDS, /* uint64_t */
    WAIT     /* uint64_t that may be left out */
} value_kind;

typedef struct option {
    const char *name;
    unsigned bit; /* 0: of all commands */
    value_kind kind;
    size_t at; /* in pool_call */
    uint64_t least, most;
} option;

#define AT(member) offsetof(pool_call, member)
static const option options[] = {
    { "--json", 0, FLAG, AT(json), 0, 0 },
    { "--manager", 0, TEXT, AT(settings.manager), 0, 0 },
    { "--token-file", 0, TEXT, AT(settings.token_file), 0, 0 },
    { "--insecure", 0, FLAG, AT(settings.insecure), 0, 0 },
    { "--timeout", 0, NUMBER, AT(timeout_s), 1, 3600 },
    { "--state", POOL_STATE, TEXT, AT(state), 0, 0 },
    { "--model", POOL_MODEL, TEXT, AT(model), 0, 0 },
    { "--node", POOL_NODE, TEXT, AT(node), 0, 0 },
    { "--tenant", POOL_TENANT, TEXT, AT(tenant), 0, 0 },
    { "--host", POOL_HOST, TEXT, AT(host), 0, 0 },
    { "--count", POOL_COUNT, NUMBER, AT(count), 1, 64 },
    { "--need", POOL_NEED, TEXT, AT(need), 0, 0 },
    { "--for", POOL_FOR, SECONDS, AT(for_s), 1, 0 },
    { "--key", POOL_KEY, TEXT, AT(key), 0, 0 },
    { "--no-replace", POOL_NO_REPLACE, BIT, 0, 0, 0 },
    { "--wait", POOL_WAIT, WAIT, AT(wait_s), 0, 1000000 },
    { "--keep", POOL_KEEP, BIT, 0, 0, 0 },
    { "--no-end", POOL_NO_END, BIT, 0, 0, 0 },
    { "--move", POOL_MOVE, BIT, 0, 0, 0 },
    { "--off", POOL_OFF, BIT, 0, 0, 0 },
    { "--quota", POOL_QUOTA, TEXT, AT(quota), 0, 0 },
    { "--follow", POOL_FOLLOW, BIT, 0, 0, 0 },
    { "--lease", POOL_LEASE, TEXT, AT(lease), 0, 0 },
    { "--type", POOL_TYPE, TEXT, AT(type), 0, 0 },
    { "--after", POOL_AFTER, NUMBER, AT(after), 0, INT64_MAX },
    { "--failures-per-year", POOL_FAILURES, TEXT, AT(failures), 0, 0 },
    { "--repair-days", POOL_REPAIR, TEXT, AT(repair), 0, 0 },
    { "--risk", POOL_RISK, TEXT, AT(risk), 0, 0 },
    { "--last", POOL_LAST, NUMBER, AT(last), 0, 1000000 },
    { "--nobody", POOL_NOBODY, BIT, 0, 0, 0 },
    { "--yes", POOL_YES, BIT, 0, 0, 0 },
    { "--replace", POOL_REPLACE, BIT, 0, 0, 0 },
    { "--force", POOL_FORCE, BIT, 0, 0, 0 },
};

const char *pool_option_name(unsigned bits)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].bit & bits)
            return options[i].name;
    }
    return "that option";
}

static const option *find_option(const pool_verb *v, const char *text)
{
    size_t len = strcspn(text, "=");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const option *o = &options[i];
        if (strlen(o->name) == len && strncmp(o->name, text, len) == 0 &&
            (!o->bit || v->options & o->bit))
            return o;
    }
    return NULL;
}

/* Its value; 0 or EXIT_USAGE. */
static int set_option(pool_call *r, const option *o, const char *value)
{
    char *target = (char *)r + o->at;
    uint64_t v = 0;
    r->given |= o->bit;
    if (o->kind == FLAG) {
        *(bool *)(void *)target = true;
    } else if (o->kind == TEXT) {
        if (!*value)
            return usage_error(r->verb->name, "%s must not be empty", o->name);
        *(const char **)(void *)target = value;
    } else if (o->kind == SECONDS) {
        if (!options_seconds(value, &v) || v < o->least)
            return usage_error(r->verb->name,
                               "%s must be a time such as 90s, 30m, 2h or 7d, not '%s'", o->name,
                               value);
        *(uint64_t *)(void *)target = v;
    } else if (o->kind != BIT) {
        if (!options_number(value, o->most, &v) || v < o->least)
            return usage_error(r->verb->name, "%s must be a number from %llu to %llu, not '%s'",
                               o->name, (unsigned long long)o->least, (unsigned long long)o->most,
                               value);
        *(uint64_t *)(void *)target = v;
    }
    return 0;
}

static int read_option(pool_call *r, int argc, char **argv, int *i)
{
    const char *text = argv[*i], *equals = strchr(text, '=');
    const option *o = find_option(r->verb, text);
    if (!o)
        return usage_error(r->verb->name, "no option '%s'", text);
    if (o->kind == FLAG || o->kind == BIT)
        return equals ? usage_error(r->verb->name, "%s accepts no value", o->name)
                      : set_option(r, o, "");
    if (equals)
        return set_option(r, o, equals + 1);
    if (o->kind == WAIT && (*i + 1 >= argc || strspn(argv[*i + 1], "0123456789") == 0 ||
                            argv[*i + 1][strspn(argv[*i + 1], "0123456789")])) {
        r->given |= o->bit;
        return 0;
    }
    if (++*i >= argc)
        return usage_error(r->verb->name, "%s requires a value", o->name);
    return set_option(r, o, argv[*i]);
}

/* ==== 4  The command line ===================================================================== */

static const char *need_name(const pool_call *r)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].bit & r->verb->needs & ~r->given)
            return options[i].name;
    }
    return NULL;
}

/* Words and options behind the command's name; 0, EXIT_USAGE, or -1: help was asked for. */
static int read_arguments(pool_call *r, int argc, char **argv, int from)
{
    const char *missing;
    int rc = 0;
    for (int i = from; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return -1;
    }
    for (int i = from; i < argc && !rc; i++) {
        if (argv[i][0] == '-')
            rc = read_option(r, argc, argv, &i);
        else if (r->words == r->verb->words)
            rc = usage_error(r->verb->name, "one argument too many: '%s'", argv[i]);
        else
            r->word[r->words++] = argv[i];
    }
    if (rc)
        return rc;
    if (r->words + (r->given & (POOL_FAILURES | POOL_NOBODY) ? 1 : 0) <
        r->verb->words - r->verb->optional)
        return usage_error(r->verb->name, "%s is required%s", r->verb->usage,
                           r->given & POOL_WAIT ? " (a number after --wait is its seconds)" : "");
    missing = need_name(r);
    return missing ? usage_error(r->verb->name, "%s is required", missing) : 0;
}

/* The command whose name argv begins with; *used: the words of its name. */
static const pool_verb *find_verb(int argc, char **argv, int *used)
{
    for (size_t i = 0; i < VERBS; i++) {
        const char *second = strchr(verbs[i].name, ' ');
        size_t len = strcspn(verbs[i].name, " ");
        if (strlen(argv[0]) != len || strncmp(argv[0], verbs[i].name, len) != 0)
            continue;
        *used = second ? 2 : 1;
        if (!second || (argc > 1 && strcmp(argv[1], second + 1) == 0))
            return &verbs[i];
    }
    return NULL;
}

int pool_command(int argc, char **argv)
{
    pool_call r;
    int used = 1, rc;
    const char *why;
    memset(&r, 0, sizeof r);
    r.verb = find_verb(argc, argv, &used);
    if (!r.verb && argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_group(argv[0]);
        return EXIT_ALL;
    }
    if (!r.verb)
        return argc > 1 ? usage_error(argv[0], "no command '%s'", argv[1])
                        : usage_error(argv[0], "which of its commands?");
    r.timeout_s = 10;
    r.count = 1;
    r.wait_s = UINT64_MAX;
    rc = read_arguments(&r, argc, argv, used);
    if (rc < 0) {
        print_help(r.verb);
        return EXIT_ALL;
    }
    if (rc)
        return rc;
    r.settings.timeout_s = (unsigned)r.timeout_s;
    why = pool_client_open(&r.client, &r.settings);
    rc = why ? usage_error(r.verb->name, "%s", why) : r.verb->run(&r);
    pool_client_close(&r.client);
    return rc == EXIT_WOKEN ? EXIT_ALL : rc;
}
