/* unit_json.c - JSON that is written as it goes, with hostile names and text
   SPDX-License-Identifier: MIT */
#include "json.h"
#include "text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>

static uint64_t dice(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void test_object(void **state)
{
    char text[200];
    json_writer w;
    (void)state;
    json_to_text(&w, text, sizeof text);
    json_put_open(&w, NULL, '{');
    json_put_number(&w, "n", UINT64_MAX);
    json_put_real(&w, "r", 1.5);
    json_put_real(&w, "no", 1e308 * 10); /* JSON has no infinity */
    json_put_open(&w, "list", '[');
    json_put_text(&w, NULL, "a");
    json_put_bool(&w, NULL, false);
    json_put_open(&w, NULL, '{');
    json_put_close(&w, '}');
    json_put_close(&w, ']');
    json_put_bool(&w, "b", true);
    json_put_close(&w, '}');
    assert_string_equal(text, "{\"n\":18446744073709551615,\"r\":1.500,\"no\":null,"
                              "\"list\":[\"a\",false,{}],\"b\":true}");
    assert_int_equal(w.len, strlen(text));
}

static void test_escapes(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        { "plain ~", "plain ~" },
        { "\"\\/", "\\\"\\\\/" },
        { "\b\f\n\r\t", "\\b\\f\\n\\r\\t" },
        { "\x01\x1b[2J\x7f", "\\u0001\\u001B[2J\\u007F" },
        { "caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\\u00E9 \\uD83D\\uDE00" },
        { "\xe2\x80\xae", "\\u202E" },                       /* right to left */
        { "\x9b\xff", "\\uFFFD\\uFFFD" },                    /* no UTF-8 */
        { "\xed\xa0\x80\xc0\x80", "\\uFFFD\\uFFFD" },        /* a surrogate, overlong */
        { "\xe4\xb8", "\\uFFFD" },                           /* cut off */
        { "\xe4\"},{\"x\":1", "\\uFFFD\\\"},{\\\"x\\\":1" }, /* swallows no quote */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200], want[200];
        json_writer w;
        json_to_text(&w, text, sizeof text);
        json_put_text(&w, NULL, rows[i].in);
        snprintf(want, sizeof want, "\"%s\"", rows[i].out);
        assert_string_equal(text, want);
        json_to_text(&w, text, sizeof text);
        json_put_number(&w, rows[i].in, 1); /* names are not better */
        snprintf(want, sizeof want, "\"%s\":1", rows[i].out);
        assert_string_equal(text, want);
    }
}

/* Of any bytes another library reads one object with one text, the same where it was UTF-8. */
static void test_any_bytes(void **state)
{
    uint64_t seed = 88172645463325252ull;
    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        char in[40], text[400];
        size_t len = dice(&seed) % sizeof in;
        json_writer w;
        json_t *j, *was;
        for (size_t i = 0; i < len; i++)
            in[i] = (char)(dice(&seed) % 4 ? dice(&seed) % 127 + 1 : dice(&seed) % 255 + 1);
        in[len < sizeof in ? len : sizeof in - 1] = '\0';
        json_to_text(&w, text, sizeof text);
        json_put_open(&w, NULL, '{');
        json_put_text(&w, "text", in);
        json_put_close(&w, '}');
        assert_true(w.len < sizeof text);
        for (const char *c = text; *c; c++)
            assert_in_range(*c, ' ', '~');
        j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_int_equal(json_object_size(j), 1);
        was = json_string(in); /* NULL: no UTF-8 */
        if (was)
            assert_string_equal(json_string_value(json_object_get(j, "text")), in);
        else
            assert_non_null(strstr(text, "\\uFFFD"));
        json_decref(was);
        json_decref(j);
    }
}

/* What has no room is counted and not written; nothing is written beyond the end. */
static void test_room(void **state)
{
    static const char whole[] = "{\"text\":\"\\u001B\"}";
    (void)state;
    for (size_t room = 1; room < sizeof whole + 4; room++) {
        char text[32];
        json_writer w;
        memset(text, '#', sizeof text);
        json_to_text(&w, text, room);
        json_put_open(&w, NULL, '{');
        json_put_text(&w, "text", "\x1b");
        json_put_close(&w, '}');
        assert_int_equal(w.len, strlen(whole));
        assert_int_equal(strlen(text), room > strlen(whole) ? strlen(whole) : room - 1);
        assert_memory_equal(text, whole, strlen(text));
        assert_int_equal(text[room], '#');
    }
}

static void test_file(void **state)
{
    char text[100] = "";
    FILE *f = tmpfile();
    json_writer w;
    (void)state;
    assert_non_null(f);
    json_to_file(&w, f);
    json_put_open(&w, NULL, '[');
    json_put_text(&w, NULL, "\x1b]0;title\a");
    json_put_close(&w, ']');
    rewind(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "[\"\\u001B]0;title\\u0007\"]");
}

static const char *const names[] = { "slot", "slots", "listen", "lease create", "node", NULL };

static const char *name_at(const void *user, unsigned i)
{
    (void)user;
    return names[i];
}

static void test_nearest(void **state)
{
    static const struct {
        const char *word;
        int found;
    } rows[] = {
        { "slto", 0 },   { "sltos", 1 },        { "lsiten", 2 }, { "listn", 2 }, { "liste", 2 },
        { "lis", 2 },    { "lease craete", 3 }, { "noed", 4 },   { "", -1 },     { "x", -1 },
        { "zebra", -1 }, { "lo", -1 },          { "slot", 0 },
    };
    char longest[5000];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int found = text_nearest(rows[i].word, name_at, NULL);
        if (found != rows[i].found)
            fail_msg("'%s': %d", rows[i].word, found);
    }
    memset(longest, 's', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(text_nearest(longest, name_at, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object),    cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_room),
        cmocka_unit_test(test_file),      cmocka_unit_test(test_nearest),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
