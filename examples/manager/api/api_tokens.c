/* api_tokens.c - a file of tokens, with the rights of each
   SPDX-License-Identifier: MIT

   Kept are keyed hashes: tokens of any length compare in the same time, and no token stays in
   memory. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_tokens.h"
#include "log.h"

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

static void complain(const char *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void complain(const char *file, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_error("--tokens %s: %s", file, text);
}

static void hash_of(const api_tokens *t, const char *text, uint8_t out[API_TOKEN_HASH_BYTES])
{
    (void)crypto_generichash(out, API_TOKEN_HASH_BYTES, (const uint8_t *)text, strlen(text), t->key,
                             sizeof t->key);
}

static unsigned find(const api_tokens *t, const uint8_t hash[API_TOKEN_HASH_BYTES])
{
    unsigned found = t->count;
    for (unsigned i = 0; i < t->count; i++) {
        if (!sodium_memcmp(t->token[i].hash, hash, API_TOKEN_HASH_BYTES))
            found = i; /* and on: the time reveals nothing */
    }
    return found;
}

const char *api_role_name(unsigned role)
{
    return role == API_READ       ? "read"
           : role == API_TENANT   ? "tenant"
           : role == API_OPERATOR ? "operator"
                                  : "anonymous";
}

/* Days from 1970-01-01 to a date of the Gregorian calendar (Hinnant's days_from_civil). */
static int64_t days_of(int year, int month, int day)
{
    int y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* "2027-01-31", when it begins, or "2027-01-31T12:00:00Z".  False: neither. */
static bool read_time(const char *text, uint64_t *unix_s)
{
    static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
    static const int days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    size_t len = strlen(text);
    int n[6] = { 0 }, at = 0;
    if (len != 10 && len != sizeof form - 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        if (form[i] == 'd' ? !digit : text[i] != form[i])
            return false;
        if (digit)
            n[at] = n[at] * 10 + (text[i] - '0');
        else
            at++;
    }
    bool leap = n[0] % 4 == 0 && (n[0] % 100 || n[0] % 400 == 0);
    if (n[0] < 1970 || n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > days[n[1] - 1] ||
        (n[1] == 2 && n[2] == 29 && !leap) || n[3] > 23 || n[4] > 59 || n[5] > 59)
        return false;
    *unix_s =
        (uint64_t)(days_of(n[0], n[1], n[2]) * 86400) + (uint64_t)(n[3] * 3600 + n[4] * 60 + n[5]);
    return true;
}

/* One "name=ci" or "expires=2027-01-31" behind a token; NULL, or what is wrong with it. */
static const char *read_option(api_caller *c, const char *word)
{
    if (!strncmp(word, "name=", 5)) {
        if (!api_is_name(word + 5, API_TOKEN_NAME_BYTES - 1))
            return "name= is 1 to 32 letters, digits, '.', '_', '-'";
        memcpy(c->token, word + 5, strlen(word + 5) + 1);
        return NULL;
    }
    if (strncmp(word, "expires=", 8) != 0)
        return "write ROLE TENANT TOKEN [name=NAME] [expires=2027-01-31]";
    return read_time(word + 8, &c->expires_unix_s)
               ? NULL
               : "expires= is a date, 2027-01-31, or a time, 2027-01-31T12:00:00Z, in UTC";
}

static bool name_is_taken(const api_tokens *t, const char *name)
{
    for (unsigned i = 0; i < t->count; i++) {
        if (!strcmp(t->token[i].caller.token, name))
            return true;
    }
    return false;
}

/* One line; NULL, or what is wrong with it. */
static const char *read_line(api_tokens *t, char *line, unsigned number)
{
    char *save = NULL, *role = strtok_r(line, " \t\r\n", &save), *tenant, *text, *option;
    token *k = &t->token[t->count];
    const char *wrong = NULL;
    unsigned r = 0;
    if (!role || *role == '#')
        return NULL;
    tenant = strtok_r(NULL, " \t\r\n", &save);
    text = strtok_r(NULL, " \t\r\n", &save);
    if (!tenant || !text)
        return "write ROLE TENANT TOKEN [name=NAME] [expires=2027-01-31]";
    while (r < 3 && strcmp(role, api_role_name(1u << r)))
        r++;
    if (r == 3)
        return "the role is read, tenant or operator";
    if (1u << r == API_TENANT ? !api_is_name(tenant, CORE_NAME_BYTES - 1) : strcmp(tenant, "-"))
        return "the tenant must be a name for the role tenant, and - for other roles";
    if (strlen(text) < API_TOKEN_MIN || strlen(text) > API_TOKEN_MAX)
        return "a token has 16 to 256 characters; openssl rand -hex 32 makes one";
    if (t->count == API_TOKENS_MAX)
        return "there are more than 1,024 tokens";
    memset(k, 0, sizeof *k);
    snprintf(k->caller.token, sizeof k->caller.token, "line-%u", number);
    while (!wrong && (option = strtok_r(NULL, " \t\r\n", &save)) != NULL)
        wrong = read_option(&k->caller, option);
    hash_of(t, text, k->hash);
    if (!wrong && find(t, k->hash) != t->count)
        wrong = "the token is in the file twice";
    if (!wrong && name_is_taken(t, k->caller.token))
        wrong = "another token has this name; give each its own";
    k->caller.role = 1u << r;
    if (1u << r == API_TENANT)
        memcpy(k->caller.tenant, tenant, strlen(tenant) + 1);
    t->count += !wrong;
    return wrong;
}

bool api_tokens_lines(api_tokens *t, FILE *in, const char *file)
{
    char line[API_TOKEN_LINE_BYTES];
    unsigned number = 0;
    const char *wrong = NULL;
    while (!wrong && fgets(line, sizeof line, in)) {
        number++;
        wrong =
            !strchr(line, '\n') && !feof(in) ? "the line is too long" : read_line(t, line, number);
    }
    sodium_memzero(line, sizeof line);
    if (wrong)
        complain(file, "line %u: %s", number, wrong);
    else if (ferror(in))
        complain(file, "cannot be read: %s", strerror(errno));
    else if (!t->count)
        complain(file, "has no token; write a line: operator - TOKEN name=NAME");
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
        complain(file, "is not a file");
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
        good = api_tokens_lines(t, in, file);
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

api_caller api_tokens_find(const api_tokens *t, const char *authorization, uint64_t unix_s)
{
    static const api_caller nobody;
    api_caller found = nobody;
    uint8_t hash[API_TOKEN_HASH_BYTES];
    unsigned i;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7))
        return nobody;
    hash_of(t, authorization + 7 + strspn(authorization + 7, " "), hash);
    i = find(t, hash);
    if (i < t->count)
        found = t->token[i].caller;
    if (found.expires_unix_s && unix_s >= found.expires_unix_s) {
        found.role = 0;
        memset(found.tenant, 0, sizeof found.tenant);
    }
    return found;
}
