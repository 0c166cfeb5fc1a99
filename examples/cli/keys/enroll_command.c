/* enroll_command.c - dxpu enroll: two programs exchange public keys, which people confirm
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "command.h"
#include "console.h"
#include "enroll_internal.h"
#include "log.h"
#include "print_json.h"

#include "dxpu_tcp.h"
#include "keys.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_S = 300, TIMEOUT_MAX_S = 86400, DIGITS = 32 };

/* ==== 1  Arguments ============================================================================ */

static int wrong(const char *what)
{
    return options_wrong("%s", what);
}

/* A fingerprint without its blanks, in small letters; false: it is invalid. */
static bool plain_digits(const char *text, char out[DIGITS + 1])
{
    unsigned n = 0;
    for (; *text; text++) {
        char c = *text >= 'A' && *text <= 'F' ? (char)(*text - 'A' + 'a') : *text;
        if (c == ' ')
            continue;
        if (n == DIGITS || !strchr("0123456789abcdef", c))
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return n == DIGITS;
}

static bool is_expected(const char *expect, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES], print[DXPU_SODIUM_FINGERPRINT_BYTES], a[DIGITS + 1],
        b[DIGITS + 1];
    return !strcmp(expect, dxpu_sodium_key_print(key, text)) ||
           (plain_digits(expect, a) && plain_digits(dxpu_sodium_fingerprint(key, print), b) &&
            !strcmp(a, b));
}

static const char *check_expect(const char *expect)
{
    char digits[DIGITS + 1];
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    if (!expect)
        return isatty(STDIN_FILENO)
                   ? NULL
                   : "there is no terminal to ask at; give --expect KEY, the other's public key";
    return dxpu_sodium_key_parse(expect, key) || plain_digits(expect, digits)
               ? NULL
               : "--expect: a public key (44 characters), or a fingerprint (8 groups of 4 digits)";
}

/* A name as a line of peers takes it. */
static const char *check_name(const char *name)
{
    char line[KEYS_LINE_BYTES];
    keys_peer p;
    memset(&p, 0, sizeof p);
    p.may = KEYS_FABRIC;
    if (name && strlen(name) > KEYS_NAME_MAX)
        return "--name, --as: 31 characters at most";
    memcpy(p.name, name ? name : "", name ? strlen(name) + 1 : 1);
    return keys_line(&p, line) ? NULL : "--name, --as: printable ASCII, no blanks, no #";
}

/* EXIT_ALL, or what is wrong was said. */
static int check_arguments(enrolling *n)
{
    const enroll_options *o = &n->o;
    const char *why = NULL;
    if (!o->key)
        return wrong("--key FILE is required; `dxpu keygen FILE` makes one");
    if (!o->listen == !n->to)
        return wrong("give either --listen ADDR, to wait, or the ADDR of the waiting end");
    n->may = KEYS_FABRIC;
    if (o->may)
        why = keys_parse_may(o->may, &n->may);
    if (!why)
        why = check_name(o->name);
    if (!why)
        why = check_name(o->as);
    if (!why)
        why = check_expect(o->expect);
    if (!why)
        why = dxpu_tcp_parse_port(n->to ? n->to : o->listen, ENROLL_PORT, &n->at);
    return why ? wrong(why) : EXIT_ALL;
}

/* ==== 2  What came of it ====================================================================== */

static void print_result(const enrolling *n)
{
    const enroll_counters *c = enroll_count(n->talk);
    char print[DXPU_SODIUM_FINGERPRINT_BYTES];
    json_t *j = json_pack("{s:s, s:b}", "result", n->result, "written", n->written), *counts;
    counts = json_object();
    if (!j || !counts)
        out_of_memory();
    if (n->met &&
        json_object_update_new(
            j, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "public_key", n->key, "fingerprint",
                         dxpu_sodium_fingerprint(n->peer.key, print), "name", n->peer.name, "code",
                         n->code, "address", n->from, "line", n->line)))
        out_of_memory();
#define ENROLL_PRINT(name, text)                                                                   \
    if (json_object_set_new(counts, #name, json_integer((json_int_t)c->name)))                     \
        out_of_memory();
    ENROLL_COUNTERS(ENROLL_PRINT)
#undef ENROLL_PRINT
    if (json_object_set_new(counts, "others", json_integer(n->others)) ||
        json_object_set_new(j, "counters", counts))
        out_of_memory();
    print_json(j, 0);
}

static int over(enrolling *n, const char *result, int status, const char *words)
{
    const enroll_counters *c = enroll_count(n->talk);
    uint64_t strange = c->refused + c->limited + c->displaced + c->late;
    n->result = result;
    if (words)
        (status ? log_error : log_note)("%s", words);
    if (strange)
        log_warning("%llu datagrams did not belong to the enrollment", (unsigned long long)strange);
    if (n->o.json)
        print_result(n);
    return status;
}

/* ==== 3  The way there ======================================================================== */

/* What the other said, as this end's line has it. */
void enroll_take_peer(enrolling *n)
{
    const dxpu_udp_address *from;
    const dxpu_sodium_enroll *e = enroll_peer(n->talk, &from);
    const char *name = n->o.as ? n->o.as : e->peer_name;
    size_t len = strlen(name);
    keys_peer *p = &n->peer;
    memset(p, 0, sizeof *p);
    memcpy(p->key, e->remote, sizeof p->key);
    p->may = n->may;
    memcpy(p->name, name, len <= KEYS_NAME_MAX ? len : 0);
    if (!keys_line(p, n->line) || len > KEYS_NAME_MAX) {
        log_warning("the peer's name '%s' is invalid in a line of peers: it gets no name "
                    "here; --as gives one",
                    name);
        p->name[0] = '\0';
        (void)keys_line(p, n->line);
    }
    dxpu_sodium_key_print(p->key, n->key);
    dxpu_sodium_enroll_code(e, n->code);
    dxpu_udp_print(from, n->from);
    n->met = true;
}

static bool is_own(const enrolling *n)
{
    return memcmp(n->peer.key, n->own->public_key, sizeof n->peer.key) == 0;
}

static bool is_wanted(const enrolling *n)
{
    return !is_own(n) && (!n->o.expect || is_expected(n->o.expect, n->peer.key));
}

/* ENROLL_MET: with a peer that is possibly the right one. */
static enroll_end meet(enrolling *n)
{
    for (;;) {
        enroll_end end = enroll_meet(n->talk);
        if (end != ENROLL_MET)
            return end;
        enroll_take_peer(n);
        if (is_wanted(n) || !n->o.listen)
            return ENROLL_MET;
        log_note("%s has another key, %s; still waiting", n->from, n->key);
        n->others++;
        n->met = false;
        enroll_forget(n->talk);
    }
}

static enroll_end ask(enrolling *n)
{
    bool named = n->peer.name[0] != '\0';
    console_say("dxpu enroll: there is %s%s%s at %s\n  public key  %s\n  may here    %s\n"
                "  code        %s\n",
                named ? "'" : "a peer without a name", n->peer.name, named ? "'" : "", n->from,
                n->key, strstr(n->line, " may=") + sizeof " may=" - 1, n->code);
    if (n->o.expect)
        return ENROLL_YES;
    return enroll_ask(n->talk, "Is this code the same at the other end? yes/no: ");
}

static int write_line(enrolling *n)
{
    int rc = n->o.peers ? keys_add(n->o.peers, &n->peer) : 0;
    n->written = n->o.peers && !rc;
    if (rc < 0)
        return over(n, "file", EXIT_USAGE, NULL);
    if (!n->o.json && (n->written || !n->o.peers))
        puts(n->line);
    (void)fflush(stdout); /* who reads it need not wait for the following */
    enroll_linger(n->talk);
    if (rc)
        return over(n, "known", EXIT_ALL,
                    "that file has a line for this key, which stays as it is, whatever was said "
                    "here; change it by hand");
    return over(n, "enrolled", EXIT_ALL, NULL);
}

/* Not met, or not said yes. */
static int end_without(enrolling *n, enroll_end end)
{
    switch (end) {
    case ENROLL_NO:
        return over(n, "refused", EXIT_REFUSED,
                    "nothing was written; if the codes differ, there is an attacker in between: do "
                    "not go on over this network");
    case ENROLL_STOPPED:
        return over(n, "interrupted", EXIT_REFUSED, "interrupted; nothing was written");
    case ENROLL_LATE:
        if (n->met)
            return over(n, "late", EXIT_REFUSED, "no answer in time; nothing was written");
        return over(n, "no-peer", EXIT_CONNECTION,
                    n->to       ? "no answer; is `dxpu enroll --listen` running, and does the "
                                  "network let UDP through?"
                    : n->others ? "no peer with the expected key connected"
                                : "no peer connected");
    default:
        return over(n, "broken", EXIT_USAGE, strerror(errno));
    }
}

static int enroll(enrolling *n)
{
    char at[DXPU_UDP_TEXT_BYTES], key[DXPU_SODIUM_KEY_TEXT_BYTES];
    enroll_end end;
    log_note("%s %s", n->to ? "asking" : "waiting at",
             dxpu_udp_print(n->to ? &n->at : enroll_local(n->talk), at));
    log_note("public key here %s", dxpu_sodium_key_print(n->own->public_key, key));
    end = meet(n);
    if (end == ENROLL_MET && is_own(n))
        return over(n, "own", EXIT_REFUSED,
                    "the peer has the key of this end; give each program its own");
    if (end == ENROLL_MET && !is_wanted(n))
        return over(n, "other", EXIT_REFUSED,
                    "the peer has another key than --expect; nothing was written");
    if (end == ENROLL_MET)
        end = ask(n);
    return end == ENROLL_YES ? write_line(n) : end_without(n, end);
}

static enroll_options given = { .seconds = TIMEOUT_S };

static int enroll_run(const option_call *call)
{
    enrolling n;
    const char *why = "";
    int rc;
    memset(&n, 0, sizeof n);
    n.o = given;
    n.to = call->count ? call->words[0] : NULL;
    if (dxpu_sodium_init() != DXPU_OK)
        out_of_memory();
    rc = check_arguments(&n);
    if (rc != EXIT_ALL)
        return rc;
    errno = 0;
    n.own = dxpu_sodium_key_load(n.o.key, &why);
    if (!n.own) {
        log_error("--key %s: %s%s%s", n.o.key, why, errno ? ": " : "",
                  errno ? strerror(errno) : "");
        return EXIT_USAGE;
    }
    rc = n.o.peers && keys_add(n.o.peers, NULL) < 0 ? EXIT_USAGE : EXIT_ALL;
    if (rc == EXIT_ALL) {
        n.talk =
            enroll_open(n.own, n.o.name ? n.o.name : "", &n.at, !n.to, (unsigned)n.o.seconds, &why);
        if (!n.talk)
            log_error("%s: %s%s%s", n.to ? n.to : n.o.listen, why, errno ? ": " : "",
                      errno ? strerror(errno) : "");
        rc = n.talk ? enroll(&n) : EXIT_USAGE;
    }
    enroll_close(n.talk);
    dxpu_sodium_key_free(n.own);
    return rc;
}

/* ==== 4  The command ========================================================================== */

static const option_row enroll_rows[] = {
    { "listen", "ADDR", "wait at this address; * is every address of this machine", OPTION_TEXT,
      &given.listen, 0, 0 },
    { "key", "FILE", "secret key of the program to enroll; `dxpu keygen` creates one", OPTION_TEXT,
      &given.key, 0, 0 },
    { "peers", "FILE",
      "file to which the line for the peer's key is added, created if missing; without it the line "
      "is only printed",
      OPTION_TEXT, &given.peers, 0, 0 },
    { "may", "WORDS",
      "what the peer is authorized to do here: fabric (default), control, host, box, separated by "
      "commas",
      OPTION_TEXT, &given.may, 0, 0 },
    { "name", "NAME", "name of this program at the peer: name= of its line there", OPTION_TEXT,
      &given.name, 0, 0 },
    { "as", "NAME", "name of the peer here, instead of the one it sends; \"\" for no name",
      OPTION_TEXT, &given.as, 0, 0 },
    { "expect", "KEY",
      "do not ask: accept if this is the peer's public key, or its fingerprint (`dxpu pubkey "
      "--json`), received by another way; for scripts",
      OPTION_TEXT, &given.expect, 0, 0 },
    { "timeout", "S", "timeout in seconds (300)", OPTION_NUMBER, &given.seconds, 1, TIMEOUT_MAX_S },
    { "json", NULL, "the result as one JSON object", OPTION_FLAG, &given.json, 0, 0 },
};

static const option_verb enroll_verb = {
    "enroll",
    "--key FILE (--listen ADDR | ADDR)",
    "exchange public keys and confirm a short code",
    "Exchanges public keys between programs on two machines: on one machine it waits, on the other "
    "one it connects (UDP, port 4455). Both show a code. Compare the codes, for example by "
    "telephone: they are equal unless there is an attacker in between. Only after the answer yes "
    "the peer's key is added to the file of --peers.",
    "  dxpu enroll --key manager.key --peers pool.peers --may box --listen '*'\n"
    "  dxpu enroll --key box.key --name shelf2 10.0.0.1\n"
    "\n"
    "Exit status: 0 enrolled, or the key was in the file before; 1 refused: not the\n"
    "expected key, the answer was no, or too late, or Ctrl-C; 2 wrong usage, or a file that\n"
    "cannot be read or written; 3 no peer in time.\n",
    0,
    1,
    { OPTION_ROWS(enroll_rows), { NULL, 0 } },
    enroll_run
};

const option_verbs enroll_verbs = { NULL, &enroll_verb, 1 };
