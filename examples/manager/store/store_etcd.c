/* store_etcd.c - records in an etcd cluster, for one manager of several at a time
   SPDX-License-Identifier: MIT

   Below the prefix are

     format       what wrote this, and its version
     leader       the key of the manager that may write, under a lease of etcd: a JSON object with
                  that lease's number
     commit       the name of the last commit
     record/KEY   the records
     part/NNNN    parts of a commit that is too large for one transaction,
     redo         and how many of them are to be carried out: {"parts":3}

   Every transaction compares the revision in which the leader's key was made (the term: it only
   grows, and a key that went and was made again has another one), and the revision of the last
   commit, and writes a name of its own to `commit`.  So a transaction of a former leader changes
   nothing, whenever it arrives (M-140), and one that arrives twice is done once.  An attempt whose
   fate is unknown is followed by the same one at the next member: where the first was done, the
   comparison fails, and the answer has this name.  Nothing else is asked of etcd before that is
   known (M-141).

   A commit of more operations or bytes than etcd takes in one transaction is written to part/ by
   several; the one that writes `redo` decides; then the parts are carried out.  Whoever opens the
   store carries out what is left of that, or removes parts that nothing decided. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dxpu.h"
#include "etcd_gateway.h"
#include "fabric.h"
#include "json.h"
#include "store_internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FORMAT = 1,
    /* etcd's limits are 128 operations and 1.5 MB of a request by default. */
    PART_CHANGES = 120,
    PART_BYTES = 1200000,
    PART_OVERHEAD = 32,        /* bytes of a change beside its key and value */
    PAGE = 4000,               /* records of one answer, */
    SMALL_PAGE = 16,           /* and at least, where those are too large or late */
    STEP_MS = 30,              /* between two steps of a request in the background, */
    IDLE_MS = 250,             /* and between two looks at whether one is due */
    PAUSE_MS = 50,             /* when no member can be reached */
    LOOK_MS = 2000,            /* between two looks of the leader at it */
    STANDBY_MS = 100,          /* between two looks at the leader's key */
    STEP_DOWN_MS = 500,        /* etcd looks that often at its leases: then this one has ended */
    LATE_MS = 2000,            /* etcd may end a lease that much later */
    COMPACT_REVISIONS = 10000, /* of history are kept at most, besides a time */
    CODE_NOT_FOUND = 5,        /* gRPC's */
    KEY_BYTES = ETCD_PREFIX_BYTES + STORE_KEY_MAX_BYTES + 16,
    NAME_BYTES = STORE_NAME_BYTES
};

typedef enum background { BACK_RENEWAL, BACK_COMPACTION, BACK_LOOK } background;

typedef struct etcd_store {
    store base;
    etcd_gateway *gateway;
    store_etcd_settings set;
    etcd_address at;
    char where[128];     /* for messages */
    char id[33];         /* of this run */
    uint64_t commits;    /* names of them are made with this */
    uint64_t lease;      /* 0: none */
    uint64_t term, last; /* revisions: of the leader's key, of the last commit */
    uint64_t revision;   /* the highest that was seen */
    uint64_t made;       /* in which the format was, as a standby has seen; 0: not yet */
    unsigned others;     /* members, a bit each, that have other data since then */
    uint64_t renewed_ms; /* when the request was sent that renewed the lease last, */
    uint64_t sent_ms;    /* and the last such request */
    uint64_t compact_ms, compact_revision; /* what is old at the next compaction */
    uint64_t look_ms;                      /* when to look at the leader's key again */
    background running;                    /* what the last request in the background was */
    uint64_t pinned;                       /* a reader's loads are of this revision; 0: of now */
    bool failed;                           /* what etcd has is no longer known, */
    char why[400];                         /* for this reason */
} etcd_store;

void store_etcd_default(store_etcd_settings *set)
{
    memset(set, 0, sizeof *set);
    set->name = "dxpu-manager";
    set->request_ms = 1000;
    set->commit_ms = 4000;
    set->load_ms = 4000;
    set->ttl_s = 3;
    set->compact_ms = 300000;
}

bool store_etcd_is(const char *where)
{
    return etcd_address_is(where);
}

const char *store_etcd_check(const store_etcd_settings *set)
{
    etcd_address at;
    const char *wrong = etcd_address_parse(set->where, &at);
    if (wrong)
        return wrong;
    if (!set->ca && (set->cert || set->key))
        return "a certificate for etcd needs --etcd-ca, too";
    if (set->cert && !set->key)
        return "--etcd-cert needs --etcd-key, too";
    if (!set->ca && !etcd_address_is_local(&at))
        return "etcd on another machine needs TLS: give --etcd-ca";
    return NULL;
}

/* ==== Parts of requests ======================================================================= */

static json_t *key_json(const etcd_store *s, const char *group, const char *key)
{
    char text[KEY_BYTES];
    int len = snprintf(text, sizeof text, "%s/%s%s", s->at.prefix, group, key);
    return etcd_bytes(text, (size_t)len);
}

/* {"request_put": {...}}, and so on */
static json_t *operation(const char *name, json_t *what)
{
    return json_pack("{s:o}", name, what);
}

static json_t *put_json(const etcd_store *s, const char *group, const char *key, const void *value,
                        size_t len)
{
    return operation("request_put", json_pack("{s:o, s:o}", "key", key_json(s, group, key), "value",
                                              etcd_bytes(value, len)));
}

static json_t *delete_json(const etcd_store *s, const char *group, const char *key)
{
    return operation("request_delete_range", json_pack("{s:o}", "key", key_json(s, group, key)));
}

static json_t *range_json(const etcd_store *s, const char *group)
{
    return operation("request_range", json_pack("{s:o}", "key", key_json(s, group, "")));
}

/* target: "CREATE" or "MOD", the revision in which the key was made or changed last; 0: it is not
   there. */
static json_t *compare_json(const etcd_store *s, const char *group, const char *target,
                            uint64_t revision)
{
    bool made = strcmp(target, "CREATE") == 0;
    return json_pack("{s:o, s:s, s:s, s:o}", "key", key_json(s, group, ""), "target", target,
                     "result", "EQUAL", made ? "create_revision" : "mod_revision",
                     etcd_number(revision));
}

/* ==== Parts of answers ======================================================================== */

/* The first key of the n-th answer to the operations of a transaction; NULL: there is none. */
static const json_t *found(const json_t *answer, size_t n)
{
    const json_t *r = json_array_get(json_object_get(answer, "responses"), n);
    return json_array_get(json_object_get(json_object_get(r, "response_range"), "kvs"), 0);
}

static bool value_is(const json_t *kv, const char *text)
{
    size_t len;
    char *value = kv ? etcd_bytes_read(kv, "value", &len) : NULL;
    bool same = value && len == strlen(text) && memcmp(value, text, len) == 0;
    free(value);
    return same;
}

/* A text of the leader's key. */
static void leader_text(const json_t *kv, const char *key, const char *otherwise, char *out,
                        size_t room)
{
    size_t len = 0;
    char *value = kv ? etcd_bytes_read(kv, "value", &len) : NULL;
    json_t *j = value ? json_loadb(value, len, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(j, key));
    snprintf(out, room, "%s", text ? text : otherwise);
    for (char *c = out; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    json_decref(j);
    free(value);
}

static void leader_name(const json_t *kv, char out[NAME_BYTES])
{
    leader_text(kv, "name", "another program", out, NAME_BYTES);
}

/* ==== Asking ================================================================================== */

static void renew(etcd_store *s);

/* When this manager does not lead any more, unless its lease is renewed. */
static uint64_t over(const etcd_store *s)
{
    return s->renewed_ms + 1000 * s->set.ttl_s + STEP_DOWN_MS;
}

/* At one member.  An answer older than what was seen is not an answer. */
static etcd_answer ask_once(etcd_store *s, const char *path, json_t *body, uint64_t end_ms)
{
    uint64_t now = etcd_now_ms(), left = end_ms > now ? end_ms - now : 1;
    json_incref(body);
    etcd_answer a = etcd_ask(s->gateway, path, body,
                             (unsigned)(left < s->set.request_ms ? left : s->set.request_ms));
    if (a.fate == ETCD_DONE && a.revision < s->revision) {
        json_decref(a.json);
        a = (etcd_answer){ .fate = ETCD_UNKNOWN, .member = a.member, .other = true };
        snprintf(a.text, sizeof a.text, "%.80s: etcd's data are older than before",
                 s->at.member[a.member]);
    }
    if (a.fate == ETCD_DONE) {
        s->revision = a.revision;
        s->others = 0;
    }
    if (a.other)
        s->others |= 1u << a.member;
    return a;
}

/* Asks members in turn until one answers or the time is over.  *sent: some attempt's fate is not
   known. */
static etcd_answer ask(etcd_store *s, const char *path, json_t *body, uint64_t end_ms, bool *sent)
{
    etcd_answer a;
    unsigned tries = 0;
    *sent = false;
    for (;;) {
        a = ask_once(s, path, body, end_ms);
        *sent = *sent || a.fate == ETCD_UNKNOWN;
        if (a.fate == ETCD_DONE || a.fate == ETCD_REFUSED || etcd_now_ms() >= end_ms)
            break;
        if (++tries % s->at.members == 0)
            etcd_sleep_ms(PAUSE_MS);
    }
    json_decref(body);
    return a;
}

static store_error ask_fault(const etcd_store *s, const etcd_answer *a, bool sent, store_fault *f)
{
    if (a->fate == ETCD_REFUSED && !sent)
        return storei_fault(f, STORE_E_FULL,
                            "%s: etcd refuses (%s); compact and defragment it, or mend what it "
                            "says, then try again",
                            s->where, a->text);
    if (!sent)
        return storei_fault(f, STORE_E_AWAY, "%s cannot be reached (%s); see whether etcd runs",
                            s->where, a->text);
    return storei_fault(f, STORE_E_IO,
                        "%s does not answer well (%s): it is unknown what it has; look at etcd, "
                        "then start again",
                        s->where, a->text);
}

/* Nothing is changed or read any more.  Returns rc. */
static store_error give_up(etcd_store *s, store_error rc, const store_fault *f)
{
    if (!s->failed)
        snprintf(s->why, sizeof s->why, "%.399s", f->text);
    s->failed = true;
    return rc;
}

/* Renews the lease.  False, with *f: nothing is changed or read any more. */
static bool goes_on(etcd_store *s, store_fault *f)
{
    if (!s->failed)
        renew(s);
    if (s->failed)
        storei_fault(f, STORE_E_IO, "%s", s->why);
    return !s->failed;
}

/* Renews the lease before the next transaction, and says how long that one may take. */
static store_error next_step(etcd_store *s, uint64_t *end_ms, store_fault *f)
{
    if (!goes_on(s, f))
        return STORE_E_IO;
    *end_ms = etcd_now_ms() + s->set.commit_ms;
    if (*end_ms > over(s)) /* another may lead then */
        *end_ms = over(s);
    return STORE_OK;
}

/* ==== The transaction ========================================================================= */

/* Another leads, or somebody wrote below the prefix: never again is anything changed. */
static store_error lost(etcd_store *s, const json_t *leader, store_fault *f)
{
    uint64_t made = 0;
    char name[NAME_BYTES];
    if (leader && etcd_number_read(leader, "create_revision", &made) && made == s->term)
        return storei_fault(f, STORE_E_IO,
                            "%s was changed by another program than its leader; start again",
                            s->where);
    if (!leader)
        return storei_fault(f, STORE_E_IO, "%s: the lease of this manager has ended; start again",
                            s->where);
    leader_name(leader, name);
    return storei_fault(f, STORE_E_IO, "%s: %s leads now; this manager changes nothing any more",
                        s->where, name);
}

typedef enum outcome { OUTCOME_UNKNOWN, OUTCOME_NONE, OUTCOME_MADE } outcome;

/* Was the refused commit of this name made all the same?  etcd carries a transaction out that goes
   beyond its quota, and refuses it then; and libcurl sends a request again, silently, when the
   connection breaks that it was sent over.  *revision: of the commit that was made. */
static outcome look_at_commit(etcd_store *s, const char *name, uint64_t end_ms, uint64_t *revision)
{
    bool sent;
    outcome o = OUTCOME_UNKNOWN;
    etcd_answer a =
        ask(s, "kv/range", json_pack("{s:o}", "key", key_json(s, "commit", "")), end_ms, &sent);
    if (a.fate != ETCD_DONE)
        return o;
    const json_t *commit = json_array_get(json_object_get(a.json, "kvs"), 0);
    *revision = 0;
    if (!commit || etcd_number_read(commit, "mod_revision", revision)) {
        if (value_is(commit, name) && *revision > s->last)
            o = OUTCOME_MADE;
        else if (*revision == s->last)
            o = OUTCOME_NONE;
    }
    json_decref(a.json);
    return o;
}

/* The end of a commit that etcd did not carry out, as far as it says.  sent: an attempt of it may
   arrive yet. */
static store_error not_done(etcd_store *s, const etcd_answer *a, const char *name, bool sent,
                            uint64_t end_ms, store_fault *f)
{
    outcome o = sent ? OUTCOME_UNKNOWN : OUTCOME_NONE;
    uint64_t revision = 0;
    if (a->fate == ETCD_REFUSED)
        o = look_at_commit(s, name, end_ms, &revision);
    if (o == OUTCOME_MADE) {
        s->last = revision;
        return STORE_OK;
    }
    store_error rc = ask_fault(s, a, sent || o == OUTCOME_UNKNOWN, f);
    return rc == STORE_E_IO ? give_up(s, rc, f) : rc;
}

/* Without memory the whole list goes: a transaction is not made with a part of it. */
static void append(json_t **operations, json_t *one)
{
    if (json_array_append_new(*operations, one) == 0)
        return;
    json_decref(*operations);
    *operations = NULL;
}

/* One transaction of the leader, once, with the operations.  Frees them.  However many transactions
   follow one another, the lease is renewed before each. */
static store_error change(etcd_store *s, json_t *operations, store_fault *f)
{
    char name[NAME_BYTES];
    uint64_t end_ms;
    bool sent;
    if (next_step(s, &end_ms, f) != STORE_OK) {
        json_decref(operations);
        return STORE_E_IO;
    }
    snprintf(name, sizeof name, "%s-%llu", s->id, (unsigned long long)++s->commits);
    append(&operations, put_json(s, "commit", "", name, strlen(name)));
    json_t *body = json_pack("{s:[o,o], s:o, s:[o,o]}", "compare",
                             compare_json(s, "leader", "CREATE", s->term),
                             compare_json(s, "commit", "MOD", s->last), "success", operations,
                             "failure", range_json(s, "leader"), range_json(s, "commit"));
    if (!body)
        return storei_fault(f, STORE_E_FULL, "out of memory");
    etcd_answer a = ask(s, "kv/txn", body, end_ms, &sent);
    if (a.fate != ETCD_DONE)
        return not_done(s, &a, name, sent, end_ms, f);
    const json_t *commit = found(a.json, 1);
    uint64_t revision = a.revision;
    bool done = json_is_true(json_object_get(a.json, "succeeded")), good = true;
    if (!done && value_is(commit, name)) { /* by an attempt before */
        done = true;
        good = etcd_number_read(commit, "mod_revision", &revision);
    }
    store_error rc = STORE_OK;
    if (!done)
        rc = lost(s, found(a.json, 0), f);
    else if (!good || revision <= s->last)
        rc = storei_fault(f, STORE_E_IO, "%s gives no good answer; look at etcd, then start again",
                          s->where);
    else
        s->last = revision;
    json_decref(a.json);
    return rc == STORE_OK ? rc : give_up(s, rc, f);
}

static void add_change(const etcd_store *s, json_t **operations, const store_change *c)
{
    append(operations, c->value ? put_json(s, "record/", c->key, c->value, c->len)
                                : delete_json(s, "record/", c->key));
}

/* etcd takes a key once in a transaction: the last change of it counts.  These stay, in order. */
static unsigned last_changes(const store_change *changes, unsigned count, const store_change **out)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned j = i + 1;
        while (j < count && strcmp(changes[j].key, changes[i].key) != 0)
            j++;
        if (j == count)
            out[n++] = &changes[i];
    }
    return n;
}

/* How many of the changes from the first one on fit into a part. */
static unsigned part_of(const store_change *const *change, unsigned count)
{
    size_t bytes = 0;
    unsigned n = 0;
    for (; n < count && n < PART_CHANGES; n++) {
        bytes += PART_OVERHEAD + ETCD_PREFIX_BYTES + strlen(change[n]->key) + change[n]->len;
        if (n && bytes > PART_BYTES)
            break;
    }
    return n;
}

static store_error apply(etcd_store *s, const store_change *const *change_list, unsigned count,
                         store_fault *f)
{
    json_t *operations = json_array();
    for (unsigned i = 0; i < count; i++)
        add_change(s, &operations, change_list[i]);
    return change(s, operations, f);
}

/* ==== Large commits =========================================================================== */

/* A part is, for each change: length of key (16), key, length of value (32), value.  That length is
   all ones where the record is deleted. */
static uint8_t *part_write(const store_change *const *change_list, unsigned count, size_t *len)
{
    size_t room = 0;
    for (unsigned i = 0; i < count; i++)
        room += 6 + strlen(change_list[i]->key) + change_list[i]->len;
    uint8_t *part = malloc(room), *out = part;
    for (unsigned i = 0; part && i < count; i++) {
        const store_change *c = change_list[i];
        size_t key = strlen(c->key), value = c->value ? c->len : 0;
        dxpu_put_be16(out, (uint16_t)key);
        memcpy(out + 2, c->key, key);
        dxpu_put_be32(out + 2 + key, c->value ? (uint32_t)value : UINT32_MAX);
        if (value)
            memcpy(out + 6 + key, c->value, value);
        out += 6 + key + value;
    }
    *len = (size_t)(out - part);
    return part;
}

/* The operations of a part; NULL: it is damaged, or no memory. */
static json_t *part_read(const etcd_store *s, const uint8_t *in, size_t len, bool *damaged)
{
    json_t *operations = json_array();
    char key[STORE_KEY_MAX_BYTES + 1];
    while (len) {
        size_t key_len = len >= 2 ? dxpu_get_be16(in) : 0;
        if (!key_len || key_len > STORE_KEY_MAX_BYTES || len < 6 + key_len)
            break;
        uint32_t value = dxpu_get_be32(in + 2 + key_len);
        memcpy(key, in + 2, key_len);
        key[key_len] = 0;
        in += 6 + key_len;
        len -= 6 + key_len;
        if (value != UINT32_MAX && value > len)
            break;
        store_change c = { key, value == UINT32_MAX ? NULL : in, value };
        add_change(s, &operations, &c);
        in += value == UINT32_MAX ? 0 : value;
        len -= value == UINT32_MAX ? 0 : value;
        if (!len)
            return operations;
    }
    *damaged = true;
    json_decref(operations);
    return NULL;
}

static store_error put_one(etcd_store *s, const char *group, const char *key, const void *value,
                           size_t len, store_fault *f)
{
    return change(s, json_pack("[o]", put_json(s, group, key, value, len)), f);
}

/* Parts and `redo` go together. */
static store_error forget_parts(etcd_store *s, store_fault *f)
{
    json_t *all =
        operation("request_delete_range", json_pack("{s:o, s:o}", "key", key_json(s, "part/", ""),
                                                    "range_end", key_json(s, "part/", "\x7f")));
    return change(s, json_pack("[o,o]", all, delete_json(s, "redo", "")), f);
}

static store_error commit_parts(etcd_store *s, const store_change *const *change_list,
                                unsigned count, store_fault *f)
{
    char key[16], redo[40];
    json_writer w;
    store_error rc = STORE_OK;
    unsigned parts = 0;
    for (unsigned at = 0, n; rc == STORE_OK && at < count; at += n) {
        size_t len;
        n = part_of(change_list + at, count - at);
        uint8_t *part = part_write(change_list + at, n, &len);
        snprintf(key, sizeof key, "%04u", parts++);
        rc = part ? put_one(s, "part/", key, part, len, f)
                  : storei_fault(f, STORE_E_FULL, "out of memory");
        free(part);
    }
    if (rc != STORE_OK)
        return rc; /* the parts count for nothing; the next ones are written over them */
    json_to_text(&w, redo, sizeof redo);
    json_put_open(&w, NULL, '{');
    json_put_number(&w, "parts", parts);
    json_put_close(&w, '}');
    rc = put_one(s, "redo", "", redo, strlen(redo), f);
    if (rc != STORE_OK)
        return rc;
    for (unsigned at = 0, n; rc == STORE_OK && at < count; at += n) {
        n = part_of(change_list + at, count - at);
        rc = apply(s, change_list + at, n, f);
    }
    if (rc == STORE_OK)
        rc = forget_parts(s, f);
    if (rc == STORE_OK)
        return rc;
    return give_up(s, f->code = STORE_E_IO, f); /* decided, and not done: whoever opens it does */
}

/* What a manager that was killed in a large commit left. */
static store_error finish_parts(etcd_store *s, const json_t *redo, store_fault *f)
{
    uint64_t end_ms;
    size_t len;
    unsigned parts = 0;
    char *text = etcd_bytes_read(redo, "value", &len), key[16];
    json_t *j = text ? json_loadb(text, len, 0, NULL) : NULL;
    int number = 0;
    if (json_unpack(j, "{s:i}", "parts", &number) == 0 && number > 0)
        parts = (unsigned)number;
    json_decref(j);
    free(text);
    store_error rc = parts ? STORE_OK : STORE_E_CORRUPT;
    for (unsigned i = 0; rc == STORE_OK && i < parts; i++) {
        bool sent;
        if (next_step(s, &end_ms, f) != STORE_OK)
            return STORE_E_IO;
        snprintf(key, sizeof key, "%04u", i);
        etcd_answer a =
            ask(s, "kv/range", json_pack("{s:o}", "key", key_json(s, "part/", key)), end_ms, &sent);
        if (a.fate != ETCD_DONE)
            return ask_fault(s, &a, sent, f);
        const json_t *kv = json_array_get(json_object_get(a.json, "kvs"), 0);
        char *part = kv ? etcd_bytes_read(kv, "value", &len) : NULL;
        bool damaged = kv == NULL;
        json_t *operations = part ? part_read(s, (const uint8_t *)part, len, &damaged) : NULL;
        rc = damaged ? STORE_E_CORRUPT : change(s, operations, f);
        free(part);
        json_decref(a.json);
    }
    if (rc == STORE_E_CORRUPT)
        return storei_fault(f, rc, "%s: a part of a large commit is damaged; restore a backup",
                            s->where);
    return rc == STORE_OK ? forget_parts(s, f) : rc;
}

/* ==== The interface =========================================================================== */

static store_error etcd_commit(store *base, const store_change *changes, unsigned count,
                               store_fault *f)
{
    etcd_store *s = (etcd_store *)base;
    if (!goes_on(s, f))
        return STORE_E_IO;
    if (s->set.reader)
        return storei_fault(f, STORE_E_ARG, "%s is open for reading", s->where);
    store_error rc = storei_check(changes, count, f);
    if (rc != STORE_OK)
        return rc;
    const store_change **list = calloc(count, sizeof *list);
    if (!list)
        return storei_fault(f, STORE_E_FULL, "out of memory");
    count = last_changes(changes, count, list);
    rc = part_of(list, count) == count ? apply(s, list, count, f) : commit_parts(s, list, count, f);
    free(list);
    if (!s->failed) /* it may have taken nearly as long as the lease */
        renew(s);
    return rc;
}

typedef struct loading {
    etcd_store *s;
    char next[KEY_BYTES + 1]; /* key from which the next page begins, with a 0 behind: see below */
    size_t next_len;
    uint64_t revision; /* of the first page, and all others; 0: not known yet */
    uint64_t left;     /* records, by etcd's count, that were not seen yet */
    bool more;
} loading;

/* One record of a page: 0, 1 when `each` ends it, -1 when etcd gives no good answer. */
static int load_one(loading *l, const json_t *kv, const char *first, store_each each, void *user)
{
    if (!l->left)
        return -1;
    l->left--;
    size_t key_len, len, prefix = strlen(l->s->at.prefix) + strlen("/record/");
    char *key = etcd_bytes_read(kv, "key", &key_len);
    char *value = etcd_bytes_read(kv, "value", &len);
    int rc = -1;
    if (key && value && key_len > prefix && key_len < KEY_BYTES && strlen(key) == key_len &&
        strncmp(key, first, strlen(first)) == 0 &&
        (!l->next_len || strcmp(key, l->next) > 0)) { /* in order */
        memcpy(l->next, key, key_len + 1);
        l->next_len = key_len + 1; /* the least key above this one has a 0 behind it */
        rc = each(user, key + prefix, value, len) != 0;
    }
    free(key);
    free(value);
    return rc;
}

static json_t *page_json(const loading *l, const char *first, unsigned limit)
{
    char end[KEY_BYTES];
    int len = snprintf(end, sizeof end, "%s\x7f", first);
    return json_pack("{s:o, s:o, s:o, s:o}", "key",
                     l->next_len ? etcd_bytes(l->next, l->next_len)
                                 : etcd_bytes(first, strlen(first)),
                     "range_end", etcd_bytes(end, (size_t)len), "limit", etcd_number(limit),
                     "revision", etcd_number(l->revision));
}

static store_error load_fault(const etcd_store *s, const etcd_answer *a, store_fault *f)
{
    return storei_fault(f, STORE_E_IO,
                        s->set.reader
                            ? "%s cannot be read (%s); see whether etcd runs"
                            : "%s cannot be read (%s); see whether etcd runs, then start again",
                        s->where, a->text);
}

/* At members in turn.  An answer that is too large, or does not come in time, is asked for with
   fewer records, here and for the rest of the load; after a sooner error, with as many. */
static etcd_answer ask_page(loading *l, const char *first, unsigned *limit, uint64_t end_ms)
{
    for (unsigned tries = 0;;) {
        uint64_t late_ms = etcd_now_ms() + l->s->set.request_ms * 3 / 4;
        json_t *body = page_json(l, first, *limit);
        etcd_answer a = ask_once(l->s, "kv/range", body, end_ms);
        json_decref(body);
        if (a.fate == ETCD_DONE || (a.fate == ETCD_REFUSED && tries) || etcd_now_ms() >= end_ms)
            return a;
        if (a.fate == ETCD_UNKNOWN && (a.code || etcd_now_ms() >= late_ms))
            *limit /= a.code ? 4 : 2; /* the code says that it is too large */
        *limit = *limit < SMALL_PAGE ? SMALL_PAGE : *limit;
        if (++tries % l->s->at.members == 0)
            etcd_sleep_ms(PAUSE_MS);
    }
}

static store_error load_page(loading *l, const char *first, unsigned *limit, uint64_t end_ms,
                             store_each each, void *user, store_fault *f)
{
    int rc = 0;
    size_t i;
    const json_t *kv;
    etcd_answer a = ask_page(l, first, limit, end_ms);
    if (a.fate != ETCD_DONE)
        return load_fault(l->s, &a, f);
    const json_t *kvs = json_object_get(a.json, "kvs");
    if (!l->revision)
        l->revision = a.revision;
    uint64_t count;
    bool bad = !etcd_number_read(a.json, "count", &count) || (kvs && !json_is_array(kvs));
    if (!l->next_len)
        l->left = count;
    l->more = json_is_true(json_object_get(a.json, "more"));
    json_array_foreach(kvs, i, kv) if (rc == 0) rc = load_one(l, kv, first, each, user);
    bad = bad || rc < 0 || (l->more && !json_array_size(kvs)) || (!rc && !l->more && l->left);
    l->more = l->more && rc == 0;
    json_decref(a.json);
    return bad ? storei_fault(f, STORE_E_IO,
                              "%s gives no good answer; look at etcd, then start "
                              "again",
                              l->s->where)
               : STORE_OK;
}

/* A moment in which no large commit is half carried out, for who is not the leader: its revision,
   and what the store says then of its last commit and its leader. */
static store_error see(etcd_store *s, store_seen *out, uint64_t *revision, store_fault *f)
{
    uint64_t end_ms = etcd_now_ms() + s->set.commit_ms;
    bool sent, busy = true;
    memset(out, 0, sizeof *out);
    while (busy) {
        json_t *body = json_pack("{s:[o,o,o]}", "success", range_json(s, "commit"),
                                 range_json(s, "leader"), range_json(s, "redo"));
        etcd_answer a = ask(s, "kv/txn", body, etcd_now_ms() + s->set.commit_ms, &sent);
        if (a.fate != ETCD_DONE)
            return load_fault(s, &a, f);
        const json_t *leader = found(a.json, 1);
        busy = found(a.json, 2) != NULL;
        (void)etcd_number_read(found(a.json, 0), "mod_revision", &out->revision);
        out->leads = leader != NULL;
        if (leader) {
            leader_name(leader, out->name);
            leader_text(leader, "users", "", out->users, sizeof out->users);
        }
        json_decref(a.json);
        *revision = a.revision;
        if (busy && etcd_now_ms() > end_ms)
            return storei_fault(
                f, STORE_E_LOCKED,
                "%s: a large commit is not finished; try again while a manager leads", s->where);
        if (busy)
            etcd_sleep_ms(PAUSE_MS);
    }
    return STORE_OK;
}

store_error store_etcd_see(store *base, store_seen *out, store_fault *f)
{
    etcd_store *s = (etcd_store *)base;
    return see(s, out, &s->pinned, f);
}

static store_error etcd_load(store *base, const char *prefix, store_each each, void *user,
                             store_fault *f)
{
    etcd_store *s = (etcd_store *)base;
    loading l = { .s = s, .more = true };
    store_seen seen;
    char first[KEY_BYTES];
    unsigned limit = PAGE;
    store_error rc = STORE_OK;
    if (strlen(prefix) > STORE_KEY_MAX_BYTES)
        return STORE_OK;
    snprintf(first, sizeof first, "%s/record/%s", s->at.prefix, prefix);
    l.revision = s->pinned;
    if (s->set.reader && !s->pinned)
        rc = see(s, &seen, &l.revision, f);
    while (rc == STORE_OK && l.more) {
        if (!goes_on(s, f)) /* what is read may be changed yet, and etcd may not answer */
            return STORE_E_IO;
        uint64_t end_ms = etcd_now_ms() + s->set.load_ms;
        if (!s->set.reader && end_ms > over(s)) /* another may lead then, and change it */
            end_ms = over(s);
        rc = load_page(&l, first, &limit, end_ms, each, user, f);
    }
    return rc;
}

/* ==== The lease, and compaction =============================================================== */

/* The lease may go on without the key: somebody deleted it, or it is another's. */
static void take_look(etcd_store *s, const json_t *answer)
{
    store_fault f;
    uint64_t made = 0;
    const json_t *leader = json_array_get(json_object_get(answer, "kvs"), 0);
    if (leader && (!etcd_number_read(leader, "create_revision", &made) || made == s->term))
        return;
    (void)give_up(s, lost(s, leader, &f), &f);
}

static void take_renewal(etcd_store *s, const json_t *answer)
{
    uint64_t ttl = 0;
    if (!etcd_number_read(answer, "TTL", &ttl))
        return;
    if (ttl)
        s->renewed_ms = s->sent_ms;
    else
        s->lease = 0; /* it has ended */
}

/* The background request's answer, if it is there.  An attempt to renew that failed is made
   again at once, at the next member. */
static void take_background(etcd_store *s)
{
    etcd_answer a;
    if (!etcd_poll(s->gateway, &a))
        return;
    if (s->running == BACK_RENEWAL && a.fate != ETCD_DONE)
        s->sent_ms = 0;
    else if (s->running == BACK_RENEWAL)
        take_renewal(s, a.json);
    else if (s->running == BACK_LOOK && a.fate == ETCD_DONE)
        take_look(s, a.json);
    json_decref(a.json);
}

static void look_at_leader(etcd_store *s)
{
    uint64_t now = etcd_now_ms();
    if (now < s->look_ms)
        return;
    json_t *body = json_pack("{s:o}", "key", key_json(s, "leader", ""));
    if (!etcd_start(s->gateway, "kv/range", body, s->set.request_ms))
        return;
    s->running = BACK_LOOK;
    s->look_ms = now + LOOK_MS;
}

/* History fills etcd's space, and is not read. */
static void compact(etcd_store *s)
{
    uint64_t now = etcd_now_ms();
    if (now < s->compact_ms && s->revision < s->compact_revision + COMPACT_REVISIONS)
        return;
    if (s->compact_revision) {
        json_t *body = json_pack("{s:o}", "revision", etcd_number(s->compact_revision));
        if (!etcd_start(s->gateway, "kv/compaction", body, s->set.request_ms))
            return;
        s->running = BACK_COMPACTION;
    }
    s->compact_ms = now + s->set.compact_ms;
    s->compact_revision = s->revision;
}

/* Sends what is due, and waits for nothing. */
static void renew(etcd_store *s)
{
    uint64_t now = etcd_now_ms();
    take_background(s);
    if (!s->lease || now < s->sent_ms + s->set.ttl_s * 1000 / 3)
        return;
    json_t *body = json_pack("{s:o}", "ID", etcd_number(s->lease));
    if (etcd_start(s->gateway, "lease/keepalive", body, s->set.request_ms)) {
        s->running = BACK_RENEWAL;
        s->sent_ms = now;
    }
}

static store_error etcd_check(store *base, store_fault *f)
{
    etcd_store *s = (etcd_store *)base;
    if (!goes_on(s, f))
        return STORE_E_IO;
    if (s->lease && etcd_now_ms() < over(s)) {
        compact(s);
        look_at_leader(s);
        return STORE_OK;
    }
    storei_fault(f, STORE_E_IO,
                 s->lease ? "%s: the lease of this manager was not renewed in time: etcd did not "
                            "answer, or this manager was stopped meanwhile; start again"
                          : "%s: the lease of this manager has ended; start again",
                 s->where);
    return give_up(s, STORE_E_IO, f);
}

static bool etcd_sure(const store *base)
{
    const etcd_store *s = (const etcd_store *)base;
    return !s->failed && s->lease && etcd_now_ms() < s->renewed_ms + 1000 * s->set.ttl_s;
}

static unsigned etcd_check_ms(const store *base)
{
    const etcd_store *s = (const etcd_store *)base;
    return etcd_is_busy(s->gateway) ? STEP_MS : IDLE_MS;
}

static void etcd_store_close(store *base)
{
    etcd_store *s = (etcd_store *)base;
    if (s->lease) { /* the next manager need not wait for its end */
        json_t *body = json_pack("{s:o}", "ID", etcd_number(s->lease));
        etcd_answer a = etcd_ask(s->gateway, "lease/revoke", body, s->set.request_ms);
        json_decref(a.json);
    }
    etcd_gateway_close(s->gateway);
    free(s);
}

/* ==== Opening ================================================================================= */

static store_error grant(etcd_store *s, uint64_t end_ms, store_fault *f)
{
    bool sent;
    s->sent_ms = s->renewed_ms = etcd_now_ms();
    etcd_answer a =
        ask(s, "lease/grant", json_pack("{s:o}", "TTL", etcd_number(s->set.ttl_s)), end_ms, &sent);
    if (a.fate != ETCD_DONE) /* one that was granted all the same ends by itself */
        return ask_fault(s, &a, false, f);
    bool good = etcd_number_read(a.json, "ID", &s->lease) && s->lease;
    json_decref(a.json);
    return good ? STORE_OK
                : storei_fault(f, STORE_E_IO, "%s gives no lease; look at etcd", s->where);
}

/* Once.  *held: somebody else has the key, since this revision. */
static store_error take_lead(etcd_store *s, uint64_t end_ms, uint64_t *held, char name[NAME_BYTES],
                             store_fault *f)
{
    char value[1024], lease[24];
    json_writer w;
    bool sent;
    snprintf(lease, sizeof lease, "%llu", (unsigned long long)s->lease);
    json_to_text(&w, value, sizeof value);
    json_put_open(&w, NULL, '{');
    json_put_text(&w, "id", s->id);
    json_put_text(&w, "name", s->set.name);
    if (s->set.users)
        json_put_text(&w, "users", s->set.users);
    json_put_text(&w, "lease", lease); /* a late attempt under an older one does not lead */
    json_put_close(&w, '}');
    json_t *put = put_json(s, "leader", "", value, strlen(value));
    json_object_set_new(json_object_get(put, "request_put"), "lease", etcd_number(s->lease));
    json_t *body =
        json_pack("{s:[o], s:[o], s:[o]}", "compare", compare_json(s, "leader", "CREATE", 0),
                  "success", put, "failure", range_json(s, "leader"));
    etcd_answer a = ask(s, "kv/txn", body, end_ms, &sent);
    *held = 0;
    if (a.fate == ETCD_REFUSED && a.code == CODE_NOT_FOUND) /* the lease has ended meanwhile */
        return STORE_OK;
    if (a.fate != ETCD_DONE)
        return ask_fault(s, &a, sent, f);
    const json_t *leader = found(a.json, 0);
    if (json_is_true(json_object_get(a.json, "succeeded")))
        s->term = a.revision;
    else if (value_is(leader, value)) /* by an attempt before */
        (void)etcd_number_read(leader, "create_revision", &s->term);
    else if (!leader || !etcd_number_read(leader, "create_revision", held) || !*held)
        *held = 1;
    if (*held)
        leader_name(leader, name);
    json_decref(a.json);
    return STORE_OK;
}

/* The revision in which the leader's key was made, 0: there is none; and who has it. */
static store_error see_leader(etcd_store *s, uint64_t *held, char name[NAME_BYTES], store_fault *f)
{
    bool sent;
    etcd_answer a = ask(s, "kv/range", json_pack("{s:o}", "key", key_json(s, "leader", "")),
                        etcd_now_ms() + s->set.commit_ms, &sent);
    *held = 0;
    if (a.fate != ETCD_DONE)
        return ask_fault(s, &a, false, f);
    const json_t *leader = json_array_get(json_object_get(a.json, "kvs"), 0);
    if (leader && (!etcd_number_read(leader, "create_revision", held) || !*held))
        *held = 1;
    if (leader)
        leader_name(leader, name);
    json_decref(a.json);
    return STORE_OK;
}

/* Do most members say that they have other data than before?  One alone may be a mistake in the
   list of members, and a start could take its empty data for the pool's. */
static bool is_replaced(const etcd_store *s)
{
    unsigned count = 0;
    for (unsigned i = 0; i < s->at.members; i++)
        count += s->others >> i & 1;
    return count * 2 > s->at.members;
}

static store_error replaced(const etcd_store *s, store_fault *f)
{
    return storei_fault(f, STORE_E_IO,
                        "%s is not the store that it was: its data were lost, or replaced "
                        "by another copy, while this manager was a standby; start again "
                        "(a restored store: when it is imported)",
                        s->where);
}

/* A standby that has seen a pool takes no empty store for it later.  Where this look fails, the
   next one may not. */
static void note_pool(etcd_store *s)
{
    bool sent;
    if (s->made)
        return;
    etcd_answer a = ask(s, "kv/range", json_pack("{s:o}", "key", key_json(s, "format", "")),
                        etcd_now_ms() + s->set.request_ms, &sent);
    if (a.fate == ETCD_DONE)
        (void)etcd_number_read(json_array_get(json_object_get(a.json, "kvs"), 0), "create_revision",
                               &s->made);
    json_decref(a.json);
}

/* One that was killed keeps the key for as long as its lease; a standby waits for any. */
static store_error lead(etcd_store *s, store_fault *f)
{
    uint64_t end_ms = etcd_now_ms() + 1000 * s->set.ttl_s + LATE_MS, first = 0, held;
    char name[NAME_BYTES] = "";
    for (;;) {
        store_error rc = see_leader(s, &held, name, f);
        if (rc == STORE_OK && !held)
            rc = grant(s, etcd_now_ms() + s->set.commit_ms, f);
        if (rc == STORE_OK && !held)
            rc = take_lead(s, etcd_now_ms() + s->set.commit_ms, &held, name, f);
        if (s->term || (rc != STORE_OK && !s->set.waiting))
            return rc;
        if (rc != STORE_OK && is_replaced(s))
            return replaced(s, f);
        if (s->set.waiting && rc == STORE_OK)
            note_pool(s);
        bool other = held && first && held != first; /* others lead, one after the other */
        if (!s->set.waiting && (other || etcd_now_ms() > end_ms))
            break;
        if (s->set.waiting && !s->set.waiting(rc == STORE_OK ? name : NULL, f->text))
            break;
        first = held ? held : first;
        etcd_sleep_ms(s->set.waiting ? STANDBY_MS : PAUSE_MS);
    }
    return storei_fault(f, STORE_E_LOCKED, "%s is in use by %s; end that one first", s->where,
                        name);
}

static store_error begin_format(etcd_store *s, store_fault *f)
{
    char text[64];
    json_writer w;
    json_to_text(&w, text, sizeof text);
    json_put_open(&w, NULL, '{');
    json_put_text(&w, "store", "dxpu");
    json_put_number(&w, "format", FORMAT);
    json_put_close(&w, '}');
    return put_one(s, "format", "", text, strlen(text), f);
}

static store_error check_format(const etcd_store *s, const json_t *kv, store_fault *f)
{
    size_t len;
    char *text = etcd_bytes_read(kv, "value", &len);
    json_t *j = text ? json_loadb(text, len, 0, NULL) : NULL;
    const char *whose = NULL;
    int format = 0;
    bool good = json_unpack(j, "{s:s, s:i}", "store", &whose, "format", &format) == 0 &&
                strcmp(whose, "dxpu") == 0 && format > 0;
    json_decref(j);
    free(text);
    if (!good)
        return storei_fault(f, STORE_E_FOREIGN,
                            "%s: %s/format is another program's; name another "
                            "prefix",
                            s->where, s->at.prefix);
    if (format > FORMAT)
        return storei_fault(
            f, STORE_E_NEWER,
            "%s has format %d, this program knows up to %d; run the version that wrote it",
            s->where, format, (int)FORMAT);
    return STORE_OK;
}

/* For a reader: is it ours, and not from the future? */
static store_error see_format(etcd_store *s, store_fault *f)
{
    bool sent;
    etcd_answer a = ask(s, "kv/range", json_pack("{s:o}", "key", key_json(s, "format", "")),
                        etcd_now_ms() + s->set.commit_ms, &sent);
    if (a.fate != ETCD_DONE)
        return ask_fault(s, &a, false, f);
    const json_t *format = json_array_get(json_object_get(a.json, "kvs"), 0);
    store_error rc = format ? check_format(s, format, f)
                            : storei_fault(f, STORE_E_IO, "%s has no records of a pool", s->where);
    json_decref(a.json);
    return rc;
}

/* What is below the prefix: ours, sound, and not from the future?  Or is there nothing? */
static store_error begin(etcd_store *s, store_fault *f)
{
    bool sent;
    uint64_t end_ms = etcd_now_ms() + s->set.commit_ms + s->set.load_ms, below = 0, made = 0;
    json_t *count = operation("request_range",
                              json_pack("{s:o, s:o, s:b}", "key", key_json(s, "", ""), "range_end",
                                        key_json(s, "", "\x7f"), "count_only", 1));
    etcd_answer a = ask(s, "kv/txn",
                        json_pack("{s:[o,o,o,o]}", "success", range_json(s, "format"),
                                  range_json(s, "commit"), range_json(s, "redo"), count),
                        end_ms, &sent);
    if (a.fate != ETCD_DONE)
        return ask_fault(s, &a, false, f);
    const json_t *format = found(a.json, 0), *commit = found(a.json, 1), *redo = found(a.json, 2);
    const json_t *all =
        json_object_get(json_array_get(json_object_get(a.json, "responses"), 3), "response_range");
    store_error rc = STORE_OK;
    if (!etcd_number_read(all, "count", &below) ||
        (commit && !etcd_number_read(commit, "mod_revision", &s->last)) ||
        !etcd_number_read(format, "create_revision", &made))
        rc = storei_fault(f, STORE_E_IO, "%s gives no good answer; look at etcd", s->where);
    else if (s->made && made != s->made)
        rc = replaced(s, f);
    else if (!format && below > 1) /* the leader's key is there */
        rc = storei_fault(f, STORE_E_FOREIGN,
                          "%s has keys below %s/ that are another program's; name another prefix",
                          s->where, s->at.prefix);
    else
        rc = format ? check_format(s, format, f) : begin_format(s, f);
    if (rc == STORE_OK)
        rc = redo ? finish_parts(s, redo, f) : forget_parts(s, f);
    json_decref(a.json);
    return rc;
}

store *store_open_etcd(const store_etcd_settings *set, store_fault *f)
{
    static const store_kind kind = { .load = etcd_load,
                                     .commit = etcd_commit,
                                     .check = etcd_check,
                                     .check_ms = etcd_check_ms,
                                     .sure = etcd_sure,
                                     .close = etcd_store_close,
                                     .share = PART_CHANGES };
    const char *wrong = store_etcd_check(set);
    if (wrong) {
        storei_fault(f, STORE_E_ARG, "%s", wrong);
        return NULL;
    }
    etcd_store *s = calloc(1, sizeof *s);
    if (s) {
        const etcd_tls tls = { set->ca, set->cert, set->key };
        s->base.kind = &kind;
        s->set = *set;
        (void)etcd_address_parse(set->where, &s->at);
        s->gateway = etcd_gateway_open(&s->at, &tls);
    }
    if (!s || !s->gateway) {
        free(s);
        storei_fault(f, STORE_E_MEMORY, "out of memory");
        return NULL;
    }
    snprintf(s->where, sizeof s->where, "%.127s", set->where);
    for (unsigned i = 0; i < 4; i++)
        snprintf(s->id + 8 * i, 9, "%08x", fabric_random());
    if (set->reader ? see_format(s, f) == STORE_OK
                    : lead(s, f) == STORE_OK && begin(s, f) == STORE_OK)
        return &s->base;
    etcd_store_close(&s->base);
    return NULL;
}
