/* api_tokens.c - who may do what: a file of tokens
   SPDX-License-Identifier: MIT

   Kept are keyed hashes: tokens of any length compare in the same time, and no token stays in
   memory. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS_MAX = 1024, TOKEN_MIN = 16, TOKEN_MAX = 256, HASH_BYTES = 32, LINE_BYTES = 400 };

typedef struct token {
    uint8_t hash[HASH_BYTES];
    api_caller caller;
} token;

struct api_tokens {
    uint8_t key[crypto_generichash_KEYBYTES];
    unsigned count;
    token token[TOKENS_MAX];
};

static void complain(const char *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void complain(const char *file, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "dxpu-manager: --tokens %s: ", file);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void hash_of(const api_tokens *t, const char *text, uint8_t out[HASH_BYTES])
{
    (void)crypto_generichash(out, HASH_BYTES, (const uint8_t *)text, strlen(text), t->key,
                             sizeof t->key);
}

static unsigned find(const api_tokens *t, const uint8_t hash[HASH_BYTES])
{
    unsigned found = t->count;
    for (unsigned i = 0; i < t->count; i++) {
        if (!sodium_memcmp(t->token[i].hash, hash, HASH_BYTES))
            found = i; /* and on: the time tells nothing */
    }
    return found;
}

const char *api_role_name(unsigned role)
{
    return role == API_READ       ? "read"
           : role == API_TENANT   ? "tenant"
           : role == API_OPERATOR ? "operator"
                                  : "nobody";
}

/* One line; NULL, or what is wrong with it. */
static const char *read_line(api_tokens *t, char *line)
{
    char *save = NULL, *role = strtok_r(line, " \t\r\n", &save), *tenant, *text;
    token *k = &t->token[t->count];
    unsigned r = 0;
    if (!role || *role == '#')
        return NULL;
    tenant = strtok_r(NULL, " \t\r\n", &save);
    text = strtok_r(NULL, " \t\r\n", &save);
    if (!tenant || !text || strtok_r(NULL, " \t\r\n", &save))
        return "write ROLE TENANT TOKEN";
    while (r < 3 && strcmp(role, api_role_name(1u << r)))
        r++;
    if (r == 3)
        return "the role is read, tenant or operator";
    if (1u << r == API_TENANT ? !api_is_name(tenant, CORE_NAME_BYTES - 1) : strcmp(tenant, "-"))
        return "the tenant is a name for the role tenant, and - for the others";
    if (strlen(text) < TOKEN_MIN || strlen(text) > TOKEN_MAX)
        return "a token has 16 to 256 characters; openssl rand -hex 32 makes one";
    if (t->count == TOKENS_MAX)
        return "there are more than 1,024 tokens";
    hash_of(t, text, k->hash);
    if (find(t, k->hash) != t->count)
        return "the token stands there twice";
    k->caller.role = 1u << r;
    if (1u << r == API_TENANT)
        memcpy(k->caller.tenant, tenant, strlen(tenant) + 1);
    t->count++;
    return NULL;
}

static bool read_lines(api_tokens *t, FILE *in, const char *file)
{
    char line[LINE_BYTES];
    unsigned number = 0;
    const char *wrong = NULL;
    while (!wrong && fgets(line, sizeof line, in)) {
        number++;
        wrong = !strchr(line, '\n') && !feof(in) ? "the line is too long" : read_line(t, line);
    }
    sodium_memzero(line, sizeof line);
    if (wrong)
        complain(file, "line %u: %s", number, wrong);
    else if (ferror(in))
        complain(file, "cannot be read: %s", strerror(errno));
    else if (!t->count)
        complain(file, "has no token; write a line: operator - TOKEN");
    return !wrong && !ferror(in) && t->count;
}

/* A file that others may read has no secrets.  Root's may be read by a group: so systemd hands over
   credentials. */
static bool is_secret(const struct stat *st)
{
    return !(st->st_mode & 037) && (!(st->st_mode & 040) || st->st_uid == 0);
}

static FILE *open_secret(const char *file, bool *system)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    FILE *in;
    *system = fd < 0 ? errno != ENOENT : fstat(fd, &st) != 0;
    if (*system) {
        complain(file, "%s", strerror(errno));
    } else if (fd < 0) {
        complain(file, "%s; make the file of --tokens, mode 600", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        complain(file, "is no file");
    } else if (st.st_uid != geteuid() && st.st_uid != 0) {
        complain(file, "is another user's; chown it to the manager's");
    } else if (!is_secret(&st)) {
        complain(file, "others may read or write it; chmod 600 it, and change the tokens");
    } else if ((in = fdopen(fd, "r")) != NULL) {
        setvbuf(in, NULL, _IONBF, 0); /* no copy of tokens stays in a buffer */
        return in;
    } else {
        *system = true;
        complain(file, "%s", strerror(errno));
    }
    if (fd >= 0)
        (void)close(fd);
    return NULL;
}

api_tokens *api_tokens_read(const char *file, bool *system)
{
    api_tokens *t = calloc(1, sizeof *t);
    FILE *in = open_secret(file, system);
    bool good = false;
    if (!t || sodium_init() < 0) {
        *system = true;
        complain(file, "no memory or no random numbers for tokens");
    } else if (in) {
        randombytes_buf(t->key, sizeof t->key);
        good = read_lines(t, in, file);
        *system = ferror(in) != 0;
    }
    if (in)
        (void)fclose(in);
    if (good)
        return t;
    api_tokens_free(t);
    return NULL;
}

void api_tokens_free(api_tokens *t)
{
    if (t)
        sodium_memzero(t, sizeof *t);
    free(t);
}

api_caller api_tokens_find(const api_tokens *t, const char *authorization)
{
    static const api_caller nobody;
    uint8_t hash[HASH_BYTES];
    unsigned i;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7))
        return nobody;
    hash_of(t, authorization + 7 + strspn(authorization + 7, " "), hash);
    i = find(t, hash);
    return i < t->count ? t->token[i].caller : nobody;
}
