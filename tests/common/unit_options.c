/* unit_options.c - the table of options: command line, file, help, list; verbs; hostile input
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "options.h"
#include "log.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool flag, other;
    uint64_t slot, size, time, wait;
    double real;
    const char *text, *name;
    unsigned mode;
    option_list part, plain;
} set;

static const option_row shared[] = {
    { "text", "TEXT", "a text", OPTION_TEXT, &set.text, 1, 8 },
    { "mode", "one|two|three", "a choice", OPTION_CHOICE, &set.mode, 0, 0 },
};
static const option_row rows[] = {
    { "flag", NULL, "a flag", OPTION_FLAG, &set.flag, 0, 0 },
    { "slot", "N", "a number", OPTION_NUMBER, &set.slot, 1, 100 },
    { "size", "SIZE", "a size", OPTION_SIZE, &set.size, 1, 1 << 20 },
    { "for", "TIME", "a time", OPTION_SECONDS, &set.time, 1, 86400 },
    { "wait", "[S]", "a time that may be left out", OPTION_NUMBER, &set.wait, 0, 60 },
    { "real", "X", "a real number", OPTION_REAL, &set.real, 500, 1500 },
    { "name", "FILE", "a file", OPTION_TEXT, &set.name, 0, 0 },
    { "part", "N=KIND[,KEY=VALUE]...", "a list", OPTION_LIST, &set.part, 1, 0 },
    { "plain", "TEXT", "a list", OPTION_LIST, &set.plain, 0, 0 },
};
static const option_verb verbs[] = {
    { .name = "show", .words = "[WORD]", .brief = "shows something", .most = 1 },
    { .name = "lease create",
      .words = "A B",
      .brief = "creates something",
      .about = "Creates something.",
      .least = 2,
      .most = 3,
      .rows = { OPTION_ROWS(rows), OPTION_ROWS(shared) } },
    { .name = "lease end", .words = "", .brief = "ends something", .tail = "Its own tail.\n" },
};
static const option_verbs head_group = { "First", verbs, 1 }, tail_group = { NULL, verbs + 1, 2 };
static const option_verbs *const groups[] = { &head_group, &tail_group };
static const char *const headings[] = { "slot", "Slots", "quiet", "All", NULL };
static const option_program plain = {
    "test", "tests options", "1.2", rows, sizeof rows / sizeof *rows, "The tail.\n", NULL,
    0,      headings
};
static const option_program with_verbs = { "test",        "tests options", "1.2", NULL, 0,
                                           "The tail.\n", groups,          2,     NULL };

static int usual[3];
static FILE *caught[3]; /* standard output, standard error */
static char text[65536];
static option_call call;
static char *argv[64];

static int set_up(void **state)
{
    (void)state;
    memset(&set, 0, sizeof set);
    memset(&call, 0, sizeof call);
    (void)fflush(stdout);
    for (int fd = 1; fd <= 2; fd++) {
        caught[fd] = tmpfile();
        usual[fd] = dup(fd);
        assert_true(caught[fd] && usual[fd] >= 0 && dup2(fileno(caught[fd]), fd) >= 0);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)fflush(stdout);
    for (int fd = 1; fd <= 2; fd++) {
        (void)dup2(usual[fd], fd);
        close(usual[fd]);
        fclose(caught[fd]);
    }
    return 0;
}

/* What was written to a descriptor, up to now. */
static const char *wrote(int fd)
{
    size_t n;
    (void)fflush(stdout);
    rewind(caught[fd]);
    n = fread(text, 1, sizeof text - 1, caught[fd]);
    text[n] = '\0';
    rewind(caught[fd]);
    assert_int_equal(ftruncate(fileno(caught[fd]), 0), 0);
    return text;
}

static int parse_list(const option_program *p, va_list words)
{
    int argc = 0;
    char *word = NULL;
    argv[argc++] = (char *)(uintptr_t) "test";
    while ((word = va_arg(words, char *)) != NULL)
        argv[argc++] = word;
    argv[argc] = NULL;
    return options_parse(p, argc, argv, &call);
}

static int parse(const char *first, ...)
{
    va_list words;
    int rc;
    (void)first;
    va_start(words, first);
    rc = parse_list(&plain, words);
    va_end(words);
    return rc;
}

static int verb(const char *first, ...)
{
    va_list words;
    int rc;
    (void)first;
    va_start(words, first);
    rc = parse_list(&with_verbs, words);
    va_end(words);
    return rc;
}

static void says(const char *what)
{
    if (!strstr(wrote(2), what))
        fail_msg("not '%s' but '%s'", what, text);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse("", "--slot=7", "--size", "64K", "--for", "2h", "--real=1.25", "--flag",
                           "--name", "", NULL),
                     OPTIONS_GO);
    assert_int_equal(set.slot, 7);
    assert_int_equal(set.size, 65536);
    assert_int_equal(set.time, 7200);
    assert_true(set.real > 1.24 && set.real < 1.26 && set.flag);
    assert_string_equal(set.name, "");
    assert_true(options_given(&set.slot) && options_given(&set.flag));
    assert_false(options_given(&set.wait)); /* control */
    assert_int_equal(parse("", "--flag=no", "--slot", "1", "--slot=9", NULL), OPTIONS_GO);
    assert_int_equal(set.slot, 9); /* the last one counts */
    assert_false(set.flag || options_given(&set.size));
    assert_string_equal(wrote(2), "");
}

static void test_values_refused(void **state)
{
    static const char *const bad[] = {
        "--slot=0",
        "--slot=101",
        "--slot=",
        "--slot=1x",
        "--slot=-1",
        "--slot= 1",
        "--slot=99999999999999999999",
        "--size=0",
        "--size=2M",
        "--size=1KK",
        "--for=0",
        "--for=2d",
        "--for=1y",
        "--for=h",
        "--real=0.4",
        "--real=1.6",
        "--real=nan",
        "--real=1x",
        "--flag=1",
        "--flag=maybe",
        "--wait=61",
        "--slot=\x1b[2J",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char copy[64];
        snprintf(copy, sizeof copy, "%s", bad[i]);
        if (parse("", copy, NULL) != OPTIONS_WRONG)
            fail_msg("%s is taken", bad[i]);
        says("must be ");
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        assert_null(strchr(text, '\x1b'));
    }
    assert_int_equal(verb("", "lease", "create", "a", "b", "--text", "123456789", NULL),
                     OPTIONS_WRONG);
    says("test lease create: --text: must be at most 8 characters; see test lease create --help");
    assert_int_equal(verb("", "lease", "create", "a", "b", "--text=", NULL), OPTIONS_WRONG);
    says("--text: must not be empty");
    assert_int_equal(verb("", "lease", "create", "a", "b", "--mode=four", NULL), OPTIONS_WRONG);
    says("--mode: must be one of one|two|three, not 'four'");
    assert_int_equal(parse("", "--slot", NULL), OPTIONS_WRONG);
    says("test: --slot: requires a value; see test --help");
}

static void test_left_out(void **state)
{
    (void)state;
    set.wait = 99;
    assert_int_equal(parse("", "--wait", "--flag", NULL), OPTIONS_GO);
    assert_true(options_given(&set.wait) && set.wait == 99 && set.flag);
    assert_int_equal(parse("", "--wait", "5", NULL), OPTIONS_GO);
    assert_int_equal(set.wait, 5);
    assert_int_equal(parse("", "--wait=6", NULL), OPTIONS_GO);
    assert_int_equal(set.wait, 6);
    assert_int_equal(verb("", "lease", "create", "--wait", "a", "b", NULL), OPTIONS_GO);
    assert_int_equal(call.count, 2);
    assert_string_equal(call.words[0], "a");
}

static void test_suggestions(void **state)
{
    (void)state;
    assert_int_equal(parse("", "--slto", "1", NULL), OPTIONS_WRONG);
    says("test: unknown option --slto: did you mean --slot? See test --help\n");
    assert_int_equal(parse("", "--slto=1", NULL), OPTIONS_WRONG);
    says("unknown option --slto: did you mean --slot?");
    assert_int_equal(parse("", "-slot", NULL), OPTIONS_WRONG);
    says("unknown option -slot: did you mean --slot?");
    assert_int_equal(parse("", "-x", NULL), OPTIONS_WRONG);
    says("test: unknown option -x; see test --help\n");
    assert_int_equal(parse("", "--elephant", NULL), OPTIONS_WRONG);
    says("test: unknown option --elephant; see test --help\n");
    assert_int_equal(parse("", "--verbos", NULL), OPTIONS_WRONG);
    says("did you mean --verbose?");
    assert_int_equal(parse("", "--verison", NULL), OPTIONS_WRONG);
    says("test: unknown option --verison: did you mean --version? See test --help\n");
    assert_int_equal(parse("", "--hel", NULL), OPTIONS_WRONG);
    says("did you mean --help?");
    assert_int_equal(verb("", "show", "--versio", NULL), OPTIONS_WRONG);
    says("test show: unknown option --versio: did you mean --version? See test show --help\n");
    assert_int_equal(verb("", "--elephant", NULL), OPTIONS_WRONG);
    says("test: unknown option --elephant; see test --help\n");
    assert_int_equal(verb("", "-x", NULL), OPTIONS_WRONG);
    says("test: unknown option -x; see test --help\n");
    assert_int_equal(verb("", "-v", "--versio=3", NULL), OPTIONS_WRONG);
    says("test: unknown option --versio: did you mean --version? See test --help\n");
    assert_int_equal(verb("", "--config", "file", NULL), OPTIONS_WRONG);
    says("no command 'file'");
    assert_int_equal(verb("", "--config=file", NULL), OPTIONS_WRONG);
    says("test: unknown option --config; see test --help\n");
    assert_int_equal(verb("", "--log", NULL), OPTIONS_WRONG);
    says("test: --log: requires a value; see test --help\n");
    assert_int_equal(verb("", "--name=x", NULL), OPTIONS_WRONG); /* a command has it */
    says("usage: test COMMAND");
    assert_int_equal(verb("", "-v", "--log", "text", NULL), OPTIONS_WRONG);
    says("usage: test COMMAND"); /* nothing else is wrong */
    assert_int_equal(verb("", "lease", "craete", NULL), OPTIONS_WRONG);
    says("test: no command 'lease craete': did you mean 'lease create'? See test --help\n");
    assert_int_equal(verb("", "shwo", NULL), OPTIONS_WRONG);
    says("test: no command 'shwo': did you mean 'show'?");
    assert_int_equal(verb("", "lese", NULL), OPTIONS_WRONG);
    says("test: no command 'lese': did you mean 'lease'?");
    assert_int_equal(verb("", "lese", "create", "a", NULL), OPTIONS_WRONG);
    says("test: no command 'lese': did you mean 'lease create'?");
    assert_int_equal(verb("", "create", "a", NULL), OPTIONS_WRONG);
    says("test: no command 'create': did you mean 'lease create'?");
    assert_int_equal(verb("", "lease", "show", NULL), OPTIONS_WRONG);
    says("test: no command 'lease show': did you mean 'show [WORD]'?");
    assert_int_equal(verb("", "lease", "elephant", NULL), OPTIONS_WRONG);
    says("test: no command 'lease elephant': its commands are create, end; see test --help\n");
    assert_int_equal(verb("", "elephant", NULL), OPTIONS_WRONG);
    says("test: no command 'elephant'; see test --help\n");
    assert_int_equal(verb("", "lease", "create", "--mod", "one", NULL), OPTIONS_WRONG);
    says("did you mean --mode? See test lease create --help");
    assert_int_equal(verb("", "show", "--mode", "one", NULL), OPTIONS_WRONG);
    says("unknown option --mode"); /* another verb's */
    assert_int_equal(parse("", "--\x1b[2J\n", NULL), OPTIONS_WRONG);
    says("unknown option --?[2J?;");
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(verb("", "lease", "create", "a", "--flag", "-", "--", "--slot", NULL),
                     OPTIONS_GO);
    assert_ptr_equal(call.verb, &verbs[1]);
    assert_int_equal(call.count, 3);
    assert_string_equal(call.words[0], "a");
    assert_string_equal(call.words[1], "-");
    assert_string_equal(call.words[2], "--slot"); /* behind -- */
    assert_true(set.flag && !options_given(&set.slot));
    assert_int_equal(verb("", "lease", "create", "a", NULL), OPTIONS_WRONG);
    says("test lease create: A B is required; see test lease create --help\n");
    assert_int_equal(verb("", "lease", "create", "a", "b", "c", "d", NULL), OPTIONS_WRONG);
    says("d: one argument too many");
    assert_int_equal(verb("", "lease", "end", "a", NULL), OPTIONS_WRONG);
    says("a: unexpected argument");
    assert_int_equal(parse("", "word", NULL), OPTIONS_WRONG);
    says("word: unexpected argument");
    assert_int_equal(verb("", "lease", NULL), OPTIONS_WRONG);
    says("lease: one of its commands is required: create, end; see test --help");
    assert_int_equal(verb("", "show", NULL), OPTIONS_GO);
    assert_int_equal(call.count, 0);
}

static void test_levels(void **state)
{
    (void)state;
    assert_int_equal(parse("", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_INFO) && !log_shows(LOG_AT_DEBUG));
    assert_int_equal(parse("", "-v", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_DEBUG));
    assert_int_equal(parse("", "-q", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_NOTE) && !log_shows(LOG_AT_INFO));
    assert_int_equal(parse("", "-qq", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_WARNING) && !log_shows(LOG_AT_NOTE));
    assert_int_equal(parse("", "--quiet", "-q", "-qqqqqq", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_ERROR) && !log_shows(LOG_AT_WARNING));
    assert_int_equal(verb("", "-v", "--log", "json", "show", NULL), OPTIONS_GO);
    assert_true(log_shows(LOG_AT_DEBUG));
    log_error("e");
    says("\"program\":\"test show\",\"text\":\"e\"}\n");
}

static void test_status(void **state)
{
    (void)state;
    assert_int_equal(options_status(parse("", NULL)), PROGRAM_GO);
    assert_int_equal(options_status(parse("", "--help", NULL)), PROGRAM_GOOD);
    assert_int_equal(options_status(parse("", "--what", NULL)), PROGRAM_USAGE);
    assert_int_equal(options_status(OPTIONS_MEMORY), PROGRAM_SYSTEM);
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(parse("", "--what", "-h", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "usage: test [OPTIONS]\n\n  --flag "));
    assert_non_null(strstr(text, "\n\nSlots:\n  --slot N "));
    assert_non_null(strstr(text, "\n\nAll:\n  -q, --quiet "));
    assert_null(strstr(text, "\n\n  --s"));
    assert_non_null(strstr(text, "\n  -q, --quiet "));
    assert_non_null(strstr(text, "\n  --config FILE "));
    assert_non_null(strstr(text, "\n\nThe tail.\n"));
    assert_int_equal(parse("", "--version", NULL), OPTIONS_SHOWN);
    assert_string_equal(wrote(1), "test 1.2\n");
    assert_int_equal(verb("", "--help", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "\nFirst:\n  show [WORD] "));
    assert_non_null(strstr(text, "  lease create A B "));
    assert_int_equal(verb("", "lease", "create", "--help", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "usage: test lease create A B [OPTIONS]\n\nCreates something."
                                     "\n\n  --flag "));
    assert_non_null(strstr(text, "\n  --mode one|two|three "));
    assert_non_null(strstr(text, "\n\nThe tail.\n"));
    assert_null(strstr(text, "--config")); /* it has verbs */
    assert_int_equal(verb("", "help", "lease", "end", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "Its own tail.\n"));
    assert_int_equal(parse("", "-vh", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "usage: test [OPTIONS]\n"));
    assert_int_equal(verb("", "lease", "end", "-qhq", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "Its own tail.\n"));
    assert_int_equal(parse("", "-vhx", NULL), OPTIONS_WRONG);      /* control: no other letter */
    assert_int_equal(parse("", "--", "-vh", NULL), OPTIONS_WRONG); /* a word */
    assert_int_equal(verb("", "lease", "-h", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "usage: test lease create A B [OPTIONS]\n"
                                     "       test lease end [OPTIONS]\n"));
    assert_int_equal(verb("", NULL), OPTIONS_WRONG);
    assert_non_null(strstr(wrote(2), "usage: test COMMAND ...\n"));
    assert_int_equal(verb("", "show", "--", "--help", NULL), OPTIONS_GO); /* behind --: a word */
    assert_string_equal(wrote(1), "");
}

static void test_list(void **state)
{
    unsigned lines = 0;
    (void)state;
    assert_int_equal(verb("", "--help-options", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "verb\tlease create\tA B\tcreates something\n"
                                     "option\tlease create\t--flag\t\tflag\ta flag\n"));
    assert_non_null(
        strstr(text, "option\tlease create\t--mode\tone|two|three\tchoice\ta choice\n"));
    assert_non_null(strstr(text, "option\t*\t--quiet\t\tcount\t"));
    assert_null(strstr(text, "option\tshow\t--quiet"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        unsigned tabs = 0;
        for (const char *c = line; *c; c++)
            tabs += *c == '\t';
        assert_int_equal(tabs, line[0] == 'v' ? 3 : 5);
    }
    assert_int_equal(lines, 3 + 9 + 2 + 3 + 3);
    assert_int_equal(parse("", "--help-options", NULL), OPTIONS_SHOWN);
    assert_non_null(strstr(wrote(1), "option\t\t--config\tFILE\ttext\t"));
}

/* Parse a file of these bytes, then the words. */
static int parse_bytes(const char *bytes, size_t len, const char *word)
{
    char path[] = "/tmp/unit_options.XXXXXX", copy[64];
    int fd = mkstemp(path), rc;
    snprintf(copy, sizeof copy, "%s", word);
    assert_true(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
    rc = parse("", "--config", path, *copy ? copy : NULL, NULL);
    unlink(path);
    return rc;
}

static int parse_file(const char *bytes, const char *word)
{
    return parse_bytes(bytes, strlen(bytes), word);
}

static void test_file(void **state)
{
    static char longest[2000];
    (void)state;
    assert_int_equal(
        parse_file("# a comment\n\n slot = 3 \nflag=yes\nname = a b \nquiet = yes\n", ""),
        OPTIONS_GO);
    assert_true(set.slot == 3 && set.flag && !log_shows(LOG_AT_INFO));
    assert_string_equal(set.name, "a b");
    free((void *)(uintptr_t)set.name);
    assert_int_equal(parse_file("slot = 3", "--slot=4"), OPTIONS_GO);
    assert_int_equal(set.slot, 4); /* the command line goes before the file */
    assert_int_equal(parse_file("slto = 3\n", ""), OPTIONS_WRONG);
    says(" line 1: unknown option slto: did you mean slot? See test --help");
    assert_int_equal(parse_file("\nconfig = x\n", ""), OPTIONS_WRONG);
    says(" line 2: unknown option config");
    assert_int_equal(parse_file("slot 3\n", ""), OPTIONS_WRONG);
    says("slot 3: a line must be `name = value`");
    assert_int_equal(parse_file("\x1b]0;x\a = 3\n", ""), OPTIONS_WRONG);
    says("unknown option ?]0;x?");
    assert_int_equal(parse_bytes("slot = 3\0\n", 10, ""), OPTIONS_WRONG);
    says("the line is too long"); /* or has a 0 in it */
    memset(longest, 'a', sizeof longest - 1);
    assert_int_equal(parse_file(longest, ""), OPTIONS_WRONG);
    says("the line is too long");
    assert_int_equal(parse("", "--config", "/nowhere/at all", NULL), OPTIONS_WRONG);
    says("cannot read /nowhere/at all: No such file or directory");
}

static void free_parts(void)
{
    while (set.part.count)
        free((void *)(uintptr_t)set.part.text[--set.part.count]);
}

static void test_sections(void **state)
{
    static char longest[4000];
    (void)state;
    assert_int_equal(parse_file("slot = 3\npart = 1=a,b=c\n\n[part 2]\ndevice = disk\n # none\n"
                                "file = /x y\nfile=z\n[part 3 ]\nsize = 1G\n device = net \n"
                                "[ part 4]\ndevice=m",
                                "--part=5=a"),
                     OPTIONS_GO);
    assert_int_equal(set.slot, 3);
    assert_int_equal(set.part.count, 5);
    assert_string_equal(set.part.text[0], "1=a,b=c");
    assert_string_equal(set.part.text[1], "2=disk,file=/x y,file=z");
    assert_string_equal(set.part.text[2], "3=net,size=1G");
    assert_string_equal(set.part.text[3], "4=m");
    set.part.count--; /* the one of the command line */
    free_parts();
    static const struct {
        const char *file, *says;
    } bad[] = {
        { "[part 2]\nslot = 3\n", " line 1: part: `device = ...` is missing" },
        { "[part 2]\n[part 3]\ndevice = x\n", " line 1: part: `device = ...` is missing" },
        { "[part]\n", "a section must be `[name word]`" },
        { "[part 1 2]\n", "a section must be `[name word]`" },
        { "[part 1=2]\n", "a section must be `[name word]`" },
        { "[part 1\n", "a section must be `[name word]`" },
        { "[\n", "a section must be `[name word]`" },
        { "[slot 1]\n", "there is no such section" },
        { "[plain 1]\n", "there is no such section" },
        { "[]\n", "there is no such section" },
        { "[part 1]\ndevice\n", " line 2: device: a line must be" },
        { "[part 1]\na = b,c\n", "without a comma" },
        { "[part 1]\na =\n", "without a comma" },
        { "[part 1]\n= b\n", "without a comma" },
        { "[part 1]\ndevice = a\ndevice = b\n", " line 3: device: must be given once" },
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse_file(bad[i].file, ""), OPTIONS_WRONG);
        says(bad[i].says);
        free_parts();
    }
    memset(longest, 'a', sizeof longest - 1);
    for (unsigned i = 0; i < 5; i++)
        memcpy(longest + 800 * i, i ? "\nk=" : "[part 1]\n", i ? 3 : 9);
    for (char *c = longest + 9; c < longest + 800; c++)
        *c = *c == 'a' ? '\n' : *c;
    assert_int_equal(parse_file(longest, ""), OPTIONS_WRONG);
    says("the section is too long");
}

static void test_long_arguments(void **state)
{
    static char longest[100000];
    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(parse("", longest, NULL), OPTIONS_WRONG);
    assert_true(strlen(wrote(2)) < 1000);
    memcpy(longest, "--", 2);
    assert_int_equal(parse("", longest, NULL), OPTIONS_WRONG);
    assert_true(strlen(wrote(2)) < 1000);
    memcpy(longest, "--slot=", 7);
    assert_int_equal(parse("", longest, NULL), OPTIONS_WRONG);
    assert_true(strlen(wrote(2)) < 1000);
    assert_int_equal(verb("", longest + 10, longest + 10, NULL), OPTIONS_WRONG);
    assert_true(strlen(wrote(2)) < 1000);
    memcpy(longest, "--name=", 7);
    assert_int_equal(parse("", longest, NULL), OPTIONS_GO); /* control */
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values), TEST(values_refused), TEST(left_out), TEST(suggestions),
        TEST(words),  TEST(levels),         TEST(help),     TEST(status),
        TEST(list),   TEST(file),           TEST(sections), TEST(long_arguments),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
