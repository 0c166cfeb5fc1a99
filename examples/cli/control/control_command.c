/* control_command.c - dxpu attach, detach, plug, unplug, status, screenshot: drive proxies that
   run
   SPDX-License-Identifier: MIT

   CONTENTS   1 Arguments   2 What is printed   3 Waiting   4 Pictures   5 Commands */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "command.h"
#include "control.h"
#include "control_client.h"
#include "durable.h"
#include "log.h"
#include "print_json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONTROL_POLL_MS = 50, TIMEOUT_S = 10 };

/* ==== 1  Arguments ============================================================================ */

typedef struct request {
    char **words;
    unsigned count;
    bool json, wait, force, replace;
    key_options keys;
    const char *box_key;
    uint64_t epoch, timeout_s;
    control_client client;
} request;

static int read_slot(const request *r, int word, uint16_t *out)
{
    uint64_t v = 0;
    if (!options_number(r->words[word], 0xffff, &v) || !v)
        return options_wrong("'%s': a slot is a number, 1 to 65535", r->words[word]);
    *out = (uint16_t)v;
    return 0;
}

/* ==== 2  What is printed ====================================================================== */

static void set_number(json_t *o, const char *key, uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX) {
        json_object_set_new(o, key, json_integer((json_int_t)value));
        return;
    }
    snprintf(text, sizeof text, "%" PRIu64, value);
    json_object_set_new(o, key, json_string(text));
}

/* A refusal or failure in one word and one sentence; returns status. */
static int fail(const request *r, int status, const char *word, const char *text)
{
    json_t *o;
    log_error("%s", text);
    if (!r->json)
        return status;
    o = json_object();
    json_object_set_new(o, "done", json_false());
    json_object_set_new(o, "error", json_string(word));
    json_object_set_new(o, "reason", json_string(text));
    print_json(o, 0);
    return status;
}

static const char misfit[] = "the answer does not fit the question";

static int no_connection(const request *r, const char *why)
{
    char text[200];
    snprintf(text, sizeof text, "%.80s: %s; is it a proxy's --control?", r->words[0], why);
    return fail(r, EXIT_CONNECTION, "connection", text);
}

/* The answer was an error, or nothing that was asked for. */
static int control_refused(const request *r)
{
    const dxpu_control *m = &r->client.answer;
    char text[100 + DXPU_CONTROL_TEXT_MAX];
    if (m->type != DXPU_CONTROL_ERROR)
        return no_connection(r, misfit);
    if (m->u.error.text.len)
        snprintf(text, sizeof text, "refused: %.*s", (int)m->u.error.text.len,
                 (const char *)m->u.error.text.ptr);
    else
        snprintf(text, sizeof text, "refused: %s", dxpu_control_code_text(m->u.error.code));
    return fail(r, EXIT_REFUSED, dxpu_control_code_name(m->u.error.code), text);
}

static void print_peer(const dxpu_control_slot *s, char *out, size_t cap)
{
    char address[DXPU_UDP_TEXT_BYTES] = "";
    dxpu_udp_address a;
    if (s->peer.family) {
        control_address_to(&s->peer, &a);
        dxpu_udp_print(&a, address);
    }
    if (s->peer.family && s->peer_slot)
        snprintf(out, cap, "%s/%u", address, s->peer_slot);
    else if (s->peer.family)
        snprintf(out, cap, "%s", address);
    else if (s->peer_node)
        snprintf(out, cap, "node %" PRIu32, s->peer_node);
    else
        snprintf(out, cap, "-");
}

/* Why the last channel of a slot is no more, "" when there was none. */
static const char *last_end(const dxpu_control_slot *s)
{
    if (s->code)
        return dxpu_control_code_text(s->code);
    if (s->reason)
        return dxpu_reason_text(s->reason);
    return s->error ? dxpu_error_text(s->error) : "";
}

static json_t *slot_json(const dxpu_control_slot *s)
{
    char address[DXPU_UDP_TEXT_BYTES];
    dxpu_udp_address a;
    json_t *o = json_object();
    set_number(o, "slot", s->number);
    json_object_set_new(o, "state", json_string(dxpu_control_state_name(s->state)));
    if (s->device[0])
        json_object_set_new(o, "device", json_string(s->device));
    if (s->peer.family) {
        control_address_to(&s->peer, &a);
        json_object_set_new(o, "peer", json_string(dxpu_udp_print(&a, address)));
    }
    if (s->peer_slot)
        set_number(o, "peer_slot", s->peer_slot);
    if (s->peer_node)
        set_number(o, "peer_node", s->peer_node);
    set_number(o, "epoch", s->epoch);
    set_number(o, "epoch_seen", s->epoch_seen);
    set_number(o, "attempts", s->attempts);
    set_number(o, "incarnations", s->incarnations);
    set_number(o, "to_device", s->to_device);
    set_number(o, "from_device", s->from_device);
    set_number(o, "dropped", s->dropped);
    if (s->msis_refused)
        set_number(o, "interrupts_refused", s->msis_refused);
    if (s->error) {
        json_object_set_new(o, "last_error", json_string(dxpu_error_name(s->error)));
        json_object_set_new(o, "last_reason", json_string(dxpu_reason_text(s->reason)));
    }
    if (s->code)
        json_object_set_new(o, "refusal", json_string(dxpu_control_code_name(s->code)));
    if (s->note[0])
        json_object_set_new(o, "note", json_string(s->note));
    return o;
}

static void print_part(const char *text)
{
    if (*text)
        printf("  %s", text);
}

static void slot_line(const dxpu_control_slot *s, bool box)
{
    char peer[DXPU_UDP_TEXT_BYTES + 8];
    print_peer(s, peer, sizeof peer);
    printf("%4u  %-7s  %-24s  %8" PRIu64 "  ", s->number, dxpu_control_state_name(s->state), peer,
           box ? s->epoch_seen : s->epoch);
    printf("%10" PRIu64 "  %11" PRIu64, s->to_device, s->from_device);
    print_part(s->device);
    if (s->state != DXPU_CONTROL_SLOT_UP || s->code) /* an up one's last end is history */
        print_part(last_end(s));
    print_part(s->note);
    putchar('\n');
}

/* ==== 3  Waiting ============================================================================== */

/* The status of one slot now.  0, or an exit status after a message. */
static int look_at_slot(request *r, uint16_t slot, dxpu_control_slot *out)
{
    dxpu_control m;
    dxpu_bytes entries;
    const char *why;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_ASK;
    m.u.ask.first = slot;
    m.u.ask.count = 1;
    why = control_client_ask(&r->client, &m);
    if (why)
        return no_connection(r, why);
    if (r->client.answer.type != DXPU_CONTROL_STATUS)
        return control_refused(r);
    entries = r->client.answer.u.status.entries;
    if (!dxpu_control_slot_next(&r->client.answer.u.status, &entries, out) || out->number != slot)
        return no_connection(r, misfit);
    return 0;
}

/* One word for a refusal that dialing on will not change, NULL for all else. */
static const char *final_word(const dxpu_control_slot *s)
{
    if (s->code)
        return dxpu_control_code_name(s->code);
    if (s->attempts == 0 || s->error != DXPU_E_RESET)
        return NULL;
    switch (s->reason) {
    case DXPU_REASON_NO_SLOT:
        return "no-such-slot";
    case DXPU_REASON_BUSY:
        return "busy";
    case DXPU_REASON_EPOCH:
        return "epoch";
    case DXPU_REASON_VERSION:
        return "version";
    case DXPU_REASON_OFFER:
        return "offer";
    default:
        return NULL;
    }
}

static const char *control_remedy(const char *word)
{
    if (strcmp(word, "epoch") == 0)
        return "; where a manager lends the slot, ask it ('dxpu lease create'); else 'dxpu status' "
               "of "
               "the box shows the highest epoch it has seen; give a higher one with --epoch";
    if (strcmp(word, "busy") == 0)
        return "; detach it there, or take it over with a higher --epoch";
    return "";
}

static int detach_one(request *r, uint16_t slot, uint64_t epoch);

/* The attach will not come to anything: leave nothing behind. */
static int take_back(request *r, const dxpu_control_slot *s, const char *word, const char *what)
{
    char text[400];
    dxpu_control_slot now = *s;
    uint64_t end = dxpu_udp_now_ns() + r->timeout_s * 1000000000u;
    (void)detach_one(r, s->number, s->epoch); /* gone already, or the host is: nothing to undo */
    while (dxpu_udp_now_ns() < end && !look_at_slot(r, s->number, &now) &&
           now.state == DXPU_CONTROL_SLOT_CLOSING)
        control_client_pause(&r->client, CONTROL_POLL_MS);
    snprintf(text, sizeof text, "%s%s%s%s; the slot is empty again", what, control_remedy(word),
             s->note[0] ? "; " : "", s->note);
    return fail(r, EXIT_REFUSED, word, text);
}

static int wait_up(request *r, uint16_t slot, uint64_t epoch, dxpu_control_slot *s)
{
    uint64_t end = dxpu_udp_now_ns() + r->timeout_s * 1000000000u;
    for (;;) {
        const char *word;
        char text[200];
        int rc = look_at_slot(r, slot, s);
        if (rc)
            return rc;
        if (s->epoch != epoch ||
            (s->state != DXPU_CONTROL_SLOT_UP && s->state != DXPU_CONTROL_SLOT_DIALING))
            return fail(r, EXIT_REFUSED, "detached",
                        "another client has changed the slot meanwhile");
        word = final_word(s);
        if (word) {
            snprintf(text, sizeof text, "the box refuses: %s", last_end(s));
            return take_back(r, s, word, s->code ? last_end(s) : text);
        }
        if (s->state == DXPU_CONTROL_SLOT_UP)
            return 0;
        if (dxpu_udp_now_ns() >= end) {
            snprintf(text, sizeof text, "no channel to the box within %" PRIu64 " s (%s)",
                     r->timeout_s, s->attempts ? last_end(s) : "no answer yet");
            return take_back(r, s, "no-answer", text);
        }
        control_client_pause(&r->client, CONTROL_POLL_MS);
    }
}

static int wait_empty(request *r, uint16_t slot, dxpu_control_slot *s)
{
    uint64_t end = dxpu_udp_now_ns() + r->timeout_s * 1000000000u;
    for (;;) {
        int rc = look_at_slot(r, slot, s);
        if (rc || s->state != DXPU_CONTROL_SLOT_CLOSING)
            return rc;
        if (dxpu_udp_now_ns() >= end)
            return fail(r, EXIT_REFUSED, "closing", "detached, but its channel still closes");
        control_client_pause(&r->client, CONTROL_POLL_MS);
    }
}

/* ==== 4  Pictures ============================================================================= */

enum { PNG_LEAST = 8 + 25 + 12 }; /* signature, IHDR, IEND: what comes from a box is looked at */

typedef struct picture {
    uint8_t *png;
    uint32_t bytes, total;
} picture;

static bool is_png(const picture *p)
{
    static const uint8_t start[16] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                       0,    0,   0,   13,  'I',  'H',  'D',  'R' };
    static const uint8_t end[12] = { 0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82 };
    return p->bytes >= PNG_LEAST && memcmp(p->png, start, sizeof start) == 0 &&
           memcmp(p->png + p->bytes - sizeof end, end, sizeof end) == 0;
}

/* The next piece; 0, or an exit status after a message. */
static int fetch_piece(request *r, uint16_t slot, picture *p)
{
    const dxpu_control_picture *in = &r->client.answer.u.picture;
    dxpu_control m;
    const char *why;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_SCREENSHOT;
    m.u.screenshot.slot = slot;
    m.u.screenshot.offset = p->bytes;
    why = control_client_ask(&r->client, &m);
    if (why)
        return no_connection(r, why);
    if (r->client.answer.type != DXPU_CONTROL_PICTURE)
        return control_refused(r);
    if (in->slot != slot || in->offset != p->bytes || (p->bytes && in->total != p->total))
        return no_connection(r, misfit);
    if (!p->png) {
        p->total = in->total; /* DXPU_CONTROL_PICTURE_MAX at most */
        p->png = malloc(p->total);
        if (!p->png)
            return fail(r, EXIT_USAGE, "memory", "out of memory");
    }
    memcpy(p->png + p->bytes, in->png.ptr, in->png.len); /* within total: M-23 */
    p->bytes += (uint32_t)in->png.len;
    return 0;
}

static int fetch_picture(request *r, uint16_t slot, picture *p)
{
    uint64_t end = dxpu_udp_now_ns() + r->timeout_s * 1000000000u;
    int rc;
    do {
        if (dxpu_udp_now_ns() >= end)
            return no_connection(r, "the picture is incomplete");
        rc = fetch_piece(r, slot, p);
    } while (!rc && p->bytes < p->total);
    return rc || is_png(p) ? rc : no_connection(r, "the answer is not a PNG");
}

/* May a file be put there?  0 or an errno: a directory or a device is not to be replaced. */
static int check_place(const char *path)
{
    struct stat there;
    if (stat(path, &there))
        return errno == ENOENT ? 0 : errno;
    return S_ISREG(there.st_mode) ? 0 : S_ISDIR(there.st_mode) ? EISDIR : EEXIST;
}

/* Under another name first, so that no reader sees a part of it.  It need not outlive a crash, and
   files beside it are the user's: no durable_replace().  0 or an errno. */
static int write_file(const char *path, const picture *p)
{
    mode_t mask = umask(0);
    char part[4096];
    int fd, error = check_place(path), n = snprintf(part, sizeof part, "%s.XXXXXX", path);
    umask(mask);
    if (error || n < 0 || (size_t)n >= sizeof part)
        return error ? error : ENAMETOOLONG;
    fd = mkstemp(part);
    if (fd < 0)
        return errno;
    if (fchmod(fd, 0666 & ~mask) || !durable_write(fd, p->png, p->bytes))
        error = errno;
    if (close(fd) && !error)
        error = errno;
    if (!error && rename(part, path))
        error = errno;
    if (error)
        unlink(part);
    return error;
}

/* ==== 5  Commands ============================================================================= */

static int connect_to(request *r)
{
    dxpu_udp_address to;
    const char *why = dxpu_tcp_parse(r->words[0], &to);
    if (why)
        return options_wrong("'%s': %s", r->words[0], why);
    why = key_options_open(&r->keys, &to);
    if (why)
        return options_wrong("%s", why);
    why = control_client_open(&r->client, &to, &r->keys, (unsigned)(r->timeout_s * 1000));
    return why ? no_connection(r, why) : 0;
}

static int print_done(request *r, const dxpu_control_slot *s)
{
    char peer[DXPU_UDP_TEXT_BYTES + 8];
    if (r->json) {
        json_t *o = slot_json(s);
        json_object_set_new(o, "done", json_true());
        print_json(o, 0);
        return EXIT_ALL;
    }
    print_peer(s, peer, sizeof peer);
    printf("slot %u: %s", s->number, dxpu_control_state_name(s->state));
    if (s->epoch)
        printf(", %s, epoch %" PRIu64, peer, s->epoch);
    putchar('\n');
    return EXIT_ALL;
}

/* Connect, and send attach, detach or plug; 0 once it is done. */
static int change(request *r, dxpu_control *m)
{
    int rc = connect_to(r);
    const char *why = rc ? NULL : control_client_ask(&r->client, m);
    if (rc)
        return rc;
    if (why)
        return no_connection(r, why);
    return r->client.answer.type == DXPU_CONTROL_DONE ? 0 : control_refused(r);
}

static int detach_one(request *r, uint16_t slot, uint64_t epoch)
{
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_DETACH;
    m.u.detach.slot = slot;
    m.u.detach.reason = DXPU_REASON_DETACH;
    m.u.detach.epoch = epoch;
    return control_client_ask(&r->client, &m) ? EXIT_CONNECTION : 0;
}

static int read_box(const request *r, dxpu_control_attach *m)
{
    const char *text = r->words[2], *why = NULL;
    dxpu_udp_address box[DXPU_CONTROL_PATHS_MAX];
    unsigned count = 0;
    if (*text == ':' || *text == '*' || strstr(text, ",:") || strstr(text, ",*"))
        why = "address: which box?";
    else
        why = dxpu_udp_parse_list(text, box, DXPU_CONTROL_PATHS_MAX, &count);
    if (why)
        return options_wrong("'%s': %s", text, why);
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_address *to = i ? &m->path[i - 1] : &m->box;
        control_address_from(&box[i], to);
        if (!to->port)
            return options_wrong("'%s': the port must not be 0", text);
    }
    m->more = (uint8_t)(count - 1);
    return 0;
}

static int do_attach(request *r)
{
    dxpu_control m;
    dxpu_control_slot s;
    int rc;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_ATTACH;
    m.u.attach.epoch = r->epoch ? r->epoch : 1;
    rc = read_slot(r, 1, &m.u.attach.slot);
    if (!rc)
        rc = read_slot(r, 3, &m.u.attach.box_slot);
    if (rc)
        return rc;
    rc = read_box(r, &m.u.attach);
    m.u.attach.keyed = r->box_key != NULL;
    if (!rc && r->box_key && !dxpu_sodium_key_parse(r->box_key, m.u.attach.key))
        rc = options_wrong("--box-key must be a public key, 44 characters");
    if (!rc)
        rc = change(r, &m);
    if (!rc)
        rc = r->wait ? wait_up(r, m.u.attach.slot, m.u.attach.epoch, &s)
                     : look_at_slot(r, m.u.attach.slot, &s);
    return rc ? rc : print_done(r, &s);
}

static int do_detach(request *r)
{
    dxpu_control m;
    dxpu_control_slot s;
    int rc;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_DETACH;
    m.u.detach.reason = DXPU_REASON_DETACH;
    m.u.detach.epoch = r->epoch;
    rc = read_slot(r, 1, &m.u.detach.slot);
    if (!rc)
        rc = change(r, &m);
    if (!rc)
        rc = r->wait ? wait_empty(r, m.u.detach.slot, &s) : look_at_slot(r, m.u.detach.slot, &s);
    return rc ? rc : print_done(r, &s);
}

/* A device comes into a box's slot, or leaves it. */
static int do_plug(request *r)
{
    dxpu_control m;
    dxpu_control_slot s;
    int rc;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_PLUG;
    m.u.plug.how = r->count < 3 ? DXPU_CONTROL_REMOVE
                   : r->replace ? DXPU_CONTROL_REPLACE
                                : DXPU_CONTROL_INSERT;
    m.u.plug.force = r->force;
    rc = read_slot(r, 1, &m.u.plug.slot);
    if (!rc && r->count == 3) {
        m.u.plug.device.ptr = (const uint8_t *)r->words[2];
        m.u.plug.device.len = strlen(r->words[2]);
        if (!m.u.plug.device.len || m.u.plug.device.len > DXPU_CONTROL_TEXT_MAX)
            rc = options_wrong("a device is KIND[,KEY=VALUE]..., at most 255 characters");
    }
    if (!rc)
        rc = change(r, &m);
    if (!rc)
        rc = look_at_slot(r, m.u.plug.slot, &s);
    if (!rc && !r->json && m.u.plug.how != DXPU_CONTROL_REMOVE)
        printf("slot %u: %s\n", s.number, s.device);
    else if (!rc)
        rc = print_done(r, &s);
    return rc;
}

/* All slots, as many messages as it takes; into `slots`, or printed when that is NULL. */
static int show_slots(request *r, json_t *slots)
{
    bool box = r->client.hello.role == DXPU_CONTROL_ROLE_BOX;
    uint32_t next = 1, total = r->client.hello.slots;
    while (next <= total) {
        dxpu_control m;
        dxpu_control_slot s;
        dxpu_bytes entries;
        const char *why;
        memset(&m, 0, sizeof m);
        m.type = DXPU_CONTROL_ASK;
        m.u.ask.first = (uint16_t)next;
        why = control_client_ask(&r->client, &m);
        if (why)
            return no_connection(r, why);
        if (r->client.answer.type != DXPU_CONTROL_STATUS)
            return control_refused(r);
        if (!r->client.answer.u.status.count || r->client.answer.u.status.first != next)
            return no_connection(r, misfit);
        entries = r->client.answer.u.status.entries;
        next += r->client.answer.u.status.count;
        while (dxpu_control_slot_next(&r->client.answer.u.status, &entries, &s)) {
            if (slots)
                json_array_append_new(slots, slot_json(&s));
            else
                slot_line(&s, box);
        }
    }
    return 0;
}

static int do_status(request *r)
{
    dxpu_control_slot s;
    uint16_t slot = 0;
    bool box;
    json_t *o, *slots;
    int rc = 0;
    if (r->count == 2)
        rc = read_slot(r, 1, &slot);
    if (!rc)
        rc = connect_to(r);
    if (!rc && slot)
        rc = look_at_slot(r, slot, &s);
    if (rc)
        return rc;
    box = r->client.hello.role == DXPU_CONTROL_ROLE_BOX;
    if (!r->json) {
        printf("%s, %s, node %" PRIu32 ", %u slots\n", r->client.name,
               dxpu_control_role_name(r->client.hello.role), r->client.hello.node,
               r->client.hello.slots);
        printf("slot  state    %-24s  %8s   to device  from device\n", box ? "host" : "box/slot",
               box ? "highest" : "epoch");
        if (slot)
            slot_line(&s, box);
        return slot ? EXIT_ALL : show_slots(r, NULL);
    }
    o = json_object();
    slots = json_array();
    json_object_set_new(o, "program", json_string(r->client.name));
    json_object_set_new(o, "role", json_string(dxpu_control_role_name(r->client.hello.role)));
    set_number(o, "node", r->client.hello.node);
    set_number(o, "total", r->client.hello.slots);
    json_object_set_new(o, "slots", slots);
    if (slot)
        json_array_append_new(slots, slot_json(&s));
    else
        rc = show_slots(r, slots);
    if (rc)
        json_decref(o);
    else
        print_json(o, 0);
    return rc;
}

static int print_picture(const request *r, uint16_t slot, const picture *p)
{
    uint32_t width = dxpu_get_be32(p->png + 16), height = dxpu_get_be32(p->png + 20);
    if (r->json) {
        json_t *o = json_object();
        set_number(o, "slot", slot);
        set_number(o, "width", width);
        set_number(o, "height", height);
        set_number(o, "bytes", p->bytes);
        json_object_set_new(o, "done", json_true());
        print_json(o, 0);
    } else {
        printf("slot %u: %" PRIu32 " x %" PRIu32 ", %s\n", slot, width, height, r->words[2]);
    }
    return EXIT_ALL;
}

static int do_screenshot(request *r)
{
    picture p = { NULL, 0, 0 };
    char text[400];
    uint16_t slot = 0;
    int rc, error;
    rc = read_slot(r, 1, &slot);
    if (!rc)
        rc = connect_to(r);
    if (!rc)
        rc = fetch_picture(r, slot, &p);
    error = rc ? 0 : write_file(r->words[2], &p);
    if (error) {
        snprintf(text, sizeof text, "%.300s: %s", r->words[2], strerror(error));
        rc = fail(r, EXIT_USAGE, "file", text);
    }
    if (!rc)
        rc = print_picture(r, slot, &p);
    free(p.png);
    return rc;
}

static request the_request = { .timeout_s = TIMEOUT_S }; /* it holds the longest answer */

static int run_control(const option_call *c, int (*command)(request *))
{
    int status;
    the_request.words = c->words;
    the_request.count = c->count;
    status = command(&the_request);
    control_client_close(&the_request.client);
    key_options_close(&the_request.keys);
    return status;
}

static int attach(const option_call *c)
{
    return run_control(c, do_attach);
}

static int detach(const option_call *c)
{
    return run_control(c, do_detach);
}

static int plug(const option_call *c)
{
    return run_control(c, do_plug);
}

static int show_status(const option_call *c)
{
    return run_control(c, do_status);
}

static int screenshot(const option_call *c)
{
    return run_control(c, do_screenshot);
}

static const option_row shared_rows[] = {
    { "timeout", "S", "seconds for answers, --wait and pictures (10)", OPTION_NUMBER,
      &the_request.timeout_s, 1, 3600 },
    KEY_OPTIONS(the_request.keys),
    { "json", NULL, "the result as one JSON object", OPTION_FLAG, &the_request.json, 0, 0 },
};
static const option_row attach_options[] = {
    { "wait", NULL,
      "wait until the device is there; if the box refuses, or does not answer in time, the slot is "
      "emptied again; without it the host dials until the slot is detached",
      OPTION_FLAG, &the_request.wait, 0, 0 },
    { "epoch", "N",
      "lease epoch (1); a higher one than any before takes the device over; a box refuses a lower "
      "one than it has seen, and the same one from another host",
      OPTION_NUMBER, &the_request.epoch, 1, UINT64_MAX },
    { "box-key", "K", "the box's public key (from the host's --peer or --peers)", OPTION_TEXT,
      &the_request.box_key, 0, 0 },
};
static const option_row detach_options[] = {
    { "wait", NULL, "wait until it is gone, and the slot can be attached again", OPTION_FLAG,
      &the_request.wait, 0, 0 },
    { "epoch", "N", "only if this lease is attached", OPTION_NUMBER, &the_request.epoch, 1,
      UINT64_MAX },
};
static const option_row plug_options[] = {
    { "replace", NULL, "unplug the device that is in the slot first", OPTION_FLAG,
      &the_request.replace, 0, 0 },
};
static const option_row force_options[] = {
    { "force", NULL, "even if the slot is lent or keeps a tenant's data; the host loses the device",
      OPTION_FLAG, &the_request.force, 0, 0 },
};
static const char box_tail[] =
    "Exit status: 0 done, 1 refused, 2 wrong usage, 3 no connection to the box's control port.\n";
static const char host_tail[] =
    "Exit status: 0 done, 1 refused, 2 wrong usage, 3 no connection to the host's control port.\n";

static const option_verb control_commands[] = {
    { "attach",
      "HOST SLOT BOX SLOT",
      "fill a slot of a host with a box's device",
      "Fills a slot of a running dxpu-host with the device in a slot of a dxpu-box. HOST is where "
      "its --control is, ADDR:PORT (port 4459). BOX is where the box's --listen is, ADDR:PORT "
      "(port 4458), as the host reaches it; several with commas are the paths of one channel.",
      host_tail,
      4,
      4,
      { OPTION_ROWS(attach_options), OPTION_ROWS(shared_rows) },
      attach },
    { "detach",
      "HOST SLOT",
      "empty a slot of a host",
      "Empties a slot of a running dxpu-host: what was sent is still delivered, then the device "
      "goes. HOST is where its --control is, ADDR:PORT (port 4459).",
      host_tail,
      2,
      2,
      { OPTION_ROWS(detach_options), OPTION_ROWS(shared_rows) },
      detach },
    { "plug",
      "BOX SLOT DEVICE",
      "put a device into a slot of a box",
      "Puts a device into an empty slot of a running dxpu-box that was started with --hot-plug. "
      "DEVICE is KIND[,KEY=VALUE]..., as in its --slot; files are the box's. BOX is where its "
      "--control is, ADDR:PORT (port 4459).",
      box_tail,
      3,
      3,
      { OPTION_ROWS(plug_options), OPTION_ROWS(force_options), OPTION_ROWS(shared_rows) },
      plug },
    { "unplug",
      "BOX SLOT",
      "take the device out of a slot of a box",
      "Takes the device out of a slot of a running dxpu-box that was started with --hot-plug, if "
      "the slot is not lent and keeps no tenant's data. BOX is where its --control is, ADDR:PORT "
      "(port 4459).",
      box_tail,
      2,
      2,
      { OPTION_ROWS(force_options), OPTION_ROWS(shared_rows) },
      plug },
    { "status",
      "PROXY [SLOT]",
      "show the slots of a host or a box",
      "Shows the slots of a running dxpu-host or dxpu-box. PROXY is where its --control is, "
      "ADDR:PORT (port 4459).",
      "Exit status: 0 done, 1 refused, 2 wrong usage, 3 no connection to the proxy's control "
      "port.\n",
      1,
      2,
      { OPTION_ROWS(shared_rows), { NULL, 0 } },
      show_status },
    { "screenshot",
      "BOX SLOT FILE",
      "write the screen of a display to a PNG",
      "Writes the screen of the display in a slot of a running dxpu-box to FILE, a PNG, which is "
      "replaced atomically. BOX is where its --control is, ADDR:PORT (port 4459).",
      "Exit status: 0 done, 1 refused, 2 wrong usage or FILE cannot be written, 3 no connection "
      "to\n"
      "the box's control port, or no picture from it.\n",
      3,
      3,
      { OPTION_ROWS(shared_rows), { NULL, 0 } },
      screenshot },
};

const option_verbs control_verbs = { "Proxies without a manager, through their --control",
                                     control_commands, 6 };
