/* tlp_command.c - dxpu tlp decode, dxpu tlp encode
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* getline */
#endif
#include "command.h"
#include "log.h"
#include "print_json.h"
#include "tlp_fields.h"
#include "tlp_json.h"
#include "tlp_line.h"
#include "tlp_text.h"

#include "dxpu.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- decode ---- */

typedef struct decode_run {
    bool json, strict;
    unsigned long decoded, refused, without;
    unsigned long unused;               /* lspci's HeaderLog registers that hold zeros */
    unsigned long line;                 /* of the stream; 0: the command line */
    bool dump;                          /* bare rows belong to the dump that the log announced */
    char device[TLP_TEXT_DEVICE_BYTES]; /* that the line, or lspci's text around it, is about */
} decode_run;

/* Where a TLP came from stands first in its line for people, last in its object. */
static void print_origin(const decode_run *run)
{
    if (run->line && *run->device)
        printf("%s: ", run->device);
}

static void set_origin(const decode_run *run, json_t *o, const char *input)
{
    if (!run->line)
        return;
    json_object_set_new(o, "line", json_integer((json_int_t)run->line));
    if (*run->device)
        json_object_set_new(o, "device", json_string(run->device));
    if (json_object_set_new(o, "input", json_string(input)) != 0)
        json_object_set_new(o, "input", json_string("(not UTF-8)"));
}

static void print_refused(decode_run *run, const char *error, const char *reason, const char *input)
{
    json_t *o;
    run->refused++;
    if (!run->json) {
        char *text = strdup(input);
        if (text)
            text_clean(text); /* a terminal obeys what it is sent */
        print_origin(run);
        printf("refused (%s) %s: %s\n", error, reason, text ? text : "(out of memory)");
        free(text);
        return;
    }
    o = tlp_json_refusal(error, reason, input);
    set_origin(run, o, input);
    print_json(o, JSON_ENSURE_ASCII);
}

/* A log has room for four dwords: the fourth is no part of a 3-dword header. */
static dxpu_bytes without_residue(dxpu_bytes in)
{
    dxpu_tlp_shape shape;
    if (dxpu_tlp_measure(in, &shape) == DXPU_OK && shape.header_dw == 3 &&
        in.len == (size_t)shape.prefix_dw * 4 + 16)
        in.len -= 4;
    return in;
}

static int decode_bytes(const decode_run *run, dxpu_bytes in, dxpu_tlp *t)
{
    int rc;
    if (!run->strict)
        return dxpu_tlp_decode_header(without_residue(in), t);
    rc = dxpu_tlp_decode(in, t);
    return rc == DXPU_OK ? dxpu_tlp_ecrc_check(in) : rc;
}

static bool all_zero(const uint8_t *p, size_t len)
{
    while (len && !p[len - 1])
        len--;
    return len == 0;
}

/* One line of text; false when it holds no TLP. */
static bool decode_text(decode_run *run, const char *line)
{
    static tlp_text text;
    dxpu_tlp t;
    int rc;
    json_t *o;
    if (!tlp_text_find(line, &text))
        return false;
    if (text.headerlog && all_zero(text.bytes, text.len)) {
        run->unused++; /* what every healthy device shows */
        return true;
    }
    if (text.flit) {
        print_refused(run, "flit", "tlp: a header in flit mode; only non-flit TLPs are known",
                      line);
        return true;
    }
    rc = decode_bytes(run, (dxpu_bytes){ text.bytes, text.len }, &t);
    if (rc != DXPU_OK) {
        print_refused(run, tlp_error(rc).text, dxpu_error_text(rc), line);
        return true;
    }
    run->decoded++;
    if (run->json) {
        o = tlp_json_from(&t, run->strict);
        set_origin(run, o, line);
        print_json(o, JSON_ENSURE_ASCII);
    } else {
        print_origin(run);
        tlp_line(stdout, &t);
        putchar('\n');
    }
    return true;
}

/* The device of a line is the one it names.  lspci names it in the first line of a paragraph, which
   is not indented; its registers follow in indented lines. */
static void find_device(decode_run *run, const char *line)
{
    char named[TLP_TEXT_DEVICE_BYTES];
    if (tlp_text_device(line, named))
        memcpy(run->device, named, sizeof named);
    else if (!isspace((unsigned char)*line))
        *run->device = '\0';
}

static void tell_unused(const decode_run *run)
{
    if (run->unused)
        log_note("nothing logged in %lu header log%s", run->unused, run->unused == 1 ? "" : "s");
}

/* One line of a stream: false when it holds no TLP, or is a row of a dump of something else. */
static bool decode_line(decode_run *run, const char *line)
{
    bool words = tlp_text_has_words(line);
    if (words)
        run->dump = tlp_text_begins_dump(line);
    return (words || !run->dump) && decode_text(run, line);
}

static bool read_lines(decode_run *run, FILE *in, const char *name)
{
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, in) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        run->line++;
        find_device(run, line);
        if (!decode_line(run, line))
            run->without++;
    }
    free(line);
    if (ferror(in))
        log_error("%s: %s", name, strerror(errno));
    return !ferror(in);
}

static int end_stream(const decode_run *run)
{
    tell_unused(run);
    if (run->decoded + run->refused + run->unused == 0) {
        log_error("no TLP in %lu lines", run->without);
        return EXIT_REFUSED;
    }
    if (run->without)
        log_note("skipped %lu lines without a TLP", run->without);
    return run->refused ? EXIT_REFUSED : EXIT_ALL;
}

/* An argument with a whole header in it is a line of its own; others are words of one line. */
static bool is_line(const char *argument)
{
    static tlp_text text;
    return tlp_text_find(argument, &text) && text.len >= 12;
}

/* Decode the words from argv[first] up to the next whole line; *next is where to go on. */
static bool decode_words(decode_run *run, int argc, char **argv, int first, int *next)
{
    size_t len = 0;
    char *line;
    bool found;
    int i = first;
    do
        len += strlen(argv[i++]) + 1;
    while (i < argc && !is_line(argv[i]));
    *next = i;
    line = malloc(len);
    if (!line)
        return false;
    for (len = 0, i = first; i < *next; i++) {
        size_t n = strlen(argv[i]);
        memcpy(line + len, argv[i], n);
        len += n;
        line[len++] = ' ';
    }
    line[len - 1] = '\0';
    found = decode_text(run, line);
    free(line);
    return found;
}

/* Could the argument be digits, or must it name a file, if anything? */
static bool is_hex(const char *argument)
{
    return argument[strspn(argument, "0123456789abcdefABCDEFxX:,- _")] == '\0';
}

/* All arguments name files: decode them one after the other.  -1: the first does not. */
static int decode_files(decode_run *run, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        FILE *in = is_hex(argv[i]) ? NULL : fopen(argv[i], "r");
        bool read;
        if (!in && i == 0)
            return -1;
        if (!in)
            return options_wrong("cannot open %s: %s", argv[i],
                                 is_hex(argv[i]) ? "not a file; decode digits by themselves"
                                                 : strerror(errno));
        run->line = 0;
        *run->device = '\0';
        read = read_lines(run, in, argv[i]);
        fclose(in);
        if (!read)
            return EXIT_USAGE;
    }
    return end_stream(run);
}

static int decode_arguments(decode_run *run, int argc, char **argv)
{
    int files = decode_files(run, argc, argv);
    if (files >= 0)
        return files;
    for (int i = 0, next; i < argc; i = next) {
        bool found;
        next = i + 1;
        if (is_line(argv[i]))
            found = decode_text(run, argv[i]);
        else
            found = decode_words(run, argc, argv, i, &next);
        if (!found)
            return options_wrong("no TLP in '%s', and no file of that name; give dwords of 8 hex "
                                 "digits, bytes of 2, a log line with \"TLP Header:\", or a file",
                                 argv[i]);
    }
    tell_unused(run);
    return run->refused ? EXIT_REFUSED : EXIT_ALL;
}

static struct {
    bool json, strict, dwords, bytes;
} set;

static int decode(const option_call *c)
{
    decode_run run = { .json = set.json, .strict = set.strict };
    if (c->count == 0 || (c->count == 1 && strcmp(c->words[0], "-") == 0))
        return read_lines(&run, stdin, "standard input") ? end_stream(&run) : EXIT_USAGE;
    return decode_arguments(&run, (int)c->count, c->words);
}

/* ---- encode ---- */

typedef struct encode_run {
    bool bytes;
    unsigned long encoded, refused;
} encode_run;

/* Where a refused line stands. */
typedef struct place {
    const char *file; /* NULL: the command line */
    unsigned long line;
} place;

static void complain(encode_run *run, place at, const char *what, const char *remedy)
{
    run->refused++;
    if (at.file)
        log_error("%s:%lu: %s%s%s", at.file, at.line, what, *remedy ? "; " : "", remedy);
    else
        log_error("%s%s%s", what, *remedy ? "; " : "", remedy);
}

/* The keys behind an error of the encoder. */
static const char *remedy_of(int error)
{
    static const struct {
        int error;
        const char *remedy;
    } rows[] = {
        { DXPU_E_TLP_RSVD, "change ep, message_dw or prefixes" },
        { DXPU_E_TLP_LENGTH, "change length_dw (and payload)" },
        { DXPU_E_TLP_BE, "change first_be or last_be" },
        { DXPU_E_TLP_4K, "change address or length_dw" },
        { DXPU_E_TLP_ADDR, "change address or dw" },
        { DXPU_E_TLP_ADDR64, "leave dw out, or change address" },
        { DXPU_E_TLP_TC, "set tc to 0" },
        { DXPU_E_TLP_ATTR, "set attr to []" },
        { DXPU_E_TLP_AT, "change at" },
        { DXPU_E_TLP_TH, "change th, ph or prefixes" },
        { DXPU_E_TLP_TAG, "change tag" },
        { DXPU_E_TLP_STATUS, "change status or type" },
        { DXPU_E_TLP_BYTE_COUNT, "change byte_count, lower_addr or length_dw" },
        { DXPU_E_TLP_RCB, "change byte_count, lower_addr or length_dw" },
        { DXPU_E_TLP_MSG_CODE, "change message_code" },
        { DXPU_E_TLP_MSG_ROUTE, "leave routing out, or change type or message" },
        { DXPU_E_TLP_PREFIX, "change prefixes" },
        { DXPU_E_TLP_PREFIX_ORDER, "change the order of prefixes" },
        { DXPU_E_TLP_PREFIX_COUNT, "shorten prefixes" },
        { DXPU_E_TLP_IDE, "take the IDE prefix out of prefixes" },
        { DXPU_E_TLP_OPERAND, "change length_dw or address" },
        { DXPU_E_TLP_REGISTER, "change register" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].error == error)
            return rows[i].remedy;
    return "";
}

static void print_hex(const encode_run *run, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%s%02x", i && (run->bytes || i % 4 == 0) ? " " : "", p[i]);
    putchar('\n');
}

static void encode_object(encode_run *run, json_t *object, place at)
{
    static tlp_json in;
    static uint8_t out[4 * DXPU_PREFIXES_MAX + DXPU_TLP_MAX_BYTES];
    size_t len = 0;
    int rc;
    if (!tlp_json_to(object, &in)) {
        complain(run, at, in.why, "");
        return;
    }
    rc = dxpu_tlp_encode(&in.tlp, out, sizeof out, &len);
    if (rc != DXPU_OK) {
        complain(run, at, dxpu_error_text(rc), remedy_of(rc));
        return;
    }
    if (in.tlp.td && !in.digest_given)
        dxpu_put_le32(out + len - 4, dxpu_tlp_ecrc((dxpu_bytes){ out, len }));
    run->encoded++;
    print_hex(run, out, len);
}

static void encode_text(encode_run *run, const char *text, place at)
{
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (object)
        encode_object(run, object, at);
    else
        complain(run, at, error.text, "give one JSON object a line, as decode --json prints it");
    json_decref(object);
}

static int encode_stream(encode_run *run, FILE *in, const char *name)
{
    char *line = NULL;
    size_t cap = 0;
    int status = EXIT_ALL;
    for (place at = { name, 1 }; getline(&line, &cap, in) >= 0; at.line++)
        if (line[strspn(line, " \t\r\n")])
            encode_text(run, line, at);
    free(line);
    if (ferror(in)) {
        log_error("%s: %s", name, strerror(errno));
        status = EXIT_USAGE;
    }
    return status;
}

static int encode_file(encode_run *run, const char *name)
{
    FILE *in = fopen(name, "r");
    int status;
    if (!in) {
        log_error("%s: %s", name, strerror(errno));
        return EXIT_USAGE;
    }
    status = encode_stream(run, in, name);
    fclose(in);
    return status;
}

static int encode_arguments(encode_run *run, int argc, char **argv)
{
    int status = argc ? EXIT_ALL : encode_stream(run, stdin, "standard input");
    for (int i = 0; i < argc && status == EXIT_ALL; i++) {
        if (argv[i][strspn(argv[i], " \t\n")] == '{')
            encode_text(run, argv[i], (place){ NULL, 0 });
        else if (strcmp(argv[i], "-") == 0)
            status = encode_stream(run, stdin, "standard input");
        else
            status = encode_file(run, argv[i]);
    }
    if (status != EXIT_ALL)
        return status;
    if (run->encoded + run->refused == 0)
        log_error("no JSON object in the input");
    return run->refused || !run->encoded ? EXIT_REFUSED : EXIT_ALL;
}

static int encode(const option_call *c)
{
    encode_run run = { 0 };
    if (set.bytes && set.dwords)
        return options_wrong("either --dwords or --bytes");
    run.bytes = set.bytes;
    return encode_arguments(&run, (int)c->count, c->words);
}

/* ---- the commands ---- */

static const option_row decode_rows[] = {
    { "json", NULL, "one JSON object a line; dxpu(1) lists the keys", OPTION_FLAG, &set.json, 0,
      0 },
    { "strict", NULL,
      "each input is one whole TLP and must keep every rule of PCIe, reserved bits included; "
      "without it only the header counts: what a 4-dword log holds behind a 3-dword header is "
      "ignored",
      OPTION_FLAG, &set.strict, 0, 0 },
};
static const option_row encode_rows[] = {
    { "dwords", NULL, "04000001 0000220f 01070000 (the default)", OPTION_FLAG, &set.dwords, 0, 0 },
    { "bytes", NULL, "04 00 00 01 00 00 22 0f 01 07 00 00", OPTION_FLAG, &set.bytes, 0, 0 },
};
static const char tail[] =
    "Exit status: 0 all done, 1 some refused or none found, 2 wrong usage.\n";

static const option_verb verbs[] = {
    { "tlp decode",
      "[HEX... | FILE... | -]",
      "decode TLPs of logs",
      "Prints one line for each TLP. HEX is what a log shows: dwords as the kernel and lspci print "
      "them (04000001 0000220f 01070000 9eece789, also with 0x), bytes (04 00 00 01 ... or "
      "04:00:00:01:...), one long string of digits, or a whole log line in quotes. FILE, or "
      "standard input ('-' or nothing), holds a TLP a line; lines without one are skipped. In "
      "a line of text only dwords behind a label count (TLP Header, HeaderLog, Header).",
      tail,
      0,
      UINT_MAX,
      { OPTION_ROWS(decode_rows), { NULL, 0 } },
      decode },
    { "tlp encode",
      "[OBJECT | FILE | -]...",
      "encode TLPs as hex",
      "Takes such objects as 'dxpu tlp decode --json' prints, one a line, from standard input, "
      "files or the command line, and prints the TLPs as hex. With \"td\": true and no digest it "
      "computes the ECRC.",
      tail,
      0,
      UINT_MAX,
      { OPTION_ROWS(encode_rows), { NULL, 0 } },
      encode },
};

const option_verbs tlp_verbs = { "TLPs in logs and captures", verbs, 2 };
