/* tlp_json.c - TLPs as JSON objects, both directions
   SPDX-License-Identifier: MIT */
#include "tlp_json.h"

#include "tlp_fields.h"
#include "tlp_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const attr_names[] = { "NS", "RO", "IDO" }; /* Attr[0] to Attr[2] */

/* ---- to JSON ---- */

static void set_number(json_t *o, const char *key, json_int_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

static json_t *hex_string(const uint8_t *bytes, size_t len)
{
    char text[2 * DXPU_TLP_PAYLOAD_MAX_BYTES + 1];
    size_t n = len < DXPU_TLP_PAYLOAD_MAX_BYTES ? len : DXPU_TLP_PAYLOAD_MAX_BYTES;
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_stringn(text, 2 * n);
}

static void set_common(json_t *o, const dxpu_tlp *t, unsigned has)
{
    json_t *attr = json_array();
    set_text(o, "type", dxpu_tlp_type_name(t->type));
    set_number(o, "dw", t->header_dw);
    set_text(o, "class", dxpu_class_name(dxpu_tlp_class(t)));
    set_text(o, "routing", dxpu_routing_name(dxpu_tlp_routing(t)));
    if (has & TLP_HAS_LENGTH)
        set_number(o, "length_dw", t->length_dw);
    set_number(o, "tc", t->tc);
    for (unsigned i = 0; i < 3; i++)
        if (t->attr >> i & 1)
            json_array_append_new(attr, json_string(attr_names[i]));
    json_object_set_new(o, "attr", attr);
    json_object_set_new(o, "th", json_boolean(t->th));
    json_object_set_new(o, "td", json_boolean(t->td));
    json_object_set_new(o, "ep", json_boolean(t->ep));
    set_number(o, "at", t->at);
    set_text(o, "requester", tlp_bdf(t->requester).text);
    if (has & TLP_HAS_TAG)
        set_number(o, "tag", t->tag);
}

static void set_request(json_t *o, const dxpu_tlp *t, unsigned has)
{
    char address[2 + 16 + 1];
    if (has & TLP_HAS_BE) {
        set_number(o, "first_be", t->first_be);
        set_number(o, "last_be", t->last_be);
    }
    if (has & TLP_HAS_ADDRESS) {
        snprintf(address, sizeof address, "0x%" PRIx64, t->address);
        set_text(o, "address", address);
    }
    if (has & TLP_HAS_TARGET)
        set_text(o, "target", tlp_bdf(t->target).text);
    if (has & TLP_HAS_REGISTER)
        set_number(o, "register", t->register_bytes);
    if (has & TLP_HAS_HINT)
        set_number(o, "ph", t->ph);
    if (has & TLP_HAS_STEERING)
        set_number(o, "steering", t->steering);
}

static void set_completion(json_t *o, const dxpu_tlp *t)
{
    set_text(o, "completer", tlp_bdf(t->completer).text);
    set_text(o, "status", dxpu_status_name(t->status));
    set_number(o, "byte_count", t->byte_count);
    set_number(o, "lower_addr", t->lower_addr);
    json_object_set_new(o, "bcm", json_boolean(t->bcm));
}

static void set_message(json_t *o, const dxpu_tlp *t)
{
    const char *name = dxpu_message_name(t->message_code);
    if (name)
        set_text(o, "message", name);
    set_number(o, "message_code", t->message_code);
    json_object_set_new(
        o, "message_dw",
        json_pack("[I, I]", (json_int_t)t->message_dw[0], (json_int_t)t->message_dw[1]));
}

static json_t *prefix_array(const dxpu_tlp *t)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < t->prefix_count; i++) {
        const char *name = dxpu_tlp_prefix_name(t->prefix[i], NULL);
        char hex[9];
        snprintf(hex, sizeof hex, "%08" PRIx32, t->prefix[i]);
        json_array_append_new(array,
                              json_pack("{s:s, s:s}", "name", name ? name : "?", "hex", hex));
    }
    return array;
}

json_t *tlp_json_from(const dxpu_tlp *t, bool whole)
{
    unsigned has = tlp_fields(t);
    json_t *o = json_object();
    set_common(o, t, has);
    set_request(o, t, has);
    if (has & TLP_HAS_COMPLETER)
        set_completion(o, t);
    if (has & TLP_HAS_MESSAGE)
        set_message(o, t);
    json_object_set_new(o, "prefixes", prefix_array(t));
    if (t->payload.len)
        json_object_set_new(o, "payload", hex_string(t->payload.ptr, t->payload.len));
    if (whole && t->td)
        set_number(o, "digest", t->digest);
    return o;
}

json_t *tlp_json_refusal(const char *error, const char *reason, const char *input)
{
    json_t *o = json_object();
    set_text(o, "error", error);
    set_text(o, "reason", reason);
    /* What a log holds need not be UTF-8. */
    if (json_object_set_new(o, "input", json_string(input)) != 0)
        set_text(o, "input", "(not UTF-8)");
    return o;
}

/* ---- from JSON ---- */

static bool fail(tlp_json *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(tlp_json *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->why, sizeof out->why, format, args);
    va_end(args);
    return false;
}

static bool given(const tlp_json *out, const char *key)
{
    return json_object_get(out->object, key) != NULL;
}

/* The text of a string value, NULL after saying what was wanted. */
static const char *text_of(tlp_json *out, const char *key, const json_t *value, const char *wanted)
{
    const char *text = json_string_value(value);
    if (!text)
        fail(out, "%s: give a string, %s", key, wanted);
    return text;
}

typedef struct key_row key_row;
typedef bool (*key_reader)(const key_row *k, const json_t *value, tlp_json *out);

/* One key: how it is read, for which types it is, and where a number goes. */
struct key_row {
    const char *name;
    key_reader read;
    unsigned has; /* TLP_HAS_*, 0 for every type */
    size_t offset, size;
    json_int_t min, max;
};

static bool read_number(const key_row *k, const json_t *value, tlp_json *out)
{
    json_int_t n = json_integer_value(value);
    uint8_t *field = (uint8_t *)&out->tlp + k->offset;
    if (!json_is_integer(value) || n < k->min || n > k->max)
        return fail(out, "%s: give a number from %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT,
                    k->name, k->min, k->max);
    if (k->size == 1)
        *field = (uint8_t)n;
    else if (k->size == 2)
        memcpy(field, &(uint16_t){ (uint16_t)n }, 2);
    else
        memcpy(field, &(uint32_t){ (uint32_t)n }, 4);
    return true;
}

static bool read_bool(const key_row *k, const json_t *value, tlp_json *out)
{
    bool b = json_is_true(value);
    if (!json_is_boolean(value))
        return fail(out, "%s: give true or false", k->name);
    memcpy((uint8_t *)&out->tlp + k->offset, &b, sizeof b);
    return true;
}

static bool read_bdf(const key_row *k, const json_t *value, tlp_json *out)
{
    const char *text = text_of(out, k->name, value, "bus:device.function like \"05:00.1\"");
    long bdf = text ? tlp_bdf_of(text) : -1;
    if (!text)
        return false;
    if (bdf < 0)
        return fail(out, "%s: \"%.40s\" is not a bus:device.function; write it like \"05:00.1\"",
                    k->name, text);
    memcpy((uint8_t *)&out->tlp + k->offset, &(uint16_t){ (uint16_t)bdf }, 2);
    return true;
}

static bool read_address(const key_row *k, const json_t *value, tlp_json *out)
{
    const char *text = text_of(out, k->name, value, "hex like \"0xfee00000\"");
    char *end = NULL;
    if (!text)
        return false;
    errno = 0;
    out->tlp.address = strtoull(text, &end, 16);
    if (errno || *end || end == text || !strspn(text, "0123456789abcdefABCDEF"))
        return fail(out,
                    "address: \"%.40s\" is not a 64-bit hex number; write it like \"0xfee00000\"",
                    text);
    return true;
}

static bool read_attr(const key_row *k, const json_t *value, tlp_json *out)
{
    size_t index;
    json_t *item;
    if (!json_is_array(value))
        return fail(out, "%s: give an array of \"NS\", \"RO\", \"IDO\"", k->name);
    json_array_foreach(value, index, item)
    {
        const char *text = json_string_value(item);
        unsigned bit = 0;
        while (bit < 3 && (!text || strcmp(text, attr_names[bit]) != 0))
            bit++;
        if (bit == 3)
            return fail(out, "attr: its members are \"NS\", \"RO\", \"IDO\", nothing else");
        out->tlp.attr = (uint8_t)(out->tlp.attr | 1u << bit);
    }
    return true;
}

static bool read_status(const key_row *k, const json_t *value, tlp_json *out)
{
    static const uint8_t codes[] = { DXPU_CPL_SC, DXPU_CPL_UR, DXPU_CPL_CRS, DXPU_CPL_CA };
    const char *text = text_of(out, k->name, value, "\"SC\", \"UR\", \"CRS\" or \"CA\"");
    if (!text)
        return false;
    for (size_t i = 0; i < sizeof codes; i++)
        if (strcmp(text, dxpu_status_name(codes[i])) == 0) {
            out->tlp.status = codes[i];
            return true;
        }
    return fail(out, "status: \"%.40s\" must be one of SC, UR, CRS, CA", text);
}

static bool read_message(const key_row *k, const json_t *value, tlp_json *out)
{
    const char *text = text_of(out, k->name, value, "a name like \"LTR\"");
    int code = text ? dxpu_message_code(text) : -1;
    const json_t *number = json_object_get(out->object, "message_code");
    if (!text)
        return false;
    if (code < 0)
        return fail(out,
                    "message: PCIe has no \"%.40s\"; dxpu(1) lists the names, or give "
                    "message_code",
                    text);
    if (number && json_integer_value(number) != code)
        return fail(out,
                    "message: \"%.40s\" has code %d, message_code says otherwise; leave one "
                    "of them out",
                    text, code);
    out->tlp.message_code = (uint8_t)code;
    return true;
}

static bool read_message_dw(const key_row *k, const json_t *value, tlp_json *out)
{
    for (size_t i = 0; i < 2; i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t n = json_integer_value(item);
        if (json_array_size(value) != 2 || !json_is_integer(item) || n < 0 || n > UINT32_MAX)
            return fail(out, "%s: give header bytes 8..11 and 12..15 as an array of two numbers",
                        k->name);
        out->tlp.message_dw[i] = (uint32_t)n;
    }
    return true;
}

static bool read_payload(const key_row *k, const json_t *value, tlp_json *out)
{
    const char *text = text_of(out, k->name, value, "hex digits like \"deadbeef\"");
    long bytes = text ? tlp_text_bytes(text, out->payload, sizeof out->payload) : -1;
    if (!text)
        return false;
    if (bytes < 0 || bytes % 4)
        return fail(out, "payload: give hex digits alone, 8 of them a dword, 1024 dwords at most");
    out->tlp.payload.ptr = out->payload;
    out->tlp.payload.len = (size_t)bytes;
    return true;
}

/* A member is {"name": ..., "hex": ...} or the hex digits alone. */
static bool read_prefixes(const key_row *k, const json_t *value, tlp_json *out)
{
    size_t index;
    json_t *item;
    if (!json_is_array(value) || json_array_size(value) > DXPU_PREFIXES_MAX)
        return fail(out, "%s: give an array of at most %d prefixes", k->name, DXPU_PREFIXES_MAX);
    json_array_foreach(value, index, item)
    {
        const json_t *member = json_is_object(item) ? json_object_get(item, "hex") : item;
        const char *hex = json_string_value(member);
        uint8_t b[4];
        if (!hex || tlp_text_bytes(hex, b, sizeof b) != 4)
            return fail(out, "prefixes: a member needs \"hex\" with 8 digits, like "
                             "{\"hex\": \"91000001\"}");
        out->tlp.prefix[out->tlp.prefix_count++] = dxpu_get_be32(b);
    }
    return true;
}

static bool read_digest(const key_row *k, const json_t *value, tlp_json *out)
{
    out->digest_given = true;
    return read_number(k, value, out);
}

static bool read_later(const key_row *k, const json_t *value, tlp_json *out)
{
    return text_of(out, k->name, value, "as decode prints it") != NULL;
}

/* Where decode found the TLP is no part of it. */
static bool read_origin(const key_row *k, const json_t *value, tlp_json *out)
{
    (void)k;
    (void)value;
    (void)out;
    return true;
}

static bool read_refusal(const key_row *k, const json_t *value, tlp_json *out)
{
    (void)value;
    return fail(out, "%s: this is the object of a TLP that was refused; there is nothing to encode",
                k->name);
}

#define NUMBER(name, field, has, min, max)                                                         \
    {                                                                                              \
        name, read_number, has, offsetof(dxpu_tlp, field), sizeof(((dxpu_tlp *)0)->field), min,    \
            max                                                                                    \
    }
#define FIELD(name, reader, has, field)                                                            \
    {                                                                                              \
        name, reader, has, offsetof(dxpu_tlp, field), 0, 0, 0                                      \
    }
#define OTHER(name, reader, has)                                                                   \
    {                                                                                              \
        name, reader, has, 0, 0, 0, 0                                                              \
    }

static const key_row keys[] = {
    OTHER("type", read_later, 0),
    NUMBER("dw", header_dw, 0, 3, 4),
    OTHER("class", read_later, 0),
    OTHER("routing", read_later, 0),
    NUMBER("length_dw", length_dw, TLP_HAS_LENGTH, 1, 1024),
    NUMBER("tc", tc, 0, 0, 7),
    OTHER("attr", read_attr, 0),
    FIELD("th", read_bool, 0, th),
    FIELD("td", read_bool, 0, td),
    FIELD("ep", read_bool, 0, ep),
    NUMBER("at", at, 0, 0, 3),
    FIELD("requester", read_bdf, 0, requester),
    NUMBER("tag", tag, TLP_HAS_TAG, 0, 1023),
    NUMBER("first_be", first_be, TLP_HAS_BE, 0, 15),
    NUMBER("last_be", last_be, TLP_HAS_BE, 0, 15),
    OTHER("address", read_address, TLP_HAS_ADDRESS),
    FIELD("completer", read_bdf, TLP_HAS_COMPLETER, completer),
    OTHER("status", read_status, TLP_HAS_COMPLETER),
    NUMBER("byte_count", byte_count, TLP_HAS_COMPLETER, 1, 4096),
    NUMBER("lower_addr", lower_addr, TLP_HAS_COMPLETER, 0, 127),
    FIELD("bcm", read_bool, TLP_HAS_COMPLETER, bcm),
    FIELD("target", read_bdf, TLP_HAS_TARGET, target),
    NUMBER("register", register_bytes, TLP_HAS_REGISTER, 0, 4092),
    OTHER("message", read_message, TLP_HAS_MESSAGE),
    NUMBER("message_code", message_code, TLP_HAS_MESSAGE, 0, 255),
    OTHER("message_dw", read_message_dw, TLP_HAS_MESSAGE),
    NUMBER("ph", ph, TLP_HAS_HINT, 0, 3),
    NUMBER("steering", steering, TLP_HAS_STEERING, 0, 255),
    OTHER("prefixes", read_prefixes, 0),
    OTHER("payload", read_payload, TLP_HAS_DATA),
    { "digest", read_digest, 0, offsetof(dxpu_tlp, digest), 4, 0, UINT32_MAX },
    OTHER("line", read_origin, 0),
    OTHER("device", read_origin, 0),
    OTHER("input", read_origin, 0),
    OTHER("error", read_refusal, 0),
};

static const key_row *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static bool read_keys(tlp_json *out)
{
    const char *name;
    json_t *value;
    json_object_foreach(out->object, name, value)
    {
        const key_row *k = find_key(name);
        if (!k)
            return fail(out, "%.40s: no such key; dxpu(1) lists them", name);
        if (!k->read(k, value, out))
            return false;
    }
    return true;
}

static bool read_type(tlp_json *out)
{
    const json_t *value = json_object_get(out->object, "type");
    const char *text = json_string_value(value);
    int type = text ? tlp_type_of(text) : -1;
    if (type < 0)
        return fail(out,
                    "type: %s; one of MRd, MWr, MRdLk, IORd, IOWr, CfgRd0, CfgWr0, CfgRd1, "
                    "CfgWr1, Msg, MsgD, Cpl, CplD, CplLk, CplDLk, FetchAdd, Swap, CAS, DMWr",
                    value ? "PCIe has none of this name" : "missing");
    out->tlp.type = (uint8_t)type;
    return true;
}

static int usual_routing(unsigned code)
{
#define ROW(number, text, routing, data, down, up)                                                 \
    case number:                                                                                   \
        return DXPU_MSG_##routing;
    switch (code) {
        DXPU_MESSAGES(ROW)
    default:
        return DXPU_MSG_LOCAL;
    }
#undef ROW
}

/* Class and routing follow from the type, but a message's routing is its own. */
static bool settle_routing(tlp_json *out)
{
    const char *routing = json_string_value(json_object_get(out->object, "routing"));
    const char *cls = json_string_value(json_object_get(out->object, "class"));
    bool message = out->tlp.type == DXPU_TLP_MSG || out->tlp.type == DXPU_TLP_MSGD;
    unsigned last = message ? DXPU_MSG_GATHERED : 0;
    if (cls && strcmp(cls, dxpu_class_name(dxpu_tlp_class(&out->tlp))) != 0)
        return fail(out, "class: a %s is %s; leave the key out", dxpu_tlp_type_name(out->tlp.type),
                    dxpu_class_name(dxpu_tlp_class(&out->tlp)));
    if (message && !routing) {
        out->tlp.message_routing = (uint8_t)usual_routing(out->tlp.message_code);
        return true;
    }
    for (unsigned r = 0; routing && r <= last; r++) {
        out->tlp.message_routing = (uint8_t)r;
        if (strcmp(routing, dxpu_routing_name(dxpu_tlp_routing(&out->tlp))) == 0)
            return true;
    }
    if (!routing)
        return true;
    return message ? fail(out, "routing: one of to-root, address, id, broadcast, local, gathered")
                   : fail(out, "routing: a %s goes by %s; leave the key out",
                          dxpu_tlp_type_name(out->tlp.type),
                          dxpu_routing_name(dxpu_tlp_routing(&out->tlp)));
}

/* Every key given must be one that the type has. */
static bool check_keys(tlp_json *out, unsigned has)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].has && !(keys[i].has & has) && given(out, keys[i].name))
            return fail(out, "%s: a %s%s has none; leave the key out", keys[i].name,
                        dxpu_tlp_type_name(out->tlp.type), out->tlp.th ? " with th" : "");
    if (out->digest_given && !out->tlp.td)
        return fail(out, "digest: only with \"td\": true; set td, or leave the digest out");
    return true;
}

static bool check_missing(tlp_json *out, unsigned has)
{
    static const struct {
        unsigned has;
        const char *key, *remedy;
    } needed[] = {
        { 0, "requester", "the function that asked, like \"05:00.1\"" },
        { TLP_HAS_ADDRESS, "address", "the byte address, like \"0xfee00000\"" },
        { TLP_HAS_TARGET, "target", "the function it goes to, like \"05:00.1\"" },
        { TLP_HAS_REGISTER, "register", "the register's byte offset, 0 to 4092" },
        { TLP_HAS_COMPLETER, "completer", "the function that answers, like \"05:00.1\"" },
        { TLP_HAS_COMPLETER, "status", "\"SC\", \"UR\", \"CRS\" or \"CA\"" },
        { TLP_HAS_COMPLETER, "byte_count", "the bytes still to come, 1 to 4096" },
        { TLP_HAS_DATA, "payload", "the data as hex digits" },
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if ((!needed[i].has || (needed[i].has & has)) && !given(out, needed[i].key))
            return fail(out, "%s: missing; give %s", needed[i].key, needed[i].remedy);
    if ((has & TLP_HAS_MESSAGE) && !given(out, "message") && !given(out, "message_code"))
        return fail(out, "message: missing; give its name, like \"LTR\", or message_code");
    return true;
}

/* Length follows from the payload, and is 1 for registers; a read must say it. */
static bool settle_length(tlp_json *out, unsigned has)
{
    dxpu_tlp *t = &out->tlp;
    if (!(has & TLP_HAS_LENGTH))
        return true;
    if (!t->length_dw && (has & TLP_HAS_DATA))
        t->length_dw = (uint16_t)(t->payload.len / 4);
    else if (!t->length_dw && ((has & TLP_HAS_REGISTER) || t->type == DXPU_TLP_IORD))
        t->length_dw = 1;
    if (!t->length_dw && (has & TLP_HAS_DATA))
        return fail(out, "payload: a %s has one dword at least", dxpu_tlp_type_name(t->type));
    if (!t->length_dw)
        return fail(out, "length_dw: missing; give the dwords it asks for, 1 to 1024");
    if ((has & TLP_HAS_DATA) && t->payload.len != t->length_dw * 4u)
        return fail(out, "payload: %zu bytes, but length_dw %u wants %u; change one of them",
                    t->payload.len, t->length_dw, t->length_dw * 4u);
    return true;
}

static bool settle_rest(tlp_json *out, unsigned has)
{
    dxpu_tlp *t = &out->tlp;
    bool enables =
        t->type != DXPU_TLP_FETCHADD && t->type != DXPU_TLP_SWAP && t->type != DXPU_TLP_CAS;
    if ((has & TLP_HAS_ADDRESS || has & TLP_HAS_REGISTER) && !(has & TLP_HAS_MESSAGE) && enables) {
        if (!given(out, "first_be"))
            t->first_be = 0xf;
        if (!given(out, "last_be"))
            t->last_be = t->length_dw > 1 ? 0xf : 0;
    }
    if (!t->header_dw)
        t->header_dw = t->address > UINT32_MAX || (has & TLP_HAS_MESSAGE) ? 4 : 3;
    if (!tlp_type_dw(t->type, t->header_dw))
        return fail(out, "dw: a %s has a header of %u dwords; leave the key out",
                    dxpu_tlp_type_name(t->type), 7u - t->header_dw);
    return true;
}

bool tlp_json_to(json_t *object, tlp_json *out)
{
    unsigned has;
    memset(out, 0, sizeof *out);
    out->object = object;
    if (!json_is_object(object))
        return fail(out, "not an object; give {\"type\": ..., ...} as decode --json prints it");
    if (given(out, "error"))
        return read_refusal(find_key("error"), NULL, out);
    if (!read_type(out) || !read_keys(out) || !settle_routing(out))
        return false;
    has = tlp_fields(&out->tlp);
    return check_keys(out, has) && check_missing(out, has) && settle_length(out, has) &&
           settle_rest(out, has);
}
