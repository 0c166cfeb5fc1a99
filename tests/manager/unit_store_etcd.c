/* unit_store_etcd.c - the manager's store in etcd: only the leader changes it, each commit is done
   once or not at all, whatever becomes of requests and answers
   SPDX-License-Identifier: MIT

   Against a real etcd (Debian's etcd-server); without one all tests are skipped. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "etcd_gateway.h"
#include "etcd_server.h"
#include "store.h"

static etcd_server server;
static bool installed;
static store_fault why;
static store_etcd_settings set;
static char where[160];
static unsigned tests; /* each has a prefix of its own */

static store *suite_open(void)
{
    return store_open_etcd(&set, &why);
}

#define SUITE_KILLS 2
#include "store_suite.h"

/* By the relay, or past it as well. */
static void use_members(bool relayed, bool direct)
{
    char one[32], two[32];
    snprintf(one, sizeof one, "127.0.0.1:%u", relay.port);
    snprintf(two, sizeof two, "127.0.0.1:%u", server.port);
    snprintf(where, sizeof where, "etcd://%s%s%s/t%u", relayed ? one : "",
             relayed && direct ? "," : "", direct ? two : "", tests);
}

static int begin(void **state)
{
    (void)state;
    if (!installed)
        return 0;
    tests++;
    relay_set(RELAY_PASS, 0, 0);
    use_members(false, true);
    store_etcd_default(&set);
    set.where = where;
    set.request_ms = 2000;
    set.commit_ms = 6000;
    return 0;
}

#define NEED_ETCD()                                                                                \
    if (!installed)                                                                                \
    skip()

/* -- Past the store -- */

static etcd_gateway *open_gateway(void)
{
    static const etcd_tls none = { NULL, NULL, NULL };
    etcd_address at;
    char text[64];
    snprintf(text, sizeof text, "etcd://127.0.0.1:%u/x", server.port);
    assert_null(etcd_address_parse(text, &at));
    return etcd_gateway_open(&at, &none);
}

/* One request at the server; its answer is the caller's. */
static json_t *raw(const char *path, json_t *body)
{
    etcd_gateway *g = open_gateway();
    etcd_answer a = etcd_ask(g, path, body, 5000);
    etcd_gateway_close(g);
    if (a.fate != ETCD_DONE)
        fail_msg("%s: %s", path, a.text);
    return a.json;
}

static json_t *key_of(const char *key)
{
    char text[300];
    snprintf(text, sizeof text, "/t%u/%s", tests, key);
    return etcd_bytes(text, strlen(text));
}

static void raw_put(const char *key, const char *value)
{
    json_decref(raw("kv/put", json_pack("{s:o, s:o}", "key", key_of(key), "value",
                                        etcd_bytes(value, strlen(value)))));
}

static void raw_delete(const char *key)
{
    json_decref(raw("kv/deleterange", json_pack("{s:o}", "key", key_of(key))));
}

/* A number of a key, 0: it is not there. */
static uint64_t raw_number(const char *key, const char *name)
{
    uint64_t number = 0;
    json_t *j = raw("kv/range", json_pack("{s:o}", "key", key_of(key)));
    json_t *kv = json_array_get(json_object_get(j, "kvs"), 0);
    if (kv)
        assert_true(etcd_number_read(kv, name, &number));
    json_decref(j);
    return number;
}

/* The record `a`, as the store has it. */
static void assert_a(store *s, const char *value)
{
    char text[32];
    snprintf(text, sizeof text, "a=%s ", value);
    assert_string_equal(look(s, "a").text, text);
}

/* -- Addresses -- */

static void test_addresses(void **state)
{
    (void)state;
    etcd_address a;
    assert_null(etcd_address_parse("etcd://a,10.0.0.1:7,[::1],[::2]:9/pool/a/", &a));
    assert_int_equal(a.members, 4);
    assert_string_equal(a.member[0], "a:2379");
    assert_string_equal(a.member[1], "10.0.0.1:7");
    assert_string_equal(a.member[2], "[::1]:2379");
    assert_string_equal(a.member[3], "[::2]:9");
    assert_string_equal(a.prefix, "/pool/a");
    assert_false(etcd_address_is_local(&a));
    assert_null(etcd_address_parse("etcd://127.0.0.1,localhost,[::1]:1", &a));
    assert_string_equal(a.prefix, "/dxpu");
    assert_true(etcd_address_is_local(&a));
    assert_null(etcd_address_parse("etcd://127.example.org", &a));
    assert_false(etcd_address_is_local(&a));
    static const char *const bad[] = { "etcd:/a",
                                       "etcd://",
                                       "etcd://a,,b/x",
                                       "etcd://a@b",
                                       "etcd://a:/x",
                                       "etcd://a/x y",
                                       "etcd:///pool",
                                       "etcd://a?b",
                                       "pool.db",
                                       "etcd://:2379/",
                                       "etcd://a,b,c,d,e,f,g,h,i,j",
                                       "etcd://a:x/p",
                                       "etcd://[::1/p" };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_non_null(etcd_address_parse(bad[i], &a));
    assert_true(store_etcd_is("etcd://a") && !store_etcd_is("etcd.db"));
}

/* No byte of the pool crosses a network in clear text. */
static void test_s159_needs_tls_beyond_this_machine(void **state)
{
    (void)state;
    store_etcd_settings s;
    store_etcd_default(&s);
    s.where = "etcd://127.0.0.1";
    assert_null(store_etcd_check(&s));
    s.where = "etcd://127.0.0.1,10.0.0.1";
    assert_non_null(strstr(store_etcd_check(&s), "--etcd-ca"));
    assert_null(store_open_etcd(&s, &why));
    assert_int_equal(why.code, STORE_E_ARG);
    s.ca = "ca.pem";
    assert_null(store_etcd_check(&s));
    s.cert = "cert.pem";
    assert_non_null(strstr(store_etcd_check(&s), "--etcd-key"));
    s.key = "key.pem";
    assert_null(store_etcd_check(&s));
    s.ca = NULL;
    assert_non_null(store_etcd_check(&s));
}

static void test_base64(void **state)
{
    (void)state;
    static const char bytes[] = "\0\xff\x10 abc";
    for (size_t len = 0; len < sizeof bytes; len++) {
        size_t got;
        json_t *j = json_pack("{s:o}", "v", etcd_bytes(bytes, len));
        char *back = etcd_bytes_read(j, "v", &got);
        assert_int_equal(got, len);
        assert_memory_equal(back, bytes, len);
        free(back);
        json_decref(j);
    }
    static const char *const bad[] = { "a", "ab!=", "a b=", "abcde" };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t got;
        json_t *j = json_pack("{s:s}", "v", bad[i]);
        assert_null(etcd_bytes_read(j, "v", &got));
        json_decref(j);
    }
}

/* -- The suite -- */

static void test_suite_records_come_back(void **state)
{
    NEED_ETCD();
    test_records_come_back(state);
}

static void test_suite_loading_can_stop(void **state)
{
    NEED_ETCD();
    test_loading_can_stop(state);
}

static void test_suite_out_of_range(void **state)
{
    NEED_ETCD();
    test_out_of_range(state);
}

static void test_suite_killed(void **state)
{
    NEED_ETCD();
    set.ttl_s = 1;
    test_killed_between_and_within_commits(state);
}

/* -- Who leads -- */

static void test_one_leader(void **state)
{
    (void)state;
    NEED_ETCD();
    store_etcd_settings second = set;
    set.ttl_s = 30; /* longer than the second waits */
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    second.commit_ms = 500;
    second.ttl_s = 1;
    second.name = "the second";
    assert_null(store_open_etcd(&second, &why));
    assert_int_equal(why.code, STORE_E_LOCKED);
    assert_non_null(strstr(why.text, "in use by dxpu-manager"));
    assert_int_equal(put(s, "b", "2"), STORE_OK);
    store_close(s);
    s = store_open_etcd(&second, &why); /* the control; and its lease is not waited for */
    assert_non_null(s);
    assert_string_equal(look(s, "").text, "a=1 b=2 ");
    store_close(s);
}

static store *led;
static unsigned looks;

/* It waits as long as another leads. */
static bool wait_a_while(const char *leader, const char *reason)
{
    (void)reason;
    assert_string_equal(leader, "dxpu-manager");
    if (++looks == 3) {
        store_close(led);
        led = NULL;
    }
    return looks < 1000;
}

static bool wait_no_more(const char *leader, const char *reason)
{
    (void)reason;
    (void)leader;
    return ++looks < 3;
}

static void test_standby(void **state)
{
    (void)state;
    NEED_ETCD();
    led = open_good();
    assert_int_equal(put(led, "a", "1"), STORE_OK);
    set.waiting = wait_no_more;
    looks = 0;
    assert_null(suite_open());
    assert_int_equal(why.code, STORE_E_LOCKED);
    assert_int_equal(looks, 3);
    set.waiting = wait_a_while;
    looks = 0;
    store *s = open_good();
    assert_true(looks >= 3 && looks < 1000 && !led);
    assert_a(s, "1");
    assert_int_equal(put(s, "a", "2"), STORE_OK);
    store_close(s);
}

static void raw_delete_all(void)
{
    json_decref(raw("kv/deleterange",
                    json_pack("{s:o, s:o}", "key", key_of(""), "range_end", key_of("\x7f"))));
}

static bool begins_again; /* whoever leads then begins an empty pool before the standby leads */

static bool wait_while_it_is_emptied(const char *leader, const char *reason)
{
    (void)reason;
    assert_non_null(leader);
    if (++looks == 3) {
        raw_delete_all();
        store_close(led);
        led = NULL;
        if (begins_again) {
            const store_etcd_settings standby = set;
            set.waiting = NULL;
            store *other = open_good();
            store_close(other);
            set = standby;
        }
    }
    return looks < 1000;
}

/* M-148: the members are the same, and no revision is older than before.  test_standby() is the
   control. */
static void test_m148_standby_of_an_emptied_store(void **state)
{
    (void)state;
    NEED_ETCD();
    for (unsigned i = 0; i < 2; i++) {
        set.waiting = NULL;
        led = open_good();
        assert_int_equal(put(led, "a", "1"), STORE_OK);
        set.waiting = wait_while_it_is_emptied;
        looks = 0;
        begins_again = i == 1;
        assert_null(suite_open());
        assert_int_equal(why.code, STORE_E_IO);
        assert_non_null(strstr(why.text, "is not the store that it was"));
        assert_int_equal(raw_number("record/a", "create_revision"), 0);
        assert_int_equal(raw_number("format", "create_revision") != 0, begins_again);
        assert_int_equal(raw_number("leader", "create_revision"), 0); /* the lead is given up */
        raw_delete_all();
    }
    set.waiting = wait_no_more; /* a first start begins a pool */
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    store_close(s);
}

/* Whoever lost the leader's key changes nothing, ever: nor when it is gone, nor when another has
   it, nor when that one has gone as well. */
static void test_m140_lost_leadership(void **state)
{
    (void)state;
    NEED_ETCD();
    for (unsigned i = 0; i < 3; i++) {
        store *s = open_good(), *other = NULL;
        char value[2] = { (char)('0' + i), 0 };
        assert_int_equal(put(s, "a", value), STORE_OK); /* the control */
        raw_delete("leader");
        if (i)
            other = open_good();
        if (other)
            assert_int_equal(put(other, "b", value), STORE_OK);
        if (i == 2) {
            store_close(other);
            other = NULL;
        }
        assert_int_equal(put(s, "a", "late"), STORE_E_IO);
        assert_non_null(strstr(why.text, i == 1 ? "leads now" : "has ended"));
        assert_int_equal(put(s, "a", "later"), STORE_E_IO);
        assert_int_equal(store_check(s, &why), STORE_E_IO);
        if (other)
            assert_int_equal(put(other, "b", value), STORE_OK);
        store_close(s);
        if (other)
            assert_a(other, value);
        store_close(other);
        other = open_good();
        assert_a(other, value);
        store_close(other);
    }
}

/* Its lease goes on without the key, and it changes nothing: it finds out all the same. */
static void test_idle_leader_without_its_key(void **state)
{
    (void)state;
    NEED_ETCD();
    store *s = open_good();
    raw_delete("leader");
    store_error rc = STORE_OK;
    for (unsigned i = 0; rc == STORE_OK && i < 250; i++) {
        usleep(store_check_ms(s) * 1000);
        rc = store_check(s, &why);
    }
    assert_int_equal(rc, STORE_E_IO);
    assert_non_null(strstr(why.text, "has ended"));
    store_close(s);
}

/* Lets go what the relay holds once it has the next request for a lease, too. */
static void *let_go(void *user)
{
    (void)user;
    while (relay.times)
        usleep(1000);
    relay.holds = false;
    return NULL;
}

static pthread_t releaser;

static bool wait_for_late(const char *leader, const char *reason)
{
    (void)reason;
    (void)leader;
    if (looks++ == 0) {
        relay_set_path("lease/grant", RELAY_HOLD, 0, 1);
        assert_int_equal(pthread_create(&releaser, NULL, let_go, NULL), 0);
    }
    return looks < 1000;
}

/* An attempt to lead under a lease that was given up is done late, behind the look at the key: it
   is not leadership under the lease of today. */
static void test_m140_late_attempt_to_lead(void **state)
{
    (void)state;
    NEED_ETCD();
    use_members(true, false);
    set.ttl_s = 1;
    set.request_ms = 800;
    set.commit_ms = 400; /* of a busy machine, too */
    set.waiting = wait_for_late;
    looks = 0;
    relay_set(RELAY_HOLD, 0, 1);
    store *s = open_good();
    pthread_join(releaser, NULL);
    assert_true(looks > 1); /* until the old lease ended */
    for (uint64_t end = etcd_now_ms() + 2500; etcd_now_ms() < end;) {
        assert_int_equal(store_check(s, &why), STORE_OK);
        usleep(store_check_ms(s) * 1000);
    }
    set.waiting = NULL;
    store_close(s);
}

/* Renewed as often as it is looked at; what is not renewed ends, and that is seen. */
static void test_lease(void **state)
{
    (void)state;
    NEED_ETCD();
    set.ttl_s = 2;
    store *s = open_good();
    uint64_t lease = raw_number("leader", "lease"), ttl = 0;
    assert_true(lease != 0);
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(store_check(s, &why), STORE_OK);
        usleep(250000); /* longer, in all, than the lease */
    }
    json_t *j = raw("lease/timetolive", json_pack("{s:o}", "ID", etcd_number(lease)));
    assert_true(etcd_number_read(j, "TTL", &ttl) && ttl >= 1);
    json_decref(j);
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    json_decref(raw("lease/revoke", json_pack("{s:o}", "ID", etcd_number(lease))));
    store_error rc = STORE_OK;
    for (unsigned i = 0; rc == STORE_OK && i < 100; i++) {
        usleep(100000);
        rc = store_check(s, &why);
    }
    assert_int_equal(rc, STORE_E_IO);
    assert_non_null(strstr(why.text, "has ended"));
    assert_int_equal(put(s, "a", "2"), STORE_E_IO);
    store_close(s);
}

/* -- What is below the prefix -- */

static void test_foreign_and_newer(void **state)
{
    (void)state;
    NEED_ETCD();
    raw_put("theirs", "x");
    assert_null(suite_open());
    assert_int_equal(why.code, STORE_E_FOREIGN);
    raw_delete("theirs");
    raw_put("format", "theirs");
    assert_null(suite_open());
    assert_int_equal(why.code, STORE_E_FOREIGN);
    raw_put("format", "{\"store\":\"dxpu\",\"format\":2}");
    assert_null(suite_open());
    assert_int_equal(why.code, STORE_E_NEWER);
    raw_put("format", "{\"store\":\"dxpu\",\"format\":1}");
    store *s = open_good(); /* the control */
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    raw_put("commit", "theirs"); /* whoever writes beside the leader is noticed */
    assert_int_equal(put(s, "a", "2"), STORE_E_IO);
    assert_non_null(strstr(why.text, "another program"));
    store_close(s);
    s = open_good();
    assert_string_equal(look(s, "").text, "a=1 ");
    store_close(s);
}

/* -- Requests and answers that are lost -- */

/* Each of these happens to a commit, which the next attempt finds out about: it is done once. */
static void test_m141_unknown_fate_is_resolved(void **state)
{
    (void)state;
    NEED_ETCD();
    static const relay_mode modes[] = { RELAY_LOSE,    RELAY_LOSE_ANSWER, RELAY_UNAVAILABLE,
                                        RELAY_GARBAGE, RELAY_OLD,         RELAY_OTHER_CLUSTER,
                                        RELAY_ENDLESS, RELAY_LOSE_ANSWER, RELAY_LOSE };
    use_members(true, true); /* a bad member is left for the next one */
    for (unsigned i = 0; i < 9; i++) {
        char value[2] = { (char)('1' + i), 0 };
        store *s = open_good();
        assert_int_equal(put(s, "a", "0"), STORE_OK);
        uint64_t version = raw_number("record/a", "version");
        relay_set(modes[i], 0, 1);
        assert_int_equal(put(s, "a", value), STORE_OK);
        assert_int_equal(relay.times, 0);
        assert_int_equal(raw_number("record/a", "version"), version + 1);
        assert_a(s, value);
        store_close(s);
        if (i == 6)
            use_members(true, false); /* or asked again, if it is the only one */
    }
}

/* Answers to a load that are lost or wrong are asked for again, and never taken for the records. */
static void test_bad_answers_to_a_load(void **state)
{
    (void)state;
    NEED_ETCD();
    static const relay_mode modes[] = { RELAY_LOSE, RELAY_UNAVAILABLE,   RELAY_GARBAGE,
                                        RELAY_OLD,  RELAY_OTHER_CLUSTER, RELAY_ENDLESS };
    use_members(true, false);
    set.ttl_s = 30; /* a waiting load does not renew it, and takes long on a busy machine */
    for (unsigned i = 0; i < 6; i++) {
        set.load_ms = i < 5 ? 1500 : 4000;
        seen all = { 0 };
        store *s = open_good();
        assert_int_equal(put(s, "a", "1"), STORE_OK);
        relay_set_path("kv/range", modes[i], 0, 1);
        assert_a(s, "1");
        assert_int_equal(relay.times, 0);
        relay_set_path("kv/range", modes[i], 0, 1000);
        assert_int_equal(store_load(s, "", see, &all, &why), STORE_E_IO);
        assert_int_equal(all.count, 0);
        relay_set(RELAY_PASS, 0, 0);
        assert_a(s, "1");
        store_close(s);
    }
}

/* An answer without records is not an empty pool where etcd counted some. */
static void test_answer_without_the_records(void **state)
{
    (void)state;
    NEED_ETCD();
    seen all = { 0 };
    use_members(true, false);
    store *s = open_good();
    assert_int_equal(look(s, "").count, 0);
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    relay_set_path("kv/range", RELAY_NO_RECORDS, 0, 1);
    assert_int_equal(store_load(s, "", see, &all, &why), STORE_E_IO);
    assert_int_equal(relay.times, 0);
    assert_a(s, "1");
    store_close(s);
}

/* {"header":{...},MEMBERS}, with a header of the cluster. */
static const char *answer_with(const char *members)
{
    static char text[2048];
    json_t *j = raw("kv/range", json_pack("{s:o}", "key", key_of("none")));
    char *header = json_dumps(json_object_get(j, "header"), JSON_COMPACT);
    snprintf(text, sizeof text, "{\"header\":%s%s%s}", header, *members ? "," : "", members);
    free(header);
    json_decref(j);
    return text;
}

/* One key and value of the records, as an answer has them. */
static const char *record_a(const char *value)
{
    static char text[256];
    json_t *key = key_of("record/a");
    snprintf(text, sizeof text, "{\"key\":\"%s\",\"value\":%s}", json_string_value(key), value);
    json_decref(key);
    return text;
}

/* Sound JSON of the right cluster that is not an answer: it is never taken for the records. */
static void test_hostile_answers_to_a_load(void **state)
{
    (void)state;
    NEED_ETCD();
    /* R: the record; V: with a value that is a number */
    static const char *const bad[] = { "'kvs':{}",
                                       "'kvs':[7],'count':'1'",
                                       "'kvs':[{}],'count':'1'",
                                       "'kvs':[{'key':'AA==','value':''}],'count':'1'",
                                       "'kvs':[{'key':7,'value':''}],'count':1",
                                       "'kvs':[V],'count':'1'",
                                       "'kvs':[R,R],'count':'2'",
                                       "'kvs':[R],'count':'2'",
                                       "'kvs':[R],'count':'0'",
                                       "'kvs':[R],'count':'x'",
                                       "'kvs':[R],'count':-1",
                                       "'kvs':[R]",
                                       "'kvs':[R],'count':'9','more':true",
                                       "'count':'18446744073709551615'",
                                       "'count':'3','more':true" };
    use_members(true, false);
    set.load_ms = 1000;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char members[1024];
        size_t len = 0;
        for (const char *c = bad[i]; *c; c++)
            len +=
                (size_t)snprintf(members + len, sizeof members - len, "%.*s", *c == '\'' ? 1 : 200,
                                 *c == 'R'    ? record_a("\"MQ==\"")
                                 : *c == 'V'  ? record_a("7")
                                 : *c == '\'' ? "\""
                                              : (char[]){ *c, 0 });
        seen all = { 0 };
        relay.text = answer_with(members);
        relay_set_path("kv/range", RELAY_TEXT, 0, 1000);
        if (store_load(s, "", see, &all, &why) != STORE_E_IO)
            fail_msg("it is taken for the records: %s", members);
        relay_set(RELAY_PASS, 0, 0);
        assert_a(s, "1");
    }
    store_close(s);
}

/* Nor for the end of a commit, which is not known then. */
static void test_m141_hostile_answers_to_a_commit(void **state)
{
    (void)state;
    NEED_ETCD();
    static const char *const bad[] = {
        "",
        "\"succeeded\":\"true\"",
        "\"succeeded\":false,\"responses\":7",
        "\"responses\":[{},{\"response_range\":{\"kvs\":[{\"value\":7,\"mod_revision\":-1}]}}]",
        "\"responses\":[7,{\"response_range\":{\"kvs\":{}}}]",
        "\"responses\":[{\"response_range\":{\"kvs\":[{\"create_revision\":\"x\"}]}}]"
    };
    use_members(true, false);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        store *s = open_good();
        relay.text = answer_with(bad[i]);
        relay_set(RELAY_TEXT, 0, 1);
        assert_int_equal(put(s, "a", "1"), STORE_E_IO);
        assert_int_equal(put(s, "a", "2"), STORE_E_IO);
        store_close(s);
        s = open_good();
        assert_int_equal(look(s, "").count, 0);
        store_close(s);
    }
}

/* All attempts fail: how it ends is not known, and nothing is changed until it is opened again. */
static void test_m141_unknown_fate_ends_it(void **state)
{
    (void)state;
    NEED_ETCD();
    use_members(true, false);
    set.commit_ms = 800;
    for (unsigned i = 0; i < 3; i++) {
        store *s = open_good();
        static const relay_mode modes[] = { RELAY_LOSE, RELAY_LOSE_ANSWER, RELAY_ENDLESS };
        assert_int_equal(put(s, "a", "before"), STORE_OK);
        relay_set(modes[i], 0, 1000);
        assert_int_equal(put(s, "a", "after"), STORE_E_IO);
        assert_non_null(strstr(why.text, "unknown"));
        seen all = { 0 };
        assert_int_equal(put(s, "a", "later"), STORE_E_IO);
        assert_int_equal(store_check(s, &why), STORE_E_IO);
        assert_int_equal(store_load(s, "", see, &all, &why), STORE_E_IO);
        assert_non_null(strstr(why.text, "unknown")); /* the first reason */
        store_close(s);
        relay_set(RELAY_PASS, 0, 0);
        s = open_good();
        assert_string_equal(look(s, "").text, i ? "a=after " : "a=before ");
        store_close(s);
    }
}

/* A request that arrives late changes nothing any more: neither after its commit was made by
   another attempt, nor after another leads. */
static void test_m140_late_requests(void **state)
{
    (void)state;
    NEED_ETCD();
    use_members(true, true);
    set.request_ms = 300;
    store *s = open_good();
    relay_set(RELAY_HOLD, 0, 1);
    for (unsigned i = 0; relay.times && i < 4; i++)
        assert_int_equal(put(s, "a", "old"), STORE_OK);
    assert_int_equal(relay.held, 1);
    assert_int_equal(put(s, "a", "new"), STORE_OK);
    relay.holds = false;
    while (relay.held)
        usleep(1000);
    assert_string_equal(look(s, "").text, "a=new ");
    assert_int_equal(put(s, "b", "1"), STORE_OK);
    store_close(s);

    use_members(true, false);
    set.commit_ms = 400;
    s = open_good();
    relay_set(RELAY_HOLD, 0, 100);
    assert_int_equal(put(s, "a", "late"), STORE_E_IO);
    assert_true(relay.held >= 1);
    use_members(false, true);
    raw_delete("leader");
    set.commit_ms = 6000;
    set.request_ms = 2000;
    store *other = open_good();
    relay.holds = false;
    while (relay.held)
        usleep(1000);
    assert_string_equal(look(other, "").text, "a=new b=1 ");
    assert_int_equal(put(other, "b", "2"), STORE_OK);
    store_close(other);
    store_close(s);
}

static void test_no_member(void **state)
{
    (void)state;
    NEED_ETCD();
    snprintf(where, sizeof where, "etcd://127.0.0.1:%u", loopback_port(NULL));
    set.commit_ms = 200;
    set.ttl_s = 1;
    assert_null(suite_open());
    assert_int_equal(why.code, STORE_E_AWAY);
    assert_non_null(strstr(why.text, "cannot be reached"));
    char dead[200]; /* one of them is enough */
    snprintf(dead, sizeof dead, "%s,127.0.0.1:%u/t%u", where, server.port, tests);
    set.where = dead;
    set.commit_ms = 2000;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    store_close(s);
}

/* -- Large commits -- */

enum { MANY = 250 };

/* More records than etcd takes in a transaction; all of them have this value, but the first one,
   which goes. */
static store_error put_many(store *s, const char *value)
{
    static char key[MANY][16];
    static store_change change[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key[i], sizeof key[i], "many/%03u", i);
        change[i] = (store_change){ key[i], i ? value : NULL, strlen(value) };
    }
    return store_commit(s, change, MANY, &why);
}

typedef struct many {
    unsigned of[2]; /* with the values 0 and 1 */
} many;

static int count_many(void *user, const char *key, const void *value, size_t len)
{
    many *m = user;
    (void)key;
    if (len == 1)
        m->of[*(const char *)value == '1']++;
    return 0;
}

static many look_many(store *s)
{
    many m = { { 0, 0 } };
    assert_int_equal(store_load(s, "many/", count_many, &m, &why), STORE_OK);
    return m;
}

static void test_large_commit(void **state)
{
    (void)state;
    NEED_ETCD();
    static char large[3][700000];
    store *s = open_good();
    assert_int_equal(put(s, "many/000", "0"), STORE_OK);
    assert_int_equal(put_many(s, "0"), STORE_OK);
    assert_int_equal(look_many(s).of[0], MANY - 1);
    store_change c[] = { { "x", large[0], sizeof large[0] },
                         { "y", large[1], sizeof large[1] },
                         { "z", large[2], sizeof large[2] } };
    assert_int_equal(store_commit(s, c, 3, &why), STORE_OK);
    assert_int_equal(raw_number("redo", "version"), 0);
    assert_int_equal(raw_number("part/0000", "version"), 0);
    store_close(s);
    s = open_good();
    seen all = look(s, "");
    assert_int_equal(all.count, MANY - 1 + 3);
    assert_int_equal(all.bytes, MANY - 1 + 3 * sizeof large[0]);
    store_close(s);
}

/* All of its transactions together take longer than a lease: that is renewed between them, by who
   commits and by who finishes it. */
static void test_large_commit_at_a_slow_etcd(void **state)
{
    (void)state;
    NEED_ETCD();
    use_members(true, false);
    set.request_ms = 2000;
    for (unsigned finish = 0; finish < 2; finish++) {
        store *s = open_good();
        assert_int_equal(put(s, "many/000", "0"), STORE_OK);
        uint64_t began = etcd_now_ms();
        if (finish) { /* all parts, and no more */
            set.commit_ms = 300;
            store_close(s);
            s = open_good();
            relay_set(RELAY_LOSE, 4, 1000000);
            assert_int_not_equal(put_many(s, "1"), STORE_OK);
            assert_int_equal(raw_number("redo", "version"), 1);
            store_close(s);
            set.commit_ms = 4000;
            relay_set(RELAY_SLOW, 0, 1000000);
            s = open_good();
        } else {
            relay_set(RELAY_SLOW, 0, 1000000);
            assert_int_equal(put_many(s, "0"), STORE_OK);
            assert_true(etcd_now_ms() - began > 3500);
        }
        relay_set(RELAY_PASS, 0, 0);
        assert_int_equal(look_many(s).of[finish], MANY - 1);
        assert_int_equal(put(s, "a", "1"), STORE_OK); /* it leads still */
        store_close(s);
    }
}

enum { LOAD_COMMITS = 5, RECORDS = LOAD_COMMITS * STORE_CHANGES_MAX }; /* three pages */

static void store_many(void)
{
    static char key[STORE_CHANGES_MAX][16];
    static store_change change[STORE_CHANGES_MAX];
    store *s = open_good();
    for (unsigned i = 0; i < RECORDS; i++) {
        unsigned at = i % STORE_CHANGES_MAX;
        snprintf(key[at], sizeof key[at], "many/%05u", i);
        change[at] = (store_change){ key[at], "0", 1 };
        if (at == STORE_CHANGES_MAX - 1)
            assert_int_equal(store_commit(s, change, STORE_CHANGES_MAX, &why), STORE_OK);
    }
    store_close(s);
}

/* A load may take as long as it does: it is each page that must come in time. */
static void test_large_load_of_a_slow_etcd(void **state)
{
    (void)state;
    NEED_ETCD();
    store_many();
    use_members(true, false);
    set.load_ms = 2 * RELAY_SLOW_MS;
    store *s = open_good();
    relay_set_path("kv/range", RELAY_SLOW, 0, 1000);
    uint64_t began = etcd_now_ms();
    assert_int_equal(look_many(s).of[0], RECORDS);
    assert_true(etcd_now_ms() - began > set.load_ms);
    relay_set_path("kv/range", RELAY_LOSE, 1, 1000); /* the control */
    many m = { { 0, 0 } };
    assert_int_not_equal(store_load(s, "many/", count_many, &m, &why), STORE_OK);
    relay_set(RELAY_PASS, 0, 0);
    store_close(s);
}

/* Where a whole page does not come within an attempt, smaller ones do. */
static void test_large_load_over_a_narrow_network(void **state)
{
    (void)state;
    NEED_ETCD();
    store_many();
    use_members(true, false);
    set.request_ms = 250;
    set.load_ms = 2000;
    store *s = open_good();
    relay_set_path("kv/range", RELAY_NARROW, 0, 1000);
    assert_int_equal(look_many(s).of[0], RECORDS);
    relay_set(RELAY_PASS, 0, 0);
    store_close(s);
}

/* Cut off at any of its transactions: all or nothing, when it is opened again. */
static void test_large_commit_cut_off(void **state)
{
    (void)state;
    NEED_ETCD();
    unsigned before = 0, after = 0, at = 0;
    use_members(true, false);
    for (bool whole = false; !whole; at++) {
        set.commit_ms = 6000;
        store *s = open_good();
        assert_int_equal(put(s, "many/000", "0"), STORE_OK);
        assert_int_equal(put_many(s, "0"), STORE_OK);
        store_close(s);
        set.commit_ms = 300;
        s = open_good();
        relay_set(at % 2 ? RELAY_LOSE_ANSWER : RELAY_LOSE, at, 1000000);
        whole = put_many(s, "1") == STORE_OK;
        relay_set(RELAY_PASS, 0, 0);
        set.commit_ms = 6000;
        store_close(s);
        s = open_good();
        many m = look_many(s);
        assert_true((m.of[0] == 0 && m.of[1] == MANY - 1) || (m.of[0] == MANY - 1 && m.of[1] == 0));
        assert_true(!whole || m.of[1]);
        before += m.of[0] != 0;
        after += m.of[1] != 0;
        assert_int_equal(raw_number("redo", "version"), 0);
        assert_int_equal(raw_number("part/0000", "version"), 0);
        store_close(s);
    }
    assert_true(before >= 3 && after >= 3 && at < 30); /* both happened */
}

static void test_damaged_part(void **state)
{
    (void)state;
    NEED_ETCD();
    store_close(open_good());
    static const char *const parts[] = { "", "\x01", "AB", "12" };
    for (unsigned i = 0; i < 4; i++) {
        raw_put("part/0000", parts[i]);
        raw_put("redo", i == 3 ? "{\"parts\":-1}" : "{\"parts\":1}");
        assert_null(suite_open());
        assert_int_equal(why.code, STORE_E_CORRUPT);
    }
    raw_delete("redo");
    store *s = open_good(); /* the control: nothing decided that they are to be carried out */
    assert_int_equal(look(s, "").count, 0);
    store_close(s);
}

/* A reader sees a moment: not a large commit that is half carried out; and it changes nothing. */
static void test_reader(void **state)
{
    (void)state;
    NEED_ETCD();
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    set.reader = true;
    set.commit_ms = 1000;
    store *reader = open_good();
    assert_a(reader, "1");
    assert_int_equal(put(reader, "a", "2"), STORE_E_ARG);
    assert_int_equal(put(s, "a", "3"), STORE_OK); /* it still leads */
    assert_a(reader, "3");
    raw_put("redo", "{\"parts\":1}");
    seen all = { 0 };
    assert_int_equal(store_load(reader, "", see, &all, &why), STORE_E_LOCKED);
    raw_delete("redo");
    assert_a(reader, "3");
    store_close(reader);
    assert_int_equal(put(s, "a", "4"), STORE_OK);
    store_close(s);
}

/* -- Space -- */

/* Old revisions go, what is stored stays. */
static void test_compaction(void **state)
{
    (void)state;
    NEED_ETCD();
    set.compact_ms = 1;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    uint64_t old = raw_number("record/a", "mod_revision");
    assert_int_equal(put(s, "a", "2"), STORE_OK);
    etcd_gateway *g = open_gateway();
    bool gone = false;
    for (unsigned i = 0; !gone && i < 200; i++) {
        assert_int_equal(store_check(s, &why), STORE_OK);
        usleep(20000);
        etcd_answer a = etcd_ask(
            g, "kv/range",
            json_pack("{s:o, s:o}", "key", key_of("record/a"), "revision", etcd_number(old)), 5000);
        gone = a.fate == ETCD_REFUSED && strstr(a.text, "compacted");
        assert_true(gone || (a.fate == ETCD_DONE && i < 199)); /* the control: it was there */
        json_decref(a.json);
    }
    etcd_gateway_close(g);
    assert_true(gone);
    assert_string_equal(look(s, "").text, "a=2 ");
    store_close(s);
}

/* etcd applies the transaction that crosses its quota, and refuses it then: the commit was made.
   One that it did not apply was not; and where that cannot be read, it is not known. */
static void test_m141_refusals_are_resolved(void **state)
{
    (void)state;
    NEED_ETCD();
    use_members(true, false);
    store *s = open_good();
    relay_set(RELAY_DO_AND_REFUSE, 0, 1);
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    assert_int_equal(relay.times, 0);
    relay_set(RELAY_REFUSE, 0, 1);
    assert_int_equal(put(s, "a", "2"), STORE_E_FULL);
    assert_non_null(strstr(why.text, "space"));
    assert_a(s, "1");
    assert_int_equal(put(s, "a", "3"), STORE_OK);
    assert_a(s, "3");
    raw_put("commit", "theirs");
    relay_set(RELAY_REFUSE, 0, 1);
    assert_int_equal(put(s, "a", "4"), STORE_E_IO);
    assert_non_null(strstr(why.text, "unknown"));
    assert_int_equal(put(s, "a", "5"), STORE_E_IO);
    store_close(s);
}

/* etcd's quota is used up: nothing is changed, and that is known. */
static void test_no_space(void **state)
{
    (void)state;
    NEED_ETCD();
    static char large[1 << 20];
    etcd_server small = { 0 };
    assert_true(etcd_server_start(&small, "4000000"));
    snprintf(where, sizeof where, "etcd://127.0.0.1:%u", small.port);
    store *s = open_good();
    store_error rc = STORE_OK;
    char key[16];
    unsigned n = 0;
    for (; rc == STORE_OK && n < 20; n++) {
        snprintf(key, sizeof key, "%u", n);
        store_change c[] = { { key, large, sizeof large }, { "last", key, strlen(key) } };
        rc = store_commit(s, c, 2, &why);
    }
    assert_int_equal(rc, STORE_E_FULL);
    assert_non_null(strstr(why.text, "space"));
    seen all = look(s, "");
    assert_int_equal(all.count, n);
    snprintf(key, sizeof key, "last=%u ", n - 2);
    assert_string_equal(all.text, key);
    assert_int_equal(put(s, "0", NULL), STORE_E_FULL); /* and not STORE_E_IO */
    store_close(s);
    etcd_server_stop(&small);
}

static int end_all(void **state)
{
    (void)state;
    etcd_server_stop(&server);
    return 0;
}

static int begin_all(void **state)
{
    (void)state;
    installed = etcd_is_installed();
    if (!installed) {
        fprintf(stderr, "etcd is not installed (Debian: etcd-server): its tests are skipped\n");
        return 0;
    }
    return etcd_server_start(&server, "0") && relay_start(server.port) ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup(test_##name, begin)

int main(void)
{
    const struct CMUnitTest all[] = {
        TEST(addresses),
        TEST(s159_needs_tls_beyond_this_machine),
        TEST(base64),
        TEST(suite_records_come_back),
        TEST(suite_loading_can_stop),
        TEST(suite_out_of_range),
        TEST(suite_killed),
        TEST(one_leader),
        TEST(standby),
        TEST(m148_standby_of_an_emptied_store),
        TEST(m140_lost_leadership),
        TEST(idle_leader_without_its_key),
        TEST(m140_late_attempt_to_lead),
        TEST(lease),
        TEST(foreign_and_newer),
        TEST(m141_unknown_fate_is_resolved),
        TEST(bad_answers_to_a_load),
        TEST(answer_without_the_records),
        TEST(hostile_answers_to_a_load),
        TEST(m141_hostile_answers_to_a_commit),
        TEST(m141_unknown_fate_ends_it),
        TEST(m140_late_requests),
        TEST(no_member),
        TEST(large_commit),
        TEST(large_commit_at_a_slow_etcd),
        TEST(large_load_of_a_slow_etcd),
        TEST(large_load_over_a_narrow_network),
        TEST(large_commit_cut_off),
        TEST(damaged_part),
        TEST(reader),
        TEST(compaction),
        TEST(m141_refusals_are_resolved),
        TEST(no_space),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(all, begin_all, end_all);
}
