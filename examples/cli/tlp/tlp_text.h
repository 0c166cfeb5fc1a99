/* tlp_text.h - finds the bytes of a TLP in a line of text
   SPDX-License-Identifier: MIT

   A line may be a kernel message, a line of lspci, a row of a hex dump, or bare hex.  What counts:
     after a label     (tlp, header, headerlog, hdr) hex of any form, four bytes at least
     alone in a line   hex of any form, four bytes at least; a dump's offset 0 may stand before
   Other numbers in a line of text are not TLPs: logs are full of them (dumps of EEH, of a RAID
   controller's frames, of completion queue entries).
   Prefixes that a kernel prints behind the header ("E-E Prefixes:") are put where they belong, in
   front of it.  Rows of a configuration space dump ("10: 00 00 ...") and later rows of a longer
   dump are not TLPs. */
#ifndef DXPU_CLI_TLP_TEXT_H
#define DXPU_CLI_TLP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the longest TLP: what is longer is seen to be so. */
enum { TLP_TEXT_MAX_BYTES = 5120 };

typedef struct tlp_text {
    uint8_t bytes[TLP_TEXT_MAX_BYTES]; /* in PCIe wire order */
    size_t len;
    size_t prefix_bytes; /* of them, prefixes that the log shows apart */
    bool flit;           /* the log says that the header is one of flit mode */
    bool headerlog;      /* lspci's label: a register, that holds zeros while nothing happened */
} tlp_text;

/* True when `line` holds a TLP; then *out is filled.  O(length of the line). */
bool tlp_text_find(const char *line, tlp_text *out);

/* Does the line announce a dump, whose bare rows follow it ("dump error cqe")? */
bool tlp_text_begins_dump(const char *line);
/* Is there anything but hex numbers in the line? */
bool tlp_text_has_words(const char *line);

/* The first device that a line names, as it names it: "0000:00:1c.5" or "01:00.0".  False: none. */
enum { TLP_TEXT_DEVICE_BYTES = 20 };
bool tlp_text_device(const char *line, char out[TLP_TEXT_DEVICE_BYTES]);

/* Hex digits alone, any even number of them, into out[cap].  The number of bytes, or -1 when there
   is another character, an odd number of digits, or no room. */
long tlp_text_bytes(const char *hex, uint8_t *out, size_t cap);

#endif
