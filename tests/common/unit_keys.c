/* unit_keys.c - keys.h: settings, files of peers with every mistake reported, questions, reloading
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "directory_sync.h"
#include "keys_internal.h"

enum { PEERS = 4, KEY = DXPU_NOISE_KEY_BYTES };
static char folder[] = "/tmp/unit_keys.XXXXXX", peers_file[64], key_file[64], err_file[64];
static dxpu_noise_pair *peer[PEERS];
static char text[PEERS][DXPU_SODIUM_KEY_TEXT_BYTES];

/* ==== Rig ===================================================================================== */

static void write_peers(const char *content)
{
    FILE *f = fopen(peers_file, "w");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(peers_file, 0644), 0);
}

/* What was said on stderr since it was turned to the file. */
static int stderr_kept;
static void listen_begin(void)
{
    fflush(stderr);
    stderr_kept = dup(STDERR_FILENO);
    assert_non_null(freopen(err_file, "w", stderr));
}

static const char *listen_end(void)
{
    static char said[4096];
    FILE *f;
    size_t n;
    fflush(stderr);
    assert_true(dup2(stderr_kept, STDERR_FILENO) >= 0);
    close(stderr_kept);
    f = fopen(err_file, "r");
    assert_non_null(f);
    n = fread(said, 1, sizeof said - 1, f);
    said[n] = '\0';
    fclose(f);
    return said;
}

static bool wrong_use; /* of the last one that was opened */

static keys *open_with(const keys_settings *s, const char **said)
{
    keys *k;
    listen_begin();
    k = keys_open(s, &wrong_use);
    *said = listen_end();
    return k;
}

static keys *open_file(const char *content, const char **said)
{
    keys_settings s = { NULL, NULL, peers_file, false, false };
    write_peers(content);
    return open_with(&s, said);
}

static dxpu_udp_address address(const char *of)
{
    dxpu_udp_address a;
    assert_null(dxpu_udp_parse(of, &a));
    return a;
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(dxpu_sodium_init(), DXPU_OK);
    assert_non_null(mkdtemp(folder));
    snprintf(peers_file, sizeof peers_file, "%s/peers", folder);
    snprintf(key_file, sizeof key_file, "%s/key", folder);
    snprintf(err_file, sizeof err_file, "%s/err", folder);
    for (unsigned i = 0; i < PEERS; i++) {
        peer[i] = dxpu_sodium_key_new();
        assert_non_null(peer[i]);
        dxpu_sodium_key_print(peer[i]->public_key, text[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PEERS; i++)
        dxpu_sodium_key_free(peer[i]);
    unlink(peers_file);
    unlink(key_file);
    unlink(err_file);
    return rmdir(folder);
}

/* ==== Settings ================================================================================ */

static void test_s97_plain_goes_alone(void **state)
{
    keys_settings s = { NULL, NULL, NULL, true, false };
    const char *said;
    keys *k;
    (void)state;
    assert_null(keys_check(&s));
    k = open_with(&s, &said);
    assert_non_null(k);
    assert_non_null(strstr(said, "WARNING"));
    assert_true(keys_plain(k));
    assert_null(keys_own(k));
    keys_close(k);
    s.key = "x";
    assert_non_null(keys_check(&s));
    s.key = NULL;
    s.peer = "x";
    assert_non_null(keys_check(&s));
    s.peer = NULL;
    s.peers = "x";
    assert_non_null(keys_check(&s));
    s = (keys_settings){ NULL, NULL, NULL, false, true };
    assert_non_null(keys_check(&s));
    keys_close(NULL);
}

static void test_s97_plain_stays_on_this_machine(void **state)
{
    static const char *const here[] = { "127.0.0.1:1", "127.9.8.7:1,[::1]:2",
                                        "[::ffff:127.0.0.1]:5" };
    static const char *const beyond[] = {
        "*:4458",      "0.0.0.0:0",          "[::]:0", "10.0.0.1:4458", "127.0.0.1:1,128.0.0.1:1",
        "[fe80::1]:1", "[::ffff:10.0.0.1]:5"
    };
    keys_settings plain = { NULL, NULL, NULL, true, false }, network = plain, sealed = plain;
    const char *said;
    keys *k = open_with(&plain, &said);
    dxpu_udp_address near = address("127.0.0.1:9"), far = address("10.0.0.1:9"), at[2];
    unsigned count;
    (void)state;
    network.plain_network = true;
    sealed.plain = false;
    for (unsigned i = 0; i < sizeof here / sizeof here[0]; i++) {
        assert_null(dxpu_udp_parse_list(here[i], at, 2, &count));
        assert_null(keys_check_addresses(&plain, at, count));
    }
    for (unsigned i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        assert_null(dxpu_udp_parse_list(beyond[i], at, 2, &count));
        assert_ptr_equal(keys_check_addresses(&plain, at, count), keys_plain_address);
        assert_null(keys_check_addresses(&network, at, count));
        assert_null(keys_check_addresses(&sealed, at, count));
    }
    assert_true(keys_allow_address(k, &near));
    assert_false(keys_allow_address(k, &far));
    keys_close(k);
    k = open_with(&network, &said);
    assert_true(keys_allow_address(k, &far));
    keys_close(k);
    k = open_with(&sealed, &said);
    assert_true(keys_allow_address(k, &far));
    keys_close(k);
}

/* ==== Own key ================================================================================= */

static void test_s90_key_is_made_once(void **state)
{
    keys_settings s = { key_file, NULL, NULL, false, false };
    const char *said;
    uint8_t first[KEY];
    struct stat st;
    keys *k = open_with(&s, &said);
    (void)state;
    assert_non_null(k);
    memcpy(first, keys_own(k)->public_key, KEY);
    assert_non_null(strstr(said, dxpu_sodium_key_print(first, text[0])));
    assert_non_null(strstr(said, "new"));
    keys_close(k);
    assert_int_equal(stat(key_file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    k = open_with(&s, &said);
    assert_non_null(k);
    assert_null(strstr(said, "new"));
    assert_memory_equal(keys_own(k)->public_key, first, KEY);
    keys_close(k);
    assert_int_equal(chmod(key_file, 0644), 0);
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "chmod 600"));
    assert_true(wrong_use);
    s.key = "/nonexistent/key";
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "/nonexistent/key"));
    assert_false(wrong_use);
    dxpu_sodium_key_print(peer[0]->public_key, text[0]);
}

static void test_s90_key_of_a_run(void **state)
{
    keys_settings s = { NULL, NULL, NULL, false, false };
    const char *said;
    keys *k = open_with(&s, &said), *other;
    (void)state;
    assert_non_null(k);
    assert_non_null(strstr(said, "for this run only"));
    other = open_with(&s, &said);
    assert_memory_not_equal(keys_own(k)->public_key, keys_own(other)->public_key, KEY);
    assert_int_equal(keys_count(k, 0), 0);
    keys_close(k);
    keys_close(other);
}

/* ==== Peers =================================================================================== */

static void test_s91_peers_of_the_command_line(void **state)
{
    char list[2 * DXPU_SODIUM_KEY_TEXT_BYTES + 8];
    keys_settings s = { NULL, list, NULL, false, false };
    const char *said;
    keys_peer p;
    keys *k;
    (void)state;
    snprintf(list, sizeof list, "%s,%s", text[0], text[1]);
    k = open_with(&s, &said);
    assert_non_null(k);
    assert_true(keys_find(k, peer[1]->public_key, &p));
    assert_int_equal(p.may, KEYS_ALL);
    assert_false(keys_find(k, peer[2]->public_key, &p));
    assert_true(keys_allow(k, peer[0]->public_key, KEYS_FABRIC | KEYS_CONTROL, 77));
    assert_false(keys_allow(k, peer[2]->public_key, KEYS_FABRIC, 1));
    assert_int_equal(keys_count(k, KEYS_FABRIC), 2);
    keys_close(k);
    snprintf(list, sizeof list, "%s,%s", text[0], text[0]);
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "twice"));
    assert_true(wrong_use);
    static const char *const wrong[] = { "", "x", ",", "%s,", ",%s", "%.43s", "%.43s!" };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *at = strchr(wrong[i], '%');
        if (!at)
            snprintf(list, sizeof list, "%s", wrong[i]);
        else
            snprintf(list, sizeof list, "%.*s%.*s%s", (int)(at - wrong[i]), wrong[i],
                     at[1] == '.' ? 43 : 44, text[0], strchr(at, 's') + 1);
        assert_null(open_with(&s, &said));
        assert_non_null(strstr(said, "--peer: "));
    }
}

static void test_s91_lines(void **state)
{
    char content[1000], name[KEYS_TEXT_BYTES];
    const char *said;
    keys_peer p;
    keys *k;
    (void)state;
    snprintf(content, sizeof content,
             "# hosts\n\n  %s name=web7 may=fabric,control slots=1-4,7 # ours\n"
             "\t%s may=host\r\n%s at=127.0.0.1:4458,[::1]:0",
             text[0], text[1], text[2]);
    k = open_file(content, &said);
    assert_non_null(k);
    assert_true(keys_find(k, peer[0]->public_key, &p));
    assert_string_equal(p.name, "web7");
    assert_string_equal(keys_text(k, peer[0]->public_key, name), "web7");
    keys_text(k, peer[1]->public_key, name);
    assert_memory_equal(name, text[1], 12);
    assert_string_equal(name + 12, "...");
    for (uint16_t slot = 1; slot < 10; slot++)
        assert_int_equal(keys_allow(k, peer[0]->public_key, KEYS_FABRIC, slot),
                         slot <= 4 || slot == 7);
    assert_true(keys_allow(k, peer[0]->public_key, KEYS_CONTROL, 0));
    assert_false(keys_allow(k, peer[0]->public_key, KEYS_HOST, 0));
    assert_true(keys_allow(k, peer[1]->public_key, KEYS_HOST, 0));
    assert_false(keys_allow(k, peer[1]->public_key, KEYS_FABRIC, 0));
    assert_true(keys_allow(k, peer[2]->public_key, KEYS_FABRIC, 0xffff)); /* what is not said */
    assert_false(keys_allow(k, peer[2]->public_key, KEYS_CONTROL, 0));
    assert_int_equal(keys_count(k, KEYS_FABRIC), 2);
    keys_close(k);
}

/* The first slot of 8 that several keys may open. */
static unsigned shared(const char *first, const char *second)
{
    char content[400];
    const char *said;
    keys *k;
    unsigned slot;
    snprintf(content, sizeof content, "%s %s\n%s %s\n%s may=control\n", text[0], first, text[1],
             second, text[2]);
    k = open_file(content, &said);
    assert_non_null(k);
    slot = keys_shared_slot(k, 8);
    keys_close(k);
    return slot;
}

static void test_s176_shared_slots(void **state)
{
    (void)state;
    assert_int_equal(shared("", ""), 1);
    assert_int_equal(shared("slots=3", ""), 3);
    assert_int_equal(shared("slots=1-4,2-4", "slots=7,4-5"), 4);
    assert_int_equal(shared("slots=1-4,2-4", "slots=5-8"), 0);
    assert_int_equal(shared("slots=1-9", "slots=9"), 0); /* there is no slot 9 */
    assert_int_equal(shared("", "may=control"), 0);
}

static void test_s91_mistakes_are_reported(void **state)
{
    static const struct {
        const char *behind, *told;
    } wrong[] = {
        { "name", "name=" },
        { "nme=x", "no such word" },
        { "name=", "1 to 31" },
        { "name=12345678901234567890123456789012", "1 to 31" },
        { "name=\xc3\xa4", "ASCII" },
        { "may=", "fabric control host box" },
        { "may=all", "fabric" },
        { "may=fabric,x", "fabric" },
        { "slots=", "slots=" },
        { "slots=0", "1-4,7" },
        { "slots=4-1", "1-4,7" },
        { "slots=1-", "1-4,7" },
        { "slots=65536", "1-4,7" },
        { "slots=1,x", "1-4,7" },
        { "slots=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "16 ranges" },
        { "at=", "at=" },
        { "at=1.2.3.4:99999", "at=" },
    };
    char content[300], line[3000];
    const char *said;
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(content, sizeof content, "# first\n%s %s\n", text[0], wrong[i].behind);
        assert_null(open_file(content, &said));
        assert_non_null(strstr(said, wrong[i].told));
        assert_non_null(strstr(said, "peers:2: "));
    }
    assert_null(open_file("name=x\n", &said));
    assert_non_null(strstr(said, "peers:1: a line begins with a public key"));
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    assert_null(open_file(line, &said));
    assert_non_null(strstr(said, "too long"));
    snprintf(content, sizeof content, "%s\n%s\n", text[0], text[0]);
    assert_null(open_file(content, &said));
    assert_non_null(strstr(said, "twice"));
}

/* Whose is the name, asked by the owner of this key? */
static unsigned whose(keys *k, unsigned of, const char *name)
{
    char own[KEYS_NAME_MAX + 1];
    unsigned found = keys_name(k, peer[of]->public_key, name, own);
    assert_string_equal(own, of == 0 ? "web7" : of == 1 ? "web7-3" : "");
    return found;
}

static void test_m86_names_of_lines(void **state)
{
    static const struct {
        const char *name;
        unsigned of[3]; /* to the owner of web7, of web7-3, and of no name */
    } rows[] = {
        { "web7", { KEYS_NAME_OWN, KEYS_NAME_WRONG, KEYS_NAME_OTHER } },
        { "web7-2", { KEYS_NAME_OWN, KEYS_NAME_WRONG, KEYS_NAME_OTHER } },
        { "web7-64", { KEYS_NAME_OWN, KEYS_NAME_WRONG, KEYS_NAME_OTHER } },
        { "web7-3", { KEYS_NAME_WRONG, KEYS_NAME_OWN, KEYS_NAME_OTHER } },
        { "web7-3-2", { KEYS_NAME_WRONG, KEYS_NAME_OWN, KEYS_NAME_OTHER } },
        { "web7-1", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "web7-02", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "web7-65", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "web7-2x", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "web7-", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "-2", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "Web7", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "web", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "", { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
        { "a name of more characters than a line of peers takes",
          { KEYS_NAME_WRONG, KEYS_NAME_WRONG, KEYS_NAME_FREE } },
    };
    char content[300];
    const char *said;
    keys *k;
    (void)state;
    snprintf(content, sizeof content, "%s name=web7\n%s name=web7-3\n%s\n", text[0], text[1],
             text[2]);
    k = open_file(content, &said);
    assert_non_null(k);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (unsigned of = 0; of < 3; of++)
            assert_int_equal(whose(k, of, rows[i].name), rows[i].of[of]);
        assert_int_equal(whose(k, 3, rows[i].name), rows[i].of[2]); /* on no line */
    }
    snprintf(content, sizeof content, "%s\n%s\n", text[0], text[1]);
    write_peers(content);
    listen_begin();
    assert_int_equal(keys_reload(k), 0);
    (void)listen_end();
    assert_int_equal(whose(k, 2, "web7"), KEYS_NAME_FREE);
    keys_close(k);
}

/* S-91: of two keys with one name neither could be known by it. */
static void test_s91_a_name_is_given_once(void **state)
{
    char content[300];
    const char *said;
    (void)state;
    snprintf(content, sizeof content, "%s name=a\n%s name=b\n%s name=a\n", text[0], text[1],
             text[2]);
    assert_null(open_file(content, &said));
    assert_non_null(strstr(said, "name=a is given to two keys"));
    assert_true(wrong_use);
}

/* ==== Adding ================================================================================== */

static keys_peer to_add(unsigned of, const char *name, unsigned may)
{
    keys_peer p;
    memset(&p, 0, sizeof p);
    memcpy(p.key, peer[of]->public_key, KEY);
    snprintf(p.name, sizeof p.name, "%s", name);
    p.may = may;
    return p;
}

static int add_said(const char *file, const keys_peer *p, const char **said)
{
    int rc;
    listen_begin();
    rc = keys_add(file, p);
    *said = listen_end();
    return rc;
}

static const char *content_of(const char *file)
{
    static char content[1000];
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    content[fread(content, 1, sizeof content - 1, f)] = '\0';
    fclose(f);
    return content;
}

static void test_s144_a_line_is_added(void **state)
{
    keys_peer p = to_add(0, "web7", KEYS_HOST | KEYS_CONTROL);
    char want[400], link[80];
    const char *said;
    struct stat st;
    (void)state;
    unlink(peers_file);
    assert_int_equal(add_said(peers_file, NULL, &said), 0); /* it could be */
    assert_int_equal(access(peers_file, F_OK), -1);
    assert_int_equal(add_said(peers_file, &p, &said), 0);
    snprintf(want, sizeof want, "%s name=web7 may=control,host\n", text[0]);
    assert_string_equal(content_of(peers_file), want);
    assert_int_equal(stat(peers_file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    p = to_add(0, "other", KEYS_BOX); /* never twice */
    assert_int_equal(add_said(peers_file, &p, &said), 1);
    assert_string_equal(content_of(peers_file), want);
    snprintf(want, sizeof want, "# hosts\n%s", text[0]); /* without an end of the line */
    write_peers(want);
    assert_int_equal(chmod(peers_file, 0600), 0);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("peers", link), 0);
    p = to_add(1, "", KEYS_FABRIC);
    assert_int_equal(add_said(link, &p, &said), 0);
    snprintf(want, sizeof want, "# hosts\n%s\n%s may=fabric\n", text[0], text[1]);
    assert_string_equal(content_of(peers_file), want);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(peers_file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    unlink(link);
}

/* A line that a crash may undo is not reported as added, also when it is found there. */
static void test_s144_a_line_that_is_not_on_the_disk(void **state)
{
    keys_peer p = to_add(0, "web7", KEYS_HOST);
    char left[80];
    const char *said;
    (void)state;
    snprintf(left, sizeof left, "%s.new", peers_file);
    unlink(peers_file);
    assert_int_equal(symlink("/dev/null", left), 0); /* what is in the way is not written to */
    directory_sync_fails = true;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(add_said(peers_file, &p, &said), -1);
        assert_non_null(strstr(said, "a crash may undo it"));
        assert_non_null(strstr(content_of(peers_file), "name=web7"));
    }
    directory_sync_fails = false;
    assert_int_equal(add_said(peers_file, &p, &said), 1);
    assert_int_equal(access(left, F_OK), -1);
}

/* A file of another owner or mode keeps them; a change that fails leaves nothing beside it. */
static void test_s144_owner_and_mode(void **state)
{
    keys_peer p = to_add(1, "", KEYS_FABRIC);
    char left[80], content[300];
    const char *said;
    struct stat st;
    (void)state;
    snprintf(left, sizeof left, "%s.new", peers_file);
    snprintf(content, sizeof content, "%s\n", text[0]);
    write_peers(content);
    assert_int_equal(chmod(peers_file, 0604), 0);
    assert_int_equal(mkdir(left, 0700), 0);
    assert_int_equal(add_said(peers_file, &p, &said), -1);
    assert_string_equal(content_of(peers_file), content);
    assert_int_equal(rmdir(left), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(peers_file, 0, 2), 0);
    assert_int_equal(add_said(peers_file, &p, &said), 0);
    assert_int_equal(stat(peers_file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0604);
    assert_true(geteuid() != 0 || (st.st_uid == 0 && st.st_gid == 2));
}

/* In a directory that gives its group to new files. */
static void test_s144_group_of_another_than_the_directory(void **state)
{
    keys_peer p = to_add(1, "", KEYS_FABRIC);
    char content[300];
    const char *said;
    struct stat st, before;
    (void)state;
    assert_int_equal(stat(folder, &before), 0);
    if (geteuid() == 0) /* others cannot choose the group */
        assert_int_equal(chown(folder, 0, 2), 0);
    assert_int_equal(chmod(folder, 02755), 0);
    snprintf(content, sizeof content, "%s\n", text[0]);
    unlink(peers_file);
    write_peers(content);
    assert_int_equal(stat(peers_file, &st), 0);
    assert_true(geteuid() != 0 || st.st_gid == 2);
    assert_int_equal(chown(peers_file, (uid_t)-1, getegid()), 0);
    assert_int_equal(chmod(peers_file, 0640), 0);
    assert_int_equal(add_said(peers_file, &p, &said), 0);
    assert_int_equal(stat(peers_file, &st), 0);
    assert_true(st.st_gid == getegid() && (st.st_mode & 07777) == 0640);
    if (geteuid() == 0)
        assert_int_equal(chown(folder, before.st_uid, before.st_gid), 0);
    assert_int_equal(chmod(folder, before.st_mode & 07777), 0);
    unlink(peers_file);
}

/* All is as it was. */
static void assert_not_added(const keys_peer *p, const char *why)
{
    char before[1000];
    const char *said;
    snprintf(before, sizeof before, "%s", content_of(peers_file));
    assert_int_equal(add_said(peers_file, p, &said), -1);
    assert_non_null(strstr(said, why));
    assert_string_equal(content_of(peers_file), before);
}

static void test_s144_a_line_is_not_added(void **state)
{
    static const char *const names[] = { "a b", "x may=control", "a#b", "#", "a\tb", "a\nb" };
    keys_peer p = to_add(1, "web7", KEYS_FABRIC);
    char content[300], line[KEYS_LINE_BYTES];
    const char *said;
    (void)state;
    snprintf(content, sizeof content, "%s name=web7\n", text[0]);
    write_peers(content);
    assert_not_added(&p, "given to two keys");
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        p = to_add(1, names[i], KEYS_FABRIC);
        assert_false(keys_line(&p, line));
        assert_not_added(&p, "no place in a line");
    }
    p = to_add(1, "web8", KEYS_FABRIC);
    assert_true(keys_line(&p, line));
    assert_int_equal(chmod(peers_file, 0664), 0);
    assert_not_added(&p, "chmod go-w");
    assert_not_added(NULL, "chmod go-w");
    write_peers("nonsense\n");
    assert_not_added(&p, "peers:1: ");
    assert_int_equal(add_said("/nonexistent/peers", &p, &said), -1);
    assert_non_null(strstr(said, "cannot be written"));
    assert_int_equal(add_said(folder, &p, &said), -1);
    assert_non_null(strstr(said, "not a regular file"));
    write_peers(content); /* the control */
    assert_int_equal(add_said(peers_file, &p, &said), 0);
}

static void test_s91_only_its_owner_writes_the_file(void **state)
{
    keys_settings s = { NULL, NULL, peers_file, false, false };
    const char *said;
    keys *k = open_file("# nobody\n", &said);
    (void)state;
    assert_non_null(k);
    keys_close(k);
    assert_int_equal(chmod(peers_file, 0664), 0);
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "chmod go-w"));
    assert_true(wrong_use);
    s.peers = folder;
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "not a regular file"));
    s.peers = "/nonexistent/peers";
    assert_null(open_with(&s, &said));
    assert_non_null(strstr(said, "/nonexistent/peers: "));
    assert_false(wrong_use);
}

/* ==== Reloading =============================================================================== */

static void test_s96_reload(void **state)
{
    char content[300];
    const char *said;
    keys *k;
    keys_settings none = { NULL, text[0], NULL, false, false };
    (void)state;
    snprintf(content, sizeof content, "%s\n%s\n", text[0], text[1]);
    k = open_file(content, &said);
    assert_int_equal(keys_generation(k), 0);
    assert_true(keys_fresh(k, peer[0]->public_key, 100));
    snprintf(content, sizeof content, "%s\n%s\n", text[0], text[2]);
    write_peers(content);
    listen_begin();
    assert_int_equal(keys_reload(k), 0);
    assert_non_null(strstr(listen_end(), "2 public keys"));
    assert_int_equal(keys_generation(k), 1);
    assert_true(keys_allow(k, peer[2]->public_key, KEYS_FABRIC, 1));
    assert_false(keys_allow(k, peer[1]->public_key, KEYS_FABRIC, 1));
    assert_false(keys_fresh(k, peer[0]->public_key, 100)); /* it is not forgotten */
    write_peers("nonsense\n");
    listen_begin();
    assert_int_equal(keys_reload(k), -1);
    said = listen_end();
    assert_non_null(strstr(said, "peers:1: "));
    assert_non_null(strstr(said, "are unchanged"));
    assert_int_equal(keys_generation(k), 1);
    assert_true(keys_allow(k, peer[2]->public_key, KEYS_FABRIC, 1));
    keys_close(k);
    k = open_with(&none, &said);
    listen_begin();
    assert_int_equal(keys_reload(k), -1);
    assert_non_null(strstr(listen_end(), "no --peers"));
    keys_close(k);
}

/* ==== Timestamps ============================================================================== */

static void test_s93_timestamps_rise(void **state)
{
    keys_settings s = { NULL, text[0], NULL, false, false };
    const char *said;
    keys *k = open_with(&s, &said);
    uint64_t last = 0;
    (void)state;
    assert_true(keys_fresh(k, peer[0]->public_key, 5));
    assert_false(keys_fresh(k, peer[0]->public_key, 5));
    assert_false(keys_fresh(k, peer[0]->public_key, 4));
    assert_true(keys_fresh(k, peer[0]->public_key, 6));
    assert_true(keys_newest(k, peer[0]->public_key) == 6);
    assert_true(keys_newest(k, peer[1]->public_key) == 0);
    assert_true(keys_fresh(k, peer[1]->public_key, 5)); /* each has its own */
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t next = keys_wall_ns(k);
        assert_true(next > last);
        last = next;
    }
    k->wall_ns = UINT64_MAX / 2; /* as if the clock had gone back */
    assert_true(keys_wall_ns(k) == UINT64_MAX / 2 + 1);
    keys_close(k);
}

/* More keys than there is room for: the one that was heard of longest ago is forgotten. */
static void test_s93_timestamps_are_bounded(void **state)
{
    keys_settings s = { NULL, text[0], NULL, false, false };
    const char *said;
    keys *k = open_with(&s, &said);
    uint8_t key[KEY] = { 0 };
    (void)state;
    for (unsigned i = 0; i < KEYS_PEERS_MAX + 1; i++) {
        key[0] = (uint8_t)(i * 7); /* in no order */
        dxpu_put_be16(key + 1, i);
        assert_true(keys_fresh(k, key, 1000 + i));
        assert_true(keys_newest(k, key) == 1000 + i);
    }
    assert_int_equal(k->stamps_count, KEYS_PEERS_MAX);
    memset(key, 0, sizeof key);
    assert_true(keys_newest(k, key) == 0); /* the first */
    key[0] = 7;
    key[2] = 1;
    assert_true(keys_newest(k, key) == 1001); /* the second */
    keys_close(k);
}

/* Those of keys that are let in because a host names them make no room among the others. */
static void test_s93_timestamps_of_passing_keys(void **state)
{
    keys_settings s = { NULL, text[0], NULL, false, false };
    const char *said;
    keys *k = open_with(&s, &said);
    uint8_t key[KEY] = { 0 }, own[KEY] = { 9 };
    (void)state;
    assert_true(keys_fresh(k, own, 1));
    for (unsigned i = 0; i < KEYS_PEERS_MAX + 1; i++) {
        dxpu_put_be16(key + 1, i);
        assert_true(keys_fresh_passing(k, key, 1000 + i));
        assert_false(keys_fresh_passing(k, key, 1000 + i));
    }
    assert_int_equal(k->stamps_count, 1 + KEYS_PASSING_MAX);
    assert_false(keys_fresh(k, own, 1));
    for (unsigned i = 0; i < KEYS_PEERS_MAX; i++) { /* they go first */
        key[0] = 1;
        dxpu_put_be16(key + 1, i);
        assert_true(keys_fresh(k, key, 1000 + i));
        if (i == KEYS_PEERS_MAX - 2)
            assert_true(keys_newest(k, own) == 1);
    }
    keys_close(k);
}

/* ==== Which box =============================================================================== */

static void test_s94_key_of_a_box(void **state)
{
    dxpu_udp_address one = address("127.0.0.1:4458"), other = address("127.0.0.1:4459"),
                     six = address("[::1]:77"), both[2];
    char content[1000];
    uint8_t key[KEY];
    const char *said;
    keys *k;
    (void)state;
    both[0] = other;
    both[1] = one;
    snprintf(content, sizeof content, "%s at=127.0.0.1:4458\n%s at=[::1]:0\n%s\n%s may=control\n",
             text[0], text[1], text[2], text[3]);
    k = open_file(content, &said);
    assert_null(keys_box(k, &one, 1, key));
    assert_memory_equal(key, peer[0]->public_key, KEY);
    assert_null(keys_box(k, both, 2, key));
    assert_memory_equal(key, peer[0]->public_key, KEY);
    assert_null(keys_box(k, &six, 1, key)); /* port 0 is any */
    assert_memory_equal(key, peer[1]->public_key, KEY);
    assert_null(keys_box(k, &other, 1, key)); /* the only one that is nowhere */
    assert_memory_equal(key, peer[2]->public_key, KEY);
    keys_close(k);
    snprintf(content, sizeof content, "%s at=127.0.0.1:4458\n%s at=127.0.0.1:0\n", text[0],
             text[1]);
    k = open_file(content, &said);
    assert_non_null(strstr(keys_box(k, &one, 1, key), "several"));
    assert_null(keys_box(k, &other, 1, key));
    assert_memory_equal(key, peer[1]->public_key, KEY);
    assert_non_null(strstr(keys_box(k, &six, 1, key), "--peer KEY"));
    keys_close(k);
    snprintf(content, sizeof content, "%s\n%s\n", text[0], text[1]);
    k = open_file(content, &said);
    assert_non_null(strstr(keys_box(k, &one, 1, key), "at="));
    keys_close(k);
}

/* A thread that still reads may use all of them: nothing is freed or wiped. */
static void test_abandoned_keys_stay(void **state)
{
    static keys *k; /* to the end of the process, as there */
    const char *said;
    (void)state;
    k = open_file("", &said);
    assert_non_null(k);
    keys_abandon(k);
    keys_close(k);
    write_peers(text[0]);
    assert_int_equal(keys_read(k), 0);
    keys_take(k);
    assert_true(keys_allow(k, peer[0]->public_key, KEYS_FABRIC, 1));
    k->abandoned = false; /* the control: else the sanitizer would see this one leak */
    keys_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s176_shared_slots),
        cmocka_unit_test(test_s97_plain_goes_alone),
        cmocka_unit_test(test_s97_plain_stays_on_this_machine),
        cmocka_unit_test(test_s90_key_is_made_once),
        cmocka_unit_test(test_s90_key_of_a_run),
        cmocka_unit_test(test_s91_peers_of_the_command_line),
        cmocka_unit_test(test_s91_lines),
        cmocka_unit_test(test_s91_mistakes_are_reported),
        cmocka_unit_test(test_m86_names_of_lines),
        cmocka_unit_test(test_s91_a_name_is_given_once),
        cmocka_unit_test(test_s144_a_line_is_added),
        cmocka_unit_test(test_s144_a_line_that_is_not_on_the_disk),
        cmocka_unit_test(test_s144_owner_and_mode),
        cmocka_unit_test(test_s144_group_of_another_than_the_directory),
        cmocka_unit_test(test_s144_a_line_is_not_added),
        cmocka_unit_test(test_s91_only_its_owner_writes_the_file),
        cmocka_unit_test(test_s96_reload),
        cmocka_unit_test(test_s93_timestamps_rise),
        cmocka_unit_test(test_s93_timestamps_are_bounded),
        cmocka_unit_test(test_s93_timestamps_of_passing_keys),
        cmocka_unit_test(test_s94_key_of_a_box),
        cmocka_unit_test(test_abandoned_keys_stay),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
