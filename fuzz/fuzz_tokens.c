/* Fuzz target: any bytes as the manager's file of tokens.  When it is taken, every token in it has
   the role and the tenant of its line, and no other one is accepted.
   libFuzzer: -max_len=2048 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <strings.h>

#include "input.h"
#include "quiet.h"

#include "api_requests.h"
#include "api_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Who holds this token, as found by how the manual page has lines: words between blanks. */
static void check_line(const api_tokens *t, char *line)
{
    char bearer[API_TOKEN_LINE_BYTES + 16], *save = NULL, *word[3], *option;
    const char *name = NULL;
    api_caller c;
    for (unsigned i = 0; i < 3; i++)
        word[i] = strtok_r(i ? NULL : line, " \t\r\n", &save);
    if (!word[0] || word[0][0] == '#')
        return;
    must(word[1] && word[2]);
    while ((option = strtok_r(NULL, " \t\r\n", &save)) != NULL) {
        must(!strncmp(option, "name=", 5) || !strncmp(option, "expires=", 8));
        if (*option == 'n')
            name = option + 5;
    }
    snprintf(bearer, sizeof bearer, "bEARER %s", word[2]);
    c = api_tokens_find(t, bearer, 0);
    must(name ? !strcmp(c.token, name) : !strncmp(c.token, "line-", 5));
    must(!api_tokens_find(t, bearer, UINT64_MAX).role == (c.expires_unix_s != 0));
    must(c.role && strcmp(api_role_name(c.role), word[0]) == 0);
    must(strcmp(c.role == API_TENANT ? c.tenant : "-", word[1]) == 0);
    strcat(bearer, "x");
    must(!api_tokens_find(t, bearer, 0).role || strlen(word[2]) < API_TOKEN_MAX);
    must(!api_tokens_find(t, word[2], 0).role || strncasecmp(word[2], "Bearer ", 7) == 0);
}

static void check_file(const api_tokens *t, FILE *in)
{
    char line[API_TOKEN_LINE_BYTES];
    must(t->count && t->count <= API_TOKENS_MAX);
    while (fgets(line, sizeof line, in))
        check_line(t, line);
    must(!api_tokens_find(t, NULL, 0).role && !api_tokens_find(t, "Bearer", 0).role);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static api_tokens t; /* as it is in the manager, but for the key */
    FILE *in = input_file(data, size);
    must(in != NULL && sodium_init() >= 0);
    memset(&t, 0, offsetof(api_tokens, token) + (t.count + 1) * sizeof t.token[0]);
    if (api_tokens_lines(&t, in, "tokens")) {
        rewind(in);
        check_file(&t, in);
    }
    fclose(in);
    return 0;
}
