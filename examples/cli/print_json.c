/* print_json.c - see print_json.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "print_json.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void print_json(json_t *document, size_t flags)
{
    bool terminal = isatty(STDOUT_FILENO);
    char *text = NULL, *at, *end;
    flags |= JSON_COMPACT | JSON_PRESERVE_ORDER | (terminal ? JSON_ENSURE_ASCII : 0);
    if (document)
        at = text = json_dumps(document, flags);
    if (!text)
        out_of_memory();
    while (terminal && (end = strchr(at, 0x7f)) != NULL) { /* a letter to jansson */
        printf("%.*s\\u007f", (int)(end - at), at);
        at = end + 1;
    }
    puts(at);
    free(text);
    json_decref(document);
}
