/* pool_data.c - dxpu lease recover and discard, clock confirm, adopt, backup; what asks before
   data are erased
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "console.h"
#include "durable.h"
#include "pool_print.h"
#include "print_json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_MAX = 16 };

/* ==== 1  Before data are erased =============================================================== */

static void show_erased(const json_t *erases, uint64_t total)
{
    size_t index;
    json_t *e;
    json_array_foreach(erases, index, e)
    {
        const char *lease = pool_string(e, "lease"), *tenant = pool_string(e, "tenant");
        if (index == SHOWN_MAX)
            break;
        log_warning("erases the data in slot %s: lease %s, tenant %s", pool_string(e, "slot"),
                    *lease ? lease : "unknown", *tenant ? tenant : "unknown");
    }
    if (total > SHOWN_MAX)
        log_warning("and %" PRIu64 " more", total - SHOWN_MAX);
}

/* A line of the terminal that begins with y. */
static bool says_yes(void)
{
    char line[16] = "";
    console_say("erase them? [y/N] ");
    return fgets(line, sizeof line, stdin) && (*line == 'y' || *line == 'Y');
}

int pool_confirm(pool_call *r, const char *query)
{
    uint64_t total;
    int rc;
    r->confirmed = (r->given & POOL_YES) != 0;
    if (r->confirmed)
        return 0;
    rc = pool_get(r, "/v1/erasures?%s", query);
    if (rc)
        return rc;
    if (!json_is_array(json_object_get(r->client.body, "erases")))
        return pool_misfit(r, "no list is in it");
    total = pool_integer(r->client.body, "total");
    if (!total)
        return 0;
    show_erased(json_object_get(r->client.body, "erases"), total);
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return pool_fail(r, EXIT_UNCONFIRMED,
                         "nothing was changed: this erases data, and no terminal is there to ask; "
                         "--yes confirms it");
    r->confirmed = says_yes();
    return r->confirmed ? 0 : pool_fail(r, EXIT_UNCONFIRMED, "nothing was changed");
}

const char *pool_erase(const pool_call *r)
{
    return r->confirmed ? "?erase=yes" : "";
}

/* ==== 2  Retained data ======================================================================== */

/* Lease and, perhaps, slot; 0, or an exit status after saying why. */
static int read_words(pool_call *r, char slot[24])
{
    *slot = '\0';
    if (!pool_is_lease(r->word[0]))
        return options_wrong("'%s': a lease is a hex number, as in c00000003", r->word[0]);
    return r->words > 1 ? pool_find_slot(r, r->word[1], slot) : 0;
}

static int ask_for(pool_call *r, const char *verb, const char *slot)
{
    json_t *o = json_object();
    if (!o || (*slot && json_object_set_new(o, "slot", json_string(slot))))
        out_of_memory();
    return pool_ask(r, "POST", o, "/v1/leases/%s/%s%s", r->word[0], verb, pool_erase(r));
}

int pool_lease_recover(pool_call *r)
{
    char slot[24];
    int rc = read_words(r, slot);
    if (!rc)
        rc = ask_for(r, "recover", slot);
    return rc ? rc : pool_finish_lease(r);
}

/* Each slot that the lease has left, or the one that is named; all of a lease that has ended. */
static int confirm_discard(pool_call *r, const char *slot)
{
    char query[64];
    json_t *retained, *one;
    size_t index;
    bool any = false;
    int rc = 0;
    if (*slot || r->given & POOL_YES) {
        snprintf(query, sizeof query, "request=discard&slot=%s", slot);
        return pool_confirm(r, query);
    }
    rc = pool_get(r, "/v1/leases/%s", r->word[0]);
    if (rc)
        return rc;
    if (strcmp(pool_string(r->client.body, "state"), "ended") == 0) {
        snprintf(query, sizeof query, "request=release&lease=%.17s", r->word[0]);
        return pool_confirm(r, query);
    }
    retained = json_incref(json_object_get(r->client.body, "retained"));
    json_array_foreach(retained, index, one)
    {
        const char *id = json_string_value(one);
        snprintf(query, sizeof query, "request=discard&slot=%.23s", id ? id : "");
        if (!rc)
            rc = pool_confirm(r, query);
        any |= r->confirmed;
    }
    json_decref(retained);
    r->confirmed = any; /* each that asked was */
    return rc;
}

int pool_lease_discard(pool_call *r)
{
    char slot[24];
    int rc = read_words(r, slot);
    if (!rc)
        rc = confirm_discard(r, slot);
    if (!rc)
        rc = ask_for(r, "discard", slot);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("lease %s: %s%s discarded\n", r->word[0], *slot ? "slot " : "what was retained is",
           slot);
    return EXIT_ALL;
}

/* ==== 3  The clock ============================================================================ */

int pool_clock_confirm(pool_call *r)
{
    int rc = pool_ask(r, "POST", json_object(), "/v1/clock/confirm");
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    puts("the manager's clock is confirmed; leases expire again");
    return EXIT_ALL;
}

/* ==== 4  Adoption ============================================================================= */

static void print_adopted(const json_t *slot, bool dry)
{
    const char *what = pool_string(slot, "what"), *lease = pool_string(slot, "lease");
    const char *tenant = pool_string(slot, "tenant");
    uint64_t known = pool_integer(slot, "known_epoch");
    char epochs[80] = ""; /* to compare, where the store has the lease under an earlier one */
    if (dry && known && strcmp(what, "back") == 0)
        snprintf(epochs, sizeof epochs, ", under epoch %" PRIu64 " after %" PRIu64,
                 pool_integer(slot, "epoch"), known);
    printf("slot %s: ", pool_string(slot, "slot"));
    if (strcmp(what, "left") == 0)
        printf("left: %s\n", pool_string(slot, "why"));
    else if (strcmp(what, "free") == 0)
        printf("%s: its box has wiped it\n", dry ? "would be free" : "free");
    else if (strcmp(what, "back") == 0 && !pool_integer(slot, "host"))
        printf("%s lease %s of %s, whose data its box keeps%s%s\n",
               dry ? "would be back in" : "back in", lease, tenant, epochs,
               dry ? "" : "; a release of that lease erases them");
    else
        printf("%s%s%s%s%s%s, slot %" PRIu64 " of host %" PRIu64 "%s%s\n", dry ? "would be " : "",
               strcmp(what, "back") == 0 ? "back in lease"
               : dry                     ? "a new lease"
                                         : "new lease",
               *lease ? " " : "", lease, *tenant ? " of " : "", tenant,
               pool_integer(slot, "host_slot"), pool_integer(slot, "host"), epochs,
               dry ? "" : "; its device is in use, and a release of that lease erases its data");
}

/* One request changes a bounded number of slots. */
static int adopt_some(pool_call *r, const char *slot, uint64_t *adopted, uint64_t *freed)
{
    json_t *o = json_object(), *list, *one;
    size_t index;
    int rc;
    if (r->tenant && json_object_set_new(o, "tenant", json_string(r->tenant)))
        return pool_misfit(r, "the tenant's name is not UTF-8");
    rc = pool_ask(r, "POST", o, "/v1/adopt?dry_run=%s%s%s", r->dry_run ? "yes" : "no",
                  *slot ? "&slot=" : "", slot);
    if (rc || r->json)
        return rc ? rc : pool_print_answer(r);
    list = json_object_get(r->client.body, "slots");
    bool more = json_is_true(json_object_get(r->client.body, "more"));
    json_array_foreach(list, index, one)
    {
        if (!more || strcmp(pool_string(one, "what"), "left") != 0) /* they are in the next, too */
            print_adopted(one, r->dry_run);
    }
    *adopted += pool_integer(r->client.body, "adopted");
    *freed += pool_integer(r->client.body, "freed");
    return EXIT_ALL;
}

int pool_adopt(pool_call *r)
{
    char slot[24] = "";
    uint64_t adopted = 0, freed = 0;
    int rc = 0;
    if (r->all == (r->words == 1))
        return options_wrong("either a slot, or --all");
    if (r->words)
        rc = pool_find_slot(r, r->word[0], slot);
    do {
        if (!rc)
            rc = adopt_some(r, slot, &adopted, &freed);
    } while (!rc && !r->json && json_is_true(json_object_get(r->client.body, "more")));
    if (rc || r->json)
        return rc;
    printf("%" PRIu64 " %s, %" PRIu64 " free, %" PRIu64 " left%s\n", adopted,
           adopted == 1 ? "lease" : "leases", freed, pool_integer(r->client.body, "left"),
           r->dry_run ? "; nothing was changed (--dry-run)" : "");
    return EXIT_ALL;
}

/* ==== 5  Backup =============================================================================== */

static void print_backup(const char *file, size_t bytes)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "file", json_string(file)); /* left out when it is not UTF-8 */
    (void)json_object_set_new(o, "bytes", json_integer((json_int_t)bytes));
    print_json(o, 0);
}

static int copy_store(pool_call *r, const char *file)
{
    static const char begin[] = "{\"dxpu-export\":";
    int rc = pool_get(r, "/v1/snapshot");
    if (rc)
        return rc;
    if (r->client.bytes < sizeof begin || strncmp(r->client.text, begin, sizeof begin - 1) != 0)
        return pool_misfit(r, "it is not a copy of a store");
    rc = durable_replace(file, r->client.text, r->client.bytes);
    if (rc)
        return pool_fail(r, EXIT_REFUSED, "%s: %s%s", file, strerror(errno),
                         rc > 0 ? "; it is written, and may not survive a crash" : "");
    if (r->json)
        print_backup(file, r->client.bytes);
    else
        printf("%s: %zu bytes; dxpu-manager --import reads it into a new store\n", file,
               r->client.bytes);
    return EXIT_ALL;
}

/* --every: until a signal ends it; the file is always the last whole copy. */
int pool_backup(pool_call *r)
{
    int rc = copy_store(r, r->word[0]);
    while (r->every_s) {
        (void)fflush(stdout);
        (void)pool_sleep(r, (unsigned)r->every_s * 1000);
        rc = copy_store(r, r->word[0]);
    }
    return rc;
}
