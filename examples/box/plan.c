/* plan.c - see plan.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "plan.h"

#include "card.h"
#include "card_wire.h"
#include "nvme.h"
#include "options.h"
#include "pci.h"
#include "hot_plug.h"
#include "remote.h"
#include "virtio_blk.h"
#include "virtio_gpu.h"
#include "virtio_net.h"

#include <stdlib.h>

const char plan_no_memory[] = "out of memory";

static char problem[400];

static const char *wrong(const char *what, const char *text)
{
    snprintf(problem, sizeof problem, "--slot: %s '%.80s'", what, text);
    return problem;
}

/* ==== Values ================================================================================== */

static bool power_of_two(uint64_t v)
{
    return v && !(v & (v - 1));
}

/* Numbers and sizes; `power`: only powers of two. */
static const struct number_key {
    const char *name;
    size_t at; /* in device_settings */
    uint64_t min, max;
    bool power;
} number_keys[] = {
    { "memory", offsetof(device_settings, memory_bytes), 4096, (uint64_t)1 << 40, true },
    { "mps", offsetof(device_settings, mps_bytes), 128, 4096, true },
    { "mrrs", offsetof(device_settings, mrrs_bytes), 128, 4096, true },
    { "size", offsetof(device_settings, file_bytes), 1 << 20, (uint64_t)1 << 44, false },
    { "functions", offsetof(device_settings, function_count), 2, DEVICE_FUNCTIONS_MAX, false },
    { "virtual-functions", offsetof(device_settings, virtuals), 1, PCI_VIRTUAL_MAX, false },
    { "namespaces", offsetof(device_settings, namespaces), 1, 32, false },
    { "block", offsetof(device_settings, block_bytes), 512, 4096, true },
    { "cmb", offsetof(device_settings, cmb_bytes), 0, 1 << 30, false },
    { "bar", offsetof(device_settings, bar_bytes), 4096, (uint64_t)1 << 44, true },
    { "fd", offsetof(device_settings, descriptor), 3, 1 << 20, false },
    { "tags", offsetof(device_settings, wire_tags), 1, 256, false },
    { "answer-ms", offsetof(device_settings, answer_ms), 1, 10000, false }
};

/* The kind of a slot that is a further function of another one's device. */
static const char function_kind[] = "function";
enum { FUNCTIONS_MAX = 32 }; /* beside function 0 */

/* NULL, or what is wrong; *found: it is one of them. */
static const char *set_number(device_settings *s, const char *key, const char *value, bool *found)
{
    for (unsigned i = 0; i < sizeof number_keys / sizeof number_keys[0]; i++) {
        const struct number_key *k = &number_keys[i];
        uint64_t v;
        if (strcmp(k->name, key) != 0)
            continue;
        *found = true;
        if (!options_size(value, &v) || v < k->min || v > k->max || (k->power && !power_of_two(v)))
            return wrong("invalid value of", key);
        memcpy((uint8_t *)s + k->at, &v, sizeof v);
    }
    return NULL;
}

/* Keeps a copy of `text` in p and *out.  NULL, or what is wrong: the key that it came with. */
static const char *keep(slot_plan *p, const char *text, const char *key, char **out)
{
    if (p->text_count == sizeof p->texts / sizeof p->texts[0])
        return wrong("given too often:", key);
    *out = strdup(text);
    if (!*out)
        return plan_no_memory;
    p->texts[p->text_count++] = *out;
    return NULL;
}

static const char *keep_const(slot_plan *p, const char *text, const char *key, const char **out)
{
    char *copy = NULL;
    const char *bad = keep(p, text, key, &copy);
    if (!bad)
        *out = copy;
    return bad;
}

/* Several files are the namespaces of one device. */
static const char *add_file(slot_plan *p, const char *value)
{
    char both[8192];
    int put = snprintf(both, sizeof both, "%s%s%s", p->set.file ? p->set.file : "",
                       p->set.file ? "," : "", value);
    char *files;
    if (put < 0 || put >= (int)sizeof both)
        return wrong("too many files:", value);
    files = strdup(both);
    if (!files)
        return plan_no_memory;
    free(p->files);
    p->set.file = p->files = files;
    return NULL;
}

static bool is_word(const char *text, size_t max)
{
    size_t len = strlen(text);
    for (const char *c = text; *c; c++) {
        if (*c <= ' ' || *c > '~')
            return false;
    }
    return len >= 1 && len <= max;
}

/* KEY=VALUE */
static bool is_attribute(const char *text)
{
    const char *equals = strchr(text, '=');
    return is_word(text, DEVICE_ATTRIBUTES_BYTES - 1) && equals && equals > text && equals[1];
}

bool plan_attributes(char all[DEVICE_ATTRIBUTES_BYTES], const char *more)
{
    size_t used = strlen(all), len = strlen(more);
    if (!len)
        return true;
    if (used + 1 + len >= DEVICE_ATTRIBUTES_BYTES)
        return false;
    snprintf(all + used, DEVICE_ATTRIBUTES_BYTES - used, "%s%s", used ? "," : "", more);
    return true;
}

/* The number that `digits` hexadecimal digits are. */
static bool read_hex(const char *text, size_t digits, uint64_t *out)
{
    static const char all[] = "0123456789abcdef";
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        const char *at = text[i] ? strchr(all, text[i]) : NULL;
        if (!at)
            return false;
        *out = *out << 4 | (uint64_t)(at - all);
    }
    return true;
}

/* VVVV:DDDD */
static bool read_ids(const char *text, uint64_t *out)
{
    uint64_t vendor, device;
    if (strlen(text) != 9 || text[4] != ':' || !read_hex(text, 4, &vendor) ||
        !read_hex(text + 5, 4, &device))
        return false;
    *out = vendor << 16 | device;
    return vendor != 0 && vendor != 0xffff;
}

/* What is for cards alone; *found: it is one of these keys. */
static const char *set_card(slot_plan *p, const char *key, const char *value, bool *found)
{
    const char **address = !strcmp(key, "peer")    ? &p->set.peer
                           : !strcmp(key, "local") ? &p->set.local
                                                   : NULL;
    bool id = !strcmp(key, "id"), class_code = !strcmp(key, "class");
    *found = address || id || class_code;
    if (address && !card_wire_check(value))
        return keep_const(p, value, key, address);
    if ((id && read_ids(value, &p->set.card_id)) ||
        (class_code && strlen(value) == 6 && read_hex(value, 6, &p->set.card_class) &&
         p->set.card_class))
        return NULL;
    return *found ? wrong("invalid value of", key) : NULL;
}

static const char *set_text(slot_plan *p, const char *key, const char *value)
{
    if (!strcmp(key, "file"))
        return *value ? add_file(p, value) : wrong("a name is missing:", key);
    if (!strcmp(key, "serial") && is_word(value, 20))
        return keep_const(p, value, key, &p->set.serial);
    if (!strcmp(key, "model") && is_word(value, PLAN_MODEL_MAX))
        return keep(p, value, key, &p->model);
    if (!strcmp(key, "attribute") && is_attribute(value))
        return plan_attributes(p->attributes, value) ? NULL : wrong("too many:", "attributes");
    if (!strcmp(key, "socket") && is_word(value, 107))
        return keep_const(p, value, key, &p->set.socket);
    if (!strcmp(key, "subsystem") && is_word(value, PLAN_MODEL_MAX))
        return keep_const(p, value, key, &p->set.subsystem);
    if (!strcmp(key, "tap") && is_word(value, 15))
        return keep_const(p, value, key, &p->set.tap);
    if (!strcmp(key, "render-node") && is_word(value, 255))
        return keep_const(p, value, key, &p->set.render_node);
    return wrong("unknown key or invalid value:", key);
}

/* ==== A slot ================================================================================== */

static const char *add_key(slot_plan *p, char *key)
{
    char *value = strchr(key, '=');
    const char *bad;
    bool found = false, push = !p->set.no_push, *flag;
    if (value)
        *value++ = '\0';
    flag = !strcmp(key, "read-only")   ? &p->set.read_only
           : !strcmp(key, "stateless") ? &p->set.stateless
           : !strcmp(key, "render")    ? &p->set.render
           : !strcmp(key, "spans")     ? &p->set.spans
           : !strcmp(key, "push")      ? &push
                                       : NULL;
    if (flag) {
        *flag = !value || !strcmp(value, "yes");
        p->set.no_push = !push;
        return *flag || !strcmp(value, "no") ? NULL : wrong("must be yes or no:", key);
    }
    if (!value)
        return wrong("unknown key or missing value:", key);
    if (!strcmp(key, "of"))
        return options_number(value, UINT16_MAX, &p->of) && p->of
                   ? NULL
                   : wrong("must be the number of a slot:", value);
    bad = set_number(&p->set, key, value, &found);
    if (!bad && !found)
        bad = set_card(p, key, value, &found);
    return bad || found ? bad : set_text(p, key, value);
}

/* What is wrong with those of a card. */
static const char *check_card(const slot_plan *p)
{
    const device_settings *s = &p->set;
    bool raw = p->kind == &rawtlp_kind, card = raw || p->kind == &nettlp_kind;
    if (card && !s->peer)
        return "--slot: nettlp and rawtlp need peer=ADDR, the address of the device";
    if (card && s->file)
        return "--slot: nettlp and rawtlp have no file=";
    if (!card && (s->peer || s->local || s->card_id || s->card_class || s->answer_ms))
        return "--slot: peer, local, id, class and answer-ms are for nettlp and rawtlp";
    if (p->kind != &nettlp_kind && s->wire_tags)
        return "--slot: tags is for nettlp";
    return s->spans && !raw ? "--slot: spans is for rawtlp" : NULL;
}

/* What is wrong with the keys together. */
static const char *check(const slot_plan *p, bool is_function)
{
    bool remote = p->kind == &vfio_user_kind;
    bool outside = !plan_is_model(p->kind);
    if (is_function != (p->of != 0))
        return "--slot: function requires of=N, the slot of the device";
    if (is_function && (p->set.subsystem || p->set.serial))
        return "--slot: subsystem and serial are the device's, not a further function's";
    if (remote && !p->set.socket)
        return "--slot: vfio-user needs socket=PATH, where its server listens";
    if (!remote && p->set.socket)
        return "--slot: socket is for vfio-user";
    if (!outside && p->set.stateless)
        return "--slot: stateless is for vfio-user, nettlp and rawtlp";
    if (p->set.file && p->set.namespaces)
        return "--slot: namespaces cannot be used with file";
    if (p->set.read_only && (p->kind != &virtio_blk_kind || !p->set.file))
        return "--slot: read-only requires virtio-blk and file";
    if (p->kind != &nvme_kind && p->set.subsystem)
        return "--slot: subsystem is for nvme";
    if ((p->set.function_count || p->set.virtuals) &&
        (p->kind != &nvme_kind || p->of || p->set.subsystem))
        return "--slot: functions and virtual-functions are for nvme, without subsystem";
    if (p->set.function_count && p->set.virtuals)
        return "--slot: functions and virtual-functions exclude one another";
    if (p->kind == &virtio_blk_kind && p->set.file && strchr(p->set.file, ','))
        return "--slot: a virtio-blk device has one file";
    if (p->kind == &virtio_net_kind && !p->set.tap == !p->set.descriptor)
        return "--slot: virtio-net needs tap=NAME or fd=N";
    if (p->kind != &virtio_gpu_kind && (p->set.render || p->set.render_node))
        return "--slot: render and render-node are for virtio-gpu";
    if (p->kind != &virtio_net_kind && (p->set.tap || p->set.descriptor))
        return "--slot: tap and fd are for virtio-net";
    return check_card(p);
}

/* The kinds of which dxpu-device has no model. */
static const device_kind *const outside_kinds[] = { &vfio_user_kind, &nettlp_kind, &rawtlp_kind,
                                                    &no_device_kind };

bool plan_is_model(const device_kind *kind)
{
    for (unsigned i = 0; i < sizeof outside_kinds / sizeof outside_kinds[0]; i++) {
        if (kind == outside_kinds[i])
            return false;
    }
    return true;
}

static const device_kind *find_kind(const slot_plans *p, const char *name)
{
    for (unsigned i = 0; i < sizeof outside_kinds / sizeof outside_kinds[0]; i++) {
        if (!strcmp(name, outside_kinds[i]->name))
            return outside_kinds[i];
    }
    if (!strcmp(name, function_kind)) /* no other kind has functions */
        name = nvme_kind.name;
    for (unsigned i = 0; i < p->kind_count; i++) {
        if (!strcmp(name, p->kinds[i]->name))
            return p->kinds[i];
    }
    return NULL;
}

static const char *no_kind(const slot_plans *p, const char *name)
{
    int at = snprintf(problem, sizeof problem,
                      "--slot: no such device model: '%.80s'; must be one of ", name);
    for (unsigned i = 0; i < p->kind_count; i++)
        at += snprintf(problem + at, sizeof problem - (size_t)at, "%s|", p->kinds[i]->name);
    for (unsigned i = 0; i < sizeof outside_kinds / sizeof outside_kinds[0]; i++)
        at += snprintf(problem + at, sizeof problem - (size_t)at, "%s|", outside_kinds[i]->name);
    snprintf(problem + at, sizeof problem - (size_t)at, "%s", function_kind);
    return problem;
}

/* The words of "KIND,key=value,..." */
static const char *add_words(const slot_plans *all, slot_plan *p, char *words)
{
    char *rest = NULL, *word = strtok_r(words, ",", &rest);
    bool is_function = word && !strcmp(word, function_kind);
    const char *bad = NULL;
    p->kind = word ? find_kind(all, word) : NULL;
    if (!p->kind)
        return no_kind(all, word ? word : "");
    p->set = *all->usual;
    p->set.file = p->set.serial = p->set.tap = NULL; /* of slots that share an option */
    p->set.render = false;
    p->set.render_node = NULL;
    p->set.subsystem = NULL;
    p->set.descriptor = 0;
    p->set.namespaces = 0;
    p->set.read_only = false;
    while (!bad && (word = strtok_r(NULL, ",", &rest)) != NULL)
        bad = add_key(p, word);
    return bad ? bad : check(p, is_function);
}

const char *plan_read(const slot_plans *all, const char *text, slot_plan *p)
{
    const char *bad;
    char *words = strdup(text);
    if (!words)
        return plan_no_memory;
    bad = add_words(all, p, words);
    free(words);
    return bad;
}

const char *plan_add(slot_plans *p, const char *text)
{
    const char *equals = strchr(text, '=');
    char number[8] = "";
    uint64_t n = 0;
    if (equals && equals - text < (int)sizeof number)
        memcpy(number, text, (size_t)(equals - text));
    if (!options_number(number, p->count, &n) || n < 1)
        return wrong("must be N=KIND, with N at most --slots:", text);
    if (p->slot[n - 1].kind)
        return wrong("given twice:", number);
    return plan_read(p, equals + 1, &p->slot[n - 1]);
}

/* ==== All slots =============================================================================== */

const char *plan_tap(const char *tap, unsigned index, char name[PLAN_TAP_BYTES])
{
    snprintf(name, PLAN_TAP_BYTES, index ? "%.40s.%u" : "%.40s", tap, index + 1);
    return name;
}

/* Where the frames of a slot go: NULL and 0 if it has no network adapter. */
static uint64_t net_of_slot(const slot_plans *p, unsigned i, const char **tap,
                            char name[PLAN_TAP_BYTES])
{
    const slot_plan *own = &p->slot[i];
    *tap = own->kind ? own->set.tap : p->usual->tap;
    if (!own->kind && *tap)
        *tap = plan_tap(*tap, i, name);
    return own->kind ? own->set.descriptor : p->usual->descriptor;
}

static const char *check_taps(const slot_plans *p)
{
    char name[PLAN_TAP_BYTES], other_name[PLAN_TAP_BYTES];
    const char *tap, *other_tap;
    for (unsigned i = 0; i < p->count; i++) {
        uint64_t fd = net_of_slot(p, i, &tap, name);
        for (unsigned k = 0; (tap || fd) && k < i; k++) {
            uint64_t other_fd = net_of_slot(p, k, &other_tap, other_name);
            if ((tap && other_tap && !strcmp(tap, other_tap)) || (fd && fd == other_fd)) {
                snprintf(problem, sizeof problem,
                         "--slot: slots %u and %u cannot share a tap or descriptor; give each one "
                         "of its own",
                         k + 1, i + 1);
                return problem;
            }
        }
    }
    return NULL;
}

/* Gives slot i, a further function, its number in its device: by their slots, so that it stays what
   it is where another start leaves one out. */
static const char *number_function(slot_plans *p, unsigned i)
{
    slot_plan *own = &p->slot[i], *device = own->of <= i ? &p->slot[own->of - 1] : NULL;
    unsigned before = 0;
    if (!device || device->kind != &nvme_kind || device->of || device->set.subsystem ||
        device->set.function_count || device->set.virtuals) {
        snprintf(problem, sizeof problem,
                 "--slot: slot %u: of must be a slot with a lower number that another --slot gives "
                 "an nvme without subsystem and functions",
                 i + 1);
        return problem;
    }
    for (unsigned k = (unsigned)own->of; k < i; k++)
        before += p->slot[k].of == own->of;
    if (before == FUNCTIONS_MAX)
        return "--slot: a device has at most 32 functions beside its first one";
    own->function = i + 1 - (unsigned)own->of;
    own->set.controller = own->function + 1u;
    own->set.functions = device->set.functions = true;
    return NULL;
}

const char *plan_check(slot_plans *p)
{
    const char *bad = NULL;
    for (unsigned i = 0; !bad && i < p->count; i++)
        bad = p->slot[i].of ? number_function(p, i) : NULL;
    return bad ? bad : check_taps(p);
}

void plan_clear(slot_plan *p)
{
    for (unsigned k = 0; k < p->text_count; k++)
        free(p->texts[k]);
    free(p->files);
}

void plan_free(slot_plans *p)
{
    for (unsigned i = 0; p->slot && i < p->count; i++)
        plan_clear(&p->slot[i]);
    free(p->slot);
    p->slot = NULL;
}
