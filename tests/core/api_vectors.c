/* The vectors of spec/vectors through the public interface.  Directory: argv[1], DXPU_VECTORS, or
   spec/vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dxpu.h"
#include <cmocka.h>
#include "vector_file.h"

static vector v; /* large */

static const char *get(const char *key)
{
    return vector_get(&v, key);
}

static void text_attr(const dxpu_tlp *t, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s%s", t->attr & DXPU_ATTR_NS ? " NS" : "",
             t->attr & DXPU_ATTR_RO ? " RO" : "", t->attr & DXPU_ATTR_IDO ? " IDO" : "");
    memmove(out, out + 1, strlen(out));
}

static void text_bdf(uint16_t bdf, char *out, size_t cap)
{
    snprintf(out, cap, "%02x:%02x.%x", DXPU_BDF_BUS(bdf), DXPU_BDF_DEV(bdf), DXPU_BDF_FN(bdf));
}

static void text_prefixes(const dxpu_tlp *t, char *out, size_t cap)
{
    unsigned i;
    out[0] = 0;
    for (i = 0; i < t->prefix_count; i++) {
        size_t used = strlen(out);
        snprintf(out + used, cap - used, "%s%08lx", i ? " " : "", (unsigned long)t->prefix[i]);
    }
}

typedef struct number {
    const char *key;
    unsigned value;
} number;

/* Text of a numeric field; false when there is no `key`. */
static bool text_number(const dxpu_tlp *t, const char *key, char *out, size_t cap)
{
    number n[] = {
        { "dw", t->header_dw },
        { "length_dw", t->length_dw },
        { "tc", t->tc },
        { "th", t->th },
        { "td", t->td },
        { "ep", t->ep },
        { "at", t->at },
        { "ph", t->ph },
        { "steering", t->steering },
        { "tag", t->tag },
        { "first_be", t->first_be },
        { "last_be", t->last_be },
        { "byte_count", t->byte_count },
        { "lower_addr", t->lower_addr },
        { "bcm", t->bcm },
        { "register", t->register_bytes },
        { "message_code", t->message_code },
    };
    size_t i;
    for (i = 0; i < sizeof n / sizeof n[0]; i++)
        if (strcmp(n[i].key, key) == 0) {
            snprintf(out, cap, "%u", n[i].value);
            return true;
        }
    return false;
}

/* Text of any field; false when there is no `key`. */
static bool text_field(const dxpu_tlp *t, const char *key, char *out, size_t cap)
{
    const char *name = NULL;
    if (text_number(t, key, out, cap))
        return true;
    if (strcmp(key, "type") == 0)
        name = dxpu_tlp_type_name(t->type);
    else if (strcmp(key, "class") == 0)
        name = dxpu_class_name(dxpu_tlp_class(t));
    else if (strcmp(key, "routing") == 0)
        name = dxpu_routing_name(dxpu_tlp_routing(t));
    else if (strcmp(key, "status") == 0)
        name = dxpu_status_name(t->status);
    else if (strcmp(key, "message") == 0)
        name = dxpu_message_name(t->message_code);
    if (name)
        snprintf(out, cap, "%s", name);
    else if (strcmp(key, "attr") == 0)
        text_attr(t, out, cap);
    else if (strcmp(key, "requester") == 0)
        text_bdf(t->requester, out, cap);
    else if (strcmp(key, "completer") == 0)
        text_bdf(t->completer, out, cap);
    else if (strcmp(key, "target") == 0)
        text_bdf(t->target, out, cap);
    else if (strcmp(key, "address") == 0)
        snprintf(out, cap, "0x%llx", (unsigned long long)t->address);
    else if (strcmp(key, "message_dw") == 0)
        snprintf(out, cap, "%08lx%08lx", (unsigned long)t->message_dw[0],
                 (unsigned long)t->message_dw[1]);
    else if (strcmp(key, "prefixes") == 0)
        text_prefixes(t, out, cap);
    else if (strcmp(key, "digest") == 0)
        snprintf(out, cap, "%08lx", (unsigned long)t->digest);
    else
        return false;
    return true;
}

static bool is_meta(const char *key)
{
    static const char *const meta[] = { "header", "strict",   "received",      "receive",
                                        "ecrc",   "lcrc",     "lcrc_sequence", "note",
                                        "source", "reported", "known" };
    size_t i;
    for (i = 0; i < sizeof meta / sizeof meta[0]; i++)
        if (strcmp(meta[i], key) == 0)
            return true;
    return false;
}

/* Fields that are 0 or empty when the vector does not give them. */
static void check_absent(const dxpu_tlp *t)
{
    static const char *const keys[] = { "tc", "attr", "th",       "td",  "ep",
                                        "at", "ph",   "steering", "bcm", "prefixes" };
    char is[LINE_MAX_BYTES];
    size_t i;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_true(text_field(t, keys[i], is, sizeof is));
        if (!get(keys[i]) && is[0] && strcmp(is, "0") != 0)
            fail_msg("%s: %s is %s, want 0", v.name, keys[i], is);
    }
}

static void check_fields(const dxpu_tlp *t, bool digest)
{
    char is[LINE_MAX_BYTES];
    unsigned i, fields = 0;
    for (i = 0; i < v.keys; i++) {
        if (is_meta(v.key[i]) || (!digest && strcmp(v.key[i], "digest") == 0))
            continue;
        fields++;
        if (!text_field(t, v.key[i], is, sizeof is))
            fail_msg("%s: unknown key %s", v.name, v.key[i]);
        if (strcmp(is, v.value[i]) != 0)
            fail_msg("%s: %s is %s, want %s", v.name, v.key[i], is, v.value[i]);
    }
    if (fields)
        check_absent(t);
}

static void check_outcome(const char *decoder, int rc, const char *want)
{
    if (strcmp(dxpu_error_name(rc), want) != 0)
        fail_msg("%s: %s says %s, want %s", v.name, decoder, dxpu_error_name(rc), want);
}

static void check_header(dxpu_bytes in)
{
    dxpu_tlp t, before;
    int rc;
    memset(&t, 0xa5, sizeof t);
    before = t;
    rc = dxpu_tlp_decode_header(in, &t);
    check_outcome("header-only", rc, get("header") ? get("header") : "OK");
    if (rc == DXPU_OK)
        check_fields(&t, false);
    else
        assert_memory_equal(&t, &before, sizeof t);
}

static void check_strict(dxpu_bytes in)
{
    uint8_t again[sizeof v.bytes];
    size_t again_len = 0;
    dxpu_tlp t, before;
    int rc;
    memset(&t, 0xa5, sizeof t);
    before = t;
    rc = dxpu_tlp_decode(in, &t);
    check_outcome("strict", rc, get("strict"));
    if (rc != DXPU_OK) {
        assert_memory_equal(&t, &before, sizeof t);
        return;
    }
    check_fields(&t, true);
    assert_int_equal(dxpu_tlp_encode(&t, again, sizeof again, &again_len), DXPU_OK);
    assert_int_equal(again_len, in.len);
    assert_memory_equal(again, in.ptr, in.len);
}

static void check_received(dxpu_bytes in)
{
    uint8_t again[sizeof v.bytes], want[sizeof v.bytes];
    const char *received = get("received"), *receive = get("receive");
    bool good = received || strcmp(get("strict"), "OK") == 0;
    size_t again_len = 0, want_len = 0;
    dxpu_tlp t;
    int rc = dxpu_tlp_receive(in, &t);
    check_outcome("receiver", rc, good ? "OK" : receive ? receive : get("strict"));
    if (!good)
        return;
    if (received)
        vector_hex(received, want, sizeof want, &want_len);
    else
        memcpy(want, in.ptr, want_len = in.len);
    assert_int_equal(dxpu_tlp_encode(&t, again, sizeof again, &again_len), DXPU_OK);
    assert_int_equal(again_len, want_len);
    assert_memory_equal(again, want, want_len);
}

static void check_crcs(dxpu_bytes in)
{
    const char *ecrc = get("ecrc"), *lcrc = get("lcrc"), *sequence = get("lcrc_sequence");
    if (ecrc)
        assert_int_equal(dxpu_tlp_ecrc_check(in),
                         strcmp(ecrc, "good") == 0 ? DXPU_OK : DXPU_E_TLP_ECRC);
    if (lcrc) {
        uint8_t crc[4], link_number[2];
        char text[9];
        assert_non_null(sequence);
        dxpu_put_be16(link_number, (uint32_t)atoi(sequence) & 0xfffu); /* T-62 */
        dxpu_put_le32(crc, dxpu_crc32(dxpu_crc32(0, link_number, 2), in.ptr, in.len));
        snprintf(text, sizeof text, "%02x%02x%02x%02x", crc[0], crc[1], crc[2], crc[3]);
        assert_string_equal(text, lcrc);
    }
}

static void check_vector(void)
{
    /* an exact copy on the heap, so that a sanitizer sees a read past the end */
    uint8_t *copy = (uint8_t *)malloc(v.len ? v.len : 1);
    dxpu_bytes in;
    assert_non_null(copy);
    memcpy(copy, v.bytes, v.len);
    in.ptr = copy;
    in.len = v.len;
    check_header(in);
    if (get("strict")) {
        check_strict(in);
        check_received(in);
    }
    check_crcs(in);
    free(copy);
}

static void test_t1_tlp_vectors(void **state)
{
    (void)state;
    assert_true(vector_run("tlp.txt", &v, check_vector) >= 290);
}

static void test_t40_aer_vectors(void **state)
{
    (void)state;
    assert_int_equal(vector_run("aer.txt", &v, check_vector), 36);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t1_tlp_vectors),
        cmocka_unit_test(test_t40_aer_vectors),
    };
    vector_find_folder(argc, argv);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
