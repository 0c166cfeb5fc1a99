/* tlp_dump.c - decodes TLPs written in hexadecimal, one a line
   SPDX-License-Identifier: MIT

       echo '40000001 0000000f fee00000 00000041' | ./tlp_dump

   Reads standard input and ignores spaces.  Of a TLP that is cut off, as in a kernel's AER log, the
   header is decoded.  Exits with 1 if a line is not a TLP. */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include <ctype.h>
#include <stdio.h>

enum { LINE_BYTES = 3 * DXPU_TLP_MAX_BYTES };

static int digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the number of bytes in a line of hex digits; -1 if it has others, or too many. */
static int bytes_of(const char *line, uint8_t *out, size_t cap)
{
    size_t digits = 0;
    for (; *line; line++) {
        int value = digit(tolower((unsigned char)*line));
        if (isspace((unsigned char)*line))
            continue;
        if (value < 0 || digits / 2 == cap)
            return -1;
        if (digits % 2 == 0)
            out[digits / 2] = (uint8_t)(value << 4);
        else
            out[digits / 2] = (uint8_t)(out[digits / 2] | value);
        digits++;
    }
    return digits % 2 ? -1 : (int)(digits / 2);
}

static void print_bdf(const char *what, unsigned bdf)
{
    printf(" %s %02x:%02x.%x", what, DXPU_BDF_BUS(bdf), DXPU_BDF_DEV(bdf), DXPU_BDF_FN(bdf));
}

static void print_completion(const dxpu_tlp *t)
{
    printf(" %s", dxpu_status_name(t->status));
    print_bdf("from", t->completer);
    print_bdf("to", t->requester);
    printf(" tag 0x%02x, %u bytes left", t->tag, t->byte_count);
}

static void print_message(const dxpu_tlp *t)
{
    const char *name = dxpu_message_name(t->message_code);
    printf(" %s", name ? name : "unknown");
    print_bdf("from", t->requester);
    printf(" routed %s", dxpu_routing_name(dxpu_tlp_routing(t)));
}

static void print_request(const dxpu_tlp *t)
{
    print_bdf("from", t->requester);
    printf(" tag 0x%02x", t->tag);
    if (dxpu_tlp_routing(t) == DXPU_ROUTE_ID) { /* configuration */
        print_bdf("to", t->target);
        printf(" register 0x%03x", t->register_bytes);
    } else {
        printf(" to 0x%llx", (unsigned long long)t->address);
    }
    printf(" byte enables %x/%x", t->first_be, t->last_be);
}

static void print_tlp(const dxpu_tlp *t)
{
    size_t i;
    printf("%s %u dw", dxpu_tlp_type_name(t->type), t->length_dw);
    if (dxpu_tlp_class(t) == DXPU_COMPLETION)
        print_completion(t);
    else if (t->type == DXPU_TLP_MSG || t->type == DXPU_TLP_MSGD)
        print_message(t);
    else
        print_request(t);
    for (i = 0; i < t->payload.len; i++)
        printf("%s%02x", i ? " " : ": ", t->payload.ptr[i]);
}

/* Decodes one line; returns false if it is not a TLP. */
static bool dump(const char *line, unsigned number)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp t;
    int strict, rc, n = bytes_of(line, bytes, sizeof bytes);
    if (n == 0)
        return true;
    if (n < 0) {
        fprintf(stderr, "tlp_dump: line %u: not a TLP in hexadecimal\n", number);
        return false;
    }
    tlp.len = (size_t)n;
    strict = dxpu_tlp_decode(tlp, &t);
    rc = strict == DXPU_OK ? DXPU_OK : dxpu_tlp_decode_header(tlp, &t);
    if (rc != DXPU_OK) {
        fprintf(stderr, "tlp_dump: line %u: %s\n", number, dxpu_error_text(rc));
        return false;
    }
    print_tlp(&t);
    printf(strict == DXPU_OK ? "\n" : " (%s)\n", dxpu_error_text(strict));
    return true;
}

int main(void)
{
    static char line[LINE_BYTES];
    unsigned number = 0;
    bool good = true;
    while (fgets(line, sizeof line, stdin))
        good = dump(line, ++number) && good;
    if (ferror(stdin)) {
        perror("tlp_dump: standard input");
        return 1;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("tlp_dump: standard output");
        return 1;
    }
    return good ? 0 : 1;
}
