/* Fuzz target: the log of leases, keys and refusals.  The first byte says which: any bytes as a
   log; or a log of some lines as it is written, then altered as the input says.  Whatever was
   altered before the last line is seen: what is taken is lines of the log, one after the other.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include "quiet.h"

#include "audit_internal.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 8, ROOM = 8192 };

/* *whole: where the last whole line ends. */
static const char *read_all(const char *text, size_t bytes, uint64_t *lines, off_t *whole)
{
    uint8_t first[AUDIT_HASH_BYTES] = { 0 }, head[AUDIT_HASH_BYTES] = { 0 };
    uint64_t number = 0;
    bool torn = false;
    size_t last;
    const char *wrong;
    FILE *f = input_file(text, bytes);
    must(f != NULL);
    wrong = audit_follow(f, lines, first, head, &number, whole, &last, &torn);
    must((off_t)last <= *whole);
    must(*whole >= 0 && (size_t)*whole <= bytes + !bytes && (wrong || number >= *lines));
    must(!wrong || *lines);
    fclose(f);
    return wrong;
}

/* Some lines, as audit_write() makes them. */
static size_t write_lines(input *in, char out[ROOM])
{
    static const char *const what[] = { "lease.created", "key.refused", "audit.lost", "\"\\\n" };
    audit a = { .program = "fuzz" };
    size_t bytes = 0;
    for (unsigned n = 2 + next(in) % (LINES_MAX - 1); n; n--) {
        audit_field fields[] = { { "tenant", what[next(in) % 4], 0 }, { "lines", NULL, next(in) } };
        char line[AUDIT_LINE_BYTES];
        size_t len = audit_compose(&a, what[next(in) % 4], fields, 2, line);
        must(len == strlen(line) && bytes + len + 1 < ROOM);
        memcpy(out + bytes, line, len);
        audit_hash(line, len, a.head);
        a.number++;
        bytes += len;
        out[bytes++] = '\n';
    }
    return bytes;
}

/* A byte becomes another, or some go, or come twice. */
static size_t alter(input *in, char text[2 * ROOM], size_t bytes)
{
    uint8_t how = next(in);
    size_t at = (next(in) | (size_t)next(in) << 8) % bytes, len = 1 + next(in) % 64u;
    len = len < bytes - at ? len : bytes - at;
    if (how % 4 < 2) {
        text[at] = (char)(text[at] ^ 1 << how / 4 % 8);
    } else if (how % 4 == 2) {
        memmove(text + at, text + at + len, bytes - at - len);
        bytes -= len;
    } else if (bytes + len < (size_t)2 * ROOM) {
        memmove(text + at + len, text + at, bytes - at);
        bytes += len;
    }
    return bytes;
}

static void check_chain(input *in)
{
    static char was[ROOM], is[2 * ROOM];
    size_t bytes = write_lines(in, was), now = bytes, last;
    uint64_t lines = 0;
    off_t whole = 0;
    const char *there;
    memcpy(is, was, bytes);
    must(!read_all(is, now, &lines, &whole) && (size_t)whole == bytes && lines >= 2);
    for (unsigned n = 0; in->left && n < 8 && now > 1; n++)
        now = alter(in, is, now);
    if (read_all(is, now, &lines, &whole) || lines < 2)
        return;
    for (last = (size_t)whole - 1; is[last - 1] != '\n';)
        last--; /* the last line: nothing confirms it yet */
    there = memmem(was, bytes, is, last);
    must(there && (there == was || there[-1] == '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    uint64_t lines = 0;
    off_t whole = 0;
    must(sodium_init() >= 0);
    if (next(&in) & 1)
        check_chain(&in);
    else
        (void)read_all((const char *)in.at, in.left, &lines, &whole);
    return 0;
}
