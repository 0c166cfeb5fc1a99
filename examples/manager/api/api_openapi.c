/* api_openapi.c - spec/openapi.yaml, as it was when this was compiled
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdlib.h>
#include <string.h>

/* C11 cannot include a file's bytes; every assembler can. */
__asm__(".pushsection .rodata\n"
        "api_openapi_text:\n"
        "  .incbin \"spec/openapi.yaml\"\n"
        "api_openapi_end:\n"
        "  .byte 0\n"
        ".popsection\n");
extern const char api_openapi_text[], api_openapi_end[];

void api_get_openapi(api_conn *c)
{
    size_t bytes = (size_t)(api_openapi_end - api_openapi_text);
    char *text;
    if (!api_params(c, NULL, 0))
        return;
    text = malloc(bytes);
    if (text)
        memcpy(text, api_openapi_text, bytes);
    api_answer(c, 200, "application/yaml", text, bytes);
}
