/* Fuzz target: what `dxpu` makes of the answers of a manager, or of a proxy's control port, that
   may be anything.  A byte for the command, one for the terminal, then the answers.  Whatever
   they are: no character that a terminal would obey is printed, but the colors and the screen that
   are dxpu's own; with --json only JSON is; a failure is reported, nothing is done without
   confirmation; and the questions asked, the time waited and the bytes taken are bounded.
   libFuzzer: -max_len=4096 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#define DXPU_CONTROL_IMPLEMENTATION
#include "dxpu_control.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdarg.h>

#include "console.h"
#include "log.h"
#include "options.h"
#include "text.h"

#include "pretend_curl.h"
#include "pretend_terminal.h"

/* What the programs say, cleaned as log.c does. */
static inline int pretend_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define log_error         (void)pretend_log
#define log_warning       (void)pretend_log
#define log_note          (void)pretend_log
#define log_info          (void)pretend_log
#define log_debug         (void)pretend_log
#define options_wrong     pretend_log
#define console_say(text) fputs(text, stderr)

/* Not linked: replaces log_error() and others. */
#include "pool_call.c"
#include "pool_change.c"
#include "pool_client.c"
static const char *pretend_open(pool_client *c, const pool_settings *s);
static void pretend_close(pool_client *c);
/* Not linked: replaces pool_client_open() and others. */
#define pool_client_open  pretend_open
#define pool_client_close pretend_close
#include "pool_command.c"
#undef pool_client_open
#undef pool_client_close
#include "pool_data.c"
#include "pool_events.c"
#include "pool_look.c"
#include "pool_table.c"
#include "pool_top.c"
#include "pretend_proxy.h" /* its keys are other words */
#include "control_client.c"
#include "control_command.c"
#include "key_options.c"
#include "print_json.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    ROOM = 1 << 18,                /* of one answer, once it is made longer */
    WORDS = 16,                    /* of a command line, at most */
    ASKED_MAX = 2 * PAGES_MAX + 9, /* questions of one command: no one wants more than two lists */
    HEAVY = 40000,                 /* values in all answers: each may cost some hundred bytes */
    WAIT_MS = 5000 + 2000,         /* of --wait 5, and a little */
    PROXY_WAIT_MS = 16000          /* of --timeout 2: a few answers, waiting, and taking back */
};

static const char *const commands[] = {
    "pool",
    "pool --json",
    "list boxes",
    "list hosts --state connected",
    "list slots --node shelf1 --state free --model m",
    "list slots --json",
    "list leases --node host12 --tenant t",
    "list tenants",
    "list nodes",
    "show node 10",
    "show node shelf1",
    "show node 10 --json",
    "show slot 10.3",
    "show slot shelf1.3",
    "show lease c3",
    "lease create --host 12 --model m --count 2 --wait 5",
    "lease create --host host12 --model m --need spread --tenant t --for 2h --key k --no-replace",
    "lease create --host 12 --model m --wait 5 --json",
    "lease release c3 --wait 5",
    "lease release c3 --keep --wait 5",
    "lease release c3 --json",
    "lease extend c3 --for 2h",
    "lease extend c3 --no-end",
    "lease attach c3 --host host12 --wait 5",
    "drain 10 --move --wait 5",
    "drain shelf1 --move --json",
    "drain 10 --wait 5",
    "drain 10 --off",
    "replace 10.3",
    "break shelf1.3",
    "repair 10.3 --json",
    "forget host12",
    "rekey 10",
    "owner host12 t",
    "owner 12 --no-owner",
    "tenant t --quota 5",
    "spares m 3",
    "spares m --failures-per-year 0.1 --repair-days 3",
    "events",
    "events --json --after 4",
    "events --last 5 --lease c3 --type lease",
    "events --follow",
    "events --follow --json",
    "events --follow --node shelf1 --last 0",
    "top",
    "top --json",
    "status --plain --timeout 2 127.0.0.1",
    "status --plain --timeout 2 127.0.0.1 3",
    "status --plain --timeout 2 --json 127.0.0.1",
    "attach --plain --timeout 2 --wait --epoch 9 127.0.0.1 3 10.0.0.1 4",
    "attach --plain --timeout 2 --json 127.0.0.1 3 10.0.0.1,10.0.1.1 4",
    "detach --plain --timeout 2 --wait 127.0.0.1 3",
    "detach --plain --timeout 2 --wait --json 127.0.0.1 3",
    "screenshot --plain --timeout 2 127.0.0.1 3 picture.png",
    "screenshot --plain --timeout 2 --json 127.0.0.1 3 picture.png",
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* What an answer is, by its first byte; d: 200. */
static const struct kind {
    char name;
    long status;
    CURLcode result;
} answer_kinds[] = {
    { 'd', 200, CURLE_OK },         { 'c', 201, CURLE_OK }, { 'n', 204, CURLE_OK },
    { 'r', 302, CURLE_OK },         { 'k', 409, CURLE_OK }, { 'f', 403, CURLE_OK },
    { 'm', 404, CURLE_OK },         { 'b', 503, CURLE_OK }, { 's', 200, CURLE_OK },
    { 'h', 200, CURLE_OK },         { 'o', 999, CURLE_OK }, { 'x', 0, CURLE_COULDNT_CONNECT },
    { 'y', 200, CURLE_RECV_ERROR }, { 'e', 200, CURLE_OK },
};

static struct answers {
    uint8_t last[ROOM]; /* the last one, made longer; what follows is 0 in the beginning */
    input last_at, in;  /* where it stands, and those to come */
    size_t len;
    const struct kind *kind;
    bool again; /* the last one, once there is none left */
    unsigned asked, heavy;
    bool confirmed; /* something was answered that is not a refusal */
} answers;

void out_of_memory(void)
{
    abort();
}

static inline int pretend_log(const char *format, ...)
{
    char text[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_clean(text);
    fprintf(stderr, "dxpu: %s\n", text);
    return EXIT_USAGE;
}

/* ==== 1  Answers ============================================================================== */

static void add(const void *bytes, size_t len)
{
    if (len > ROOM - answers.len)
        len = ROOM - answers.len;
    memmove(answers.last + answers.len, bytes, len);
    answers.len += len;
}

/* Bytes that no text has stand for more than themselves: 0xfe N C for C 2^N times, 0xfc..0xfd N for
   what is between them 2^N times, 0xfb for a number that grows, and 0xff ends an answer. */
static void read_answer(void)
{
    input *in = &answers.in;
    const struct kind *k = answer_kinds;
    uint8_t name = next(in);
    size_t mark = 0;
    for (size_t i = 0; i < sizeof answer_kinds / sizeof *answer_kinds; i++)
        k = answer_kinds[i].name == name ? &answer_kinds[i] : k;
    answers.kind = k;
    answers.len = 0;
    while (in->left) {
        uint8_t c = next(in);
        if (c == 0xff)
            break;
        if (c == 0xfe || c == 0xfd) {
            size_t times = (size_t)1 << next(in) % 14, from = answers.len;
            uint8_t one = c == 0xfe ? next(in) : 0;
            if (c == 0xfe)
                mark = from;
            for (size_t i = c == 0xfd; i < times && answers.len < ROOM; i++)
                add(c == 0xfe ? &one : answers.last + mark, c == 0xfe ? 1 : from - mark);
        } else if (c == 0xfc) {
            mark = answers.len;
        } else if (c == 0xfb) {
            char number[16];
            add(number, (size_t)snprintf(number, sizeof number, "%u", 1000 + answers.asked));
        } else {
            add(&c, 1);
        }
    }
}

/* The next one, or once there is none left the last one again, or none. */
static void next_answer(void)
{
    input at = answers.in;
    if (!at.left && answers.again)
        answers.in = at = answers.last_at;
    answers.kind = NULL;
    if (!at.left || answers.heavy > HEAVY)
        return;
    answers.last_at = at;
    read_answer();
    for (size_t i = 0; i < answers.len; i++)
        answers.heavy += answers.last[i] && strchr("[{,", answers.last[i]);
}

static inline bool pretend_enough(void)
{
    return pretended.polls > PRETEND_POLLS_MAX / 4 || (!answers.in.left && !answers.again);
}

/* Bytes of the answer, as often as it takes to be too many. */
static CURLcode say_endlessly(void)
{
    bool small = answers.len < 4096; /* it would take long */
    for (unsigned i = 0; i < (small ? 8 : 2 * ANSWER_MAX / 4096); i++) {
        if (!exchange_say(answers.last, answers.len))
            return CURLE_WRITE_ERROR;
    }
    must(small);
    return CURLE_OK;
}

static CURLcode exchange_answer(void)
{
    const struct kind *k;
    answers.asked++;
    pretended.now_ns += 1000000;
    next_answer();
    k = answers.kind;
    if (!k)
        return CURLE_COULDNT_CONNECT;
    exchange.status = k->status;
    answers.confirmed = answers.confirmed || (k->status / 100 == 2 && k->result == CURLE_OK);
    snprintf(exchange.type, sizeof exchange.type, "%s",
             k->name == 's'   ? "text/event-stream; charset=utf-8"
             : k->name == 'h' ? "text/html"
                              : "application/json");
    if (k->name == 'r' || k->name == 'x') /* libcurl's own words may have bytes of the answer */
        snprintf(k->name == 'r' ? exchange.redirect : exchange.error, sizeof exchange.redirect,
                 "%.*s", (int)(answers.len < 255 ? answers.len : 255), (const char *)answers.last);
    if (k->name == 'e')
        return say_endlessly();
    if (k->name == 'r' || k->name == 'x' || k->name == 'n')
        return k->result;
    return exchange_say(answers.last, answers.len) ? k->result : CURLE_WRITE_ERROR;
}

/* ==== 2  What is printed ====================================================================== */

/* dxpu's own: colors, and the screen of top. */
static size_t own_sequence(const char *text, bool screen)
{
    static const char *const all[] = { "\033[0m",    "\033[31m",    "\033[32m",  "\033[33m",
                                       "\033[H",     "\033[K",      "\033[J",    "\r\n",
                                       "\033[2J",    "\033[?1049h", "\033[?25l", "\033[?25h",
                                       "\033[?1049l" };
    for (size_t i = 0; i < sizeof all / sizeof *all && (i < 4 || screen); i++) {
        if (strncmp(text, all[i], strlen(all[i])) == 0)
            return strlen(all[i]);
    }
    return 0;
}

/* The bytes of one character in UTF-8, in one way only; 0: it is invalid. */
static size_t character(const unsigned char *p, uint32_t *out)
{
    size_t more = *p < 0x80 ? 0 : *p < 0xc2 ? 9 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : *p < 0xf5 ? 3 : 9;
    *out = more ? *p & (0x3fu >> more) : *p;
    for (size_t i = 1; i <= more; i++) {
        if (more == 9 || p[i] >> 6 != 2)
            return 0;
        *out = *out << 6 | (p[i] & 0x3f);
    }
    return (more == 2 && *out < 0x800) || (more == 3 && *out < 0x10000) || *out > 0x10ffff ||
                   *out >> 11 == 0x1b
               ? 0
               : more + 1;
}

/* Controls, what turns the direction of text, and what cannot be seen. */
static bool obeyed(uint32_t v)
{
    return v < 0x20 || (v >= 0x7f && v < 0xa0) || (v >= 0x200b && v <= 0x200f) ||
           (v >= 0x2028 && v <= 0x202e) || (v >= 0x2066 && v <= 0x2069) || v == 0x61c ||
           v == 0xfeff;
}

static void check_people(const char *text, size_t bytes, bool colors, bool screen)
{
    must(strlen(text) == bytes);
    while (*text) {
        uint32_t v;
        size_t len = colors || screen ? own_sequence(text, screen) : 0;
        if (!len && *text != '\n') {
            len = character((const unsigned char *)text, &v);
            must(len && !obeyed(v));
        }
        text += len ? len : 1;
    }
}

/* A document on each line, and on a terminal in ASCII. */
static void check_json(const char *text, size_t bytes)
{
    const char *end;
    must(strlen(text) == bytes);
    for (; *text; text = end + 1) {
        json_t *document;
        end = strchr(text, '\n');
        must(end != NULL);
        document = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
        must(document != NULL);
        json_decref(document);
        for (const char *p = text; p < end && pretended.terminal; p++)
            must(*p >= ' ' && *p < 0x7f);
    }
}

/* ==== 3  Commands of the manager ============================================================== */

/* Without libcurl and a token. */
static const char *pretend_open(pool_client *c, const pool_settings *s)
{
    static char handle;
    snprintf(c->base, sizeof c->base, "http://manager:4456");
    c->curl = &handle;
    c->multi = &handle;
    c->wake_fd = -1;
    c->timeout_s = s->timeout_s;
    return NULL;
}

static void pretend_close(pool_client *c)
{
    must(c->bytes <= ANSWER_MAX && c->room <= 2 * ANSWER_MAX + 1);
    pool_client_close(c);
}

static void check_manager(const option_call *c)
{
    const pool_call *r = &call;
    bool follows, screen;
    uint64_t begun = pretended.now_ns;
    int rc;
    rc = c->verb->run(c);
    pretend_closed();
    follows = (r->given & POOL_FOLLOW) != 0;
    screen = pretended.terminal && !r->json && strcmp(r->verb->name, "top") == 0;
    must(rc >= EXIT_WOKEN && rc <= EXIT_CONNECTION);
    must(rc == EXIT_ALL || rc == EXIT_WOKEN || pretended.bytes[1]);
    must(answers.asked <= ASKED_MAX ||
         strcmp(r->verb->name, "drain") == 0); /* which asks of each */
    must(answers.confirmed || rc == EXIT_WOKEN ||
         (rc != EXIT_ALL && (r->json || !pretended.bytes[0])));
    must(follows || screen ||
         pretended.now_ns - begun <= (WAIT_MS + (uint64_t)answers.asked) * 1000000u);
    check_people(pretended.text[1], pretended.bytes[1], false, false);
    if (r->json)
        check_json(pretended.text[0], pretended.bytes[0]);
    else
        check_people(pretended.text[0], pretended.bytes[0], pretended.color, screen);
}

/* ==== 4  Commands of a proxy's control port =================================================== */

static void check_proxy(const option_call *c)
{
    const char *name = c->verb->name;
    /* many: the status of all slots, as many questions as it takes */
    bool json = the_request.json, many = strcmp(name, "status") == 0 && c->count == 1;
    uint64_t begun = pretended.now_ns;
    int rc = c->verb->run(c);
    pretend_closed();
    must(rc <= EXIT_CONNECTION && (rc == EXIT_ALL || pretended.bytes[1]));
    must(rc != EXIT_ALL || proxy.answered >= (many ? 1 : 2)); /* hello, and it has no slots */
    must(rc != EXIT_ALL || strcmp(name, "screenshot") != 0 || proxy.filed >= PNG_LEAST);
    must(many || pretended.now_ns - begun <= PROXY_WAIT_MS * 1000000ull);
    check_people(pretended.text[1], pretended.bytes[1], false, false);
    if (json)
        check_json(pretended.text[0], pretended.bytes[0]);
    else
        check_people(pretended.text[0], pretended.bytes[0], false, false);
}

/* ==== 5  One input ============================================================================ */

static const option_verbs *const groups[] = { &pool_verbs, &control_verbs };
static const option_program program = { "dxpu", "", "", NULL, 0, NULL, groups, 2, NULL };

static void run_command(const char *line)
{
    static char name[] = "dxpu";
    char text[200], *words[WORDS + 2] = { name }, *left = NULL;
    option_call c;
    int count = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &left); word; word = strtok_r(NULL, " ", &left)) {
        must(count <= WORDS);
        words[count++] = word;
    }
    call = (pool_call){ .timeout_s = 10, .count = 1, .wait_s = UINT64_MAX };
    memset(&the_request, 0, sizeof the_request);
    the_request.timeout_s = TIMEOUT_S;
    must(options_parse(&program, count, words, &c) == OPTIONS_GO);
    if (c.verb >= control_commands && c.verb < control_commands + control_verbs.count)
        check_proxy(&c);
    else
        check_manager(&c);
}

/* 0x01 a terminal, 0x02 with colors, 0x0c its size, 0x80 the last answer repeatedly. */
static void begin(uint8_t flags)
{
    static const unsigned short columns[] = { 80, 24, 5, 400 }, rows[] = { 24, 6, 1, 100 };
    pretended.terminal = flags & 1;
    pretended.color = (flags & 3) == 3;
    pretended.columns = columns[flags >> 2 & 3];
    pretended.rows = rows[flags >> 2 & 3];
    answers.again = flags & 0x80;
    proxy_begin(&answers.in, flags & 0x10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t command;
    memset(&answers.last_at, 0, sizeof answers - offsetof(struct answers, last_at));
    answers.in.at = data;
    answers.in.left = size;
    pretend_begin();
    command = next(&answers.in);
    begin(next(&answers.in));
    run_command(commands[command % COMMANDS]);
    pretend_end();
    return 0;
}
