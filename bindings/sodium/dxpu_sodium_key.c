/* dxpu_sodium_key.c - identities: files, text, fingerprints; see dxpu_sodium.h
   SPDX-License-Identifier: MIT */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* O_NOFOLLOW, fchmod */
#endif
#include "dxpu_sodium.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A key file: a line that says what it is, and one of base64 (S-60). */
static const char header[] = "dxpu secret key 1\n";
enum { HEADER_BYTES = sizeof header - 1, KEY = DXPU_NOISE_KEY_BYTES };
enum { FILE_BYTES = HEADER_BYTES + DXPU_SODIUM_KEY_TEXT_BYTES }; /* with a newline, not a zero */

const char *dxpu_sodium_key_print(const uint8_t key[KEY], char text[DXPU_SODIUM_KEY_TEXT_BYTES])
{
    return sodium_bin2base64(text, DXPU_SODIUM_KEY_TEXT_BYTES, key, KEY,
                             sodium_base64_VARIANT_ORIGINAL);
}

bool dxpu_sodium_key_parse(const char *text, uint8_t key[KEY])
{
    char again[DXPU_SODIUM_KEY_TEXT_BYTES];
    uint8_t bytes[KEY];
    size_t len = 0;
    bool good = strlen(text) == DXPU_SODIUM_KEY_TEXT_BYTES - 1 &&
                sodium_base642bin(bytes, sizeof bytes, text, DXPU_SODIUM_KEY_TEXT_BYTES - 1, NULL,
                                  &len, NULL, sodium_base64_VARIANT_ORIGINAL) == 0 &&
                len == KEY;
    if (good) { /* libsodium takes some bytes beyond ASCII for letters */
        dxpu_sodium_key_print(bytes, again);
        good = sodium_memcmp(again, text, sizeof again) == 0;
        sodium_memzero(again, sizeof again);
    }
    if (good)
        memcpy(key, bytes, KEY);
    sodium_memzero(bytes, sizeof bytes);
    return good;
}

const char *dxpu_sodium_fingerprint(const uint8_t key[KEY],
                                    char text[DXPU_SODIUM_FINGERPRINT_BYTES])
{
    uint8_t hash[16];
    crypto_generichash(hash, sizeof hash, key, KEY, (const uint8_t *)"dxpu fingerprint 1", 18);
    for (unsigned i = 0; i < 8; i++)
        snprintf(text + 5 * i, 6, "%02x%02x%s", hash[2 * i], hash[2 * i + 1], i < 7 ? " " : "");
    return text;
}

dxpu_noise_pair *dxpu_sodium_key_new(void)
{
    dxpu_noise_pair *p = sodium_malloc(sizeof *p);
    if (p)
        dxpu_noise_pair_new(dxpu_sodium_primitives(), p);
    return p;
}

void dxpu_sodium_key_free(dxpu_noise_pair *p)
{
    sodium_free(p);
}

/* True when all of it was written and stands on the disk. */
static bool write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return fsync(fd) == 0;
}

/* The name of a new file is on the disk, too. */
static bool sync_name(const char *file)
{
    char path[4096];
    const char *slash = strrchr(file, '/');
    int len = slash && slash != file ? (int)(slash - file) : 1, fd;
    bool good;
    snprintf(path, sizeof path, "%.*s", len, slash ? file : ".");
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        (void)close(fd);
    return good;
}

dxpu_noise_pair *dxpu_sodium_key_create(const char *file, const char **why)
{
    char text[FILE_BYTES + 1];
    dxpu_noise_pair *p;
    bool written;
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), error;
    *why = errno == ENOENT   ? "the directory of the key file is missing; make it"
           : errno == EEXIST ? "the key file must not exist yet; name another one"
                             : "the key file cannot be created";
    if (fd < 0)
        return NULL;
    p = dxpu_sodium_key_new();
    *why = "no memory for a key";
    written = false;
    if (p) {
        memcpy(text, header, HEADER_BYTES);
        dxpu_sodium_key_print(p->secret, text + HEADER_BYTES);
        text[FILE_BYTES - 1] = '\n';
        *why = "the key file cannot be written";
        written = fchmod(fd, 0600) == 0 && write_all(fd, text, FILE_BYTES) && sync_name(file);
    }
    error = errno;
    written = close(fd) == 0 && written;
    if (!written) {
        (void)unlink(file);
        dxpu_sodium_key_free(p);
        p = NULL;
    }
    sodium_memzero(text, sizeof text);
    errno = error;
    return p;
}

/* NULL, or why this file must not be trusted with a key. */
static const char *file_problem(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return "the key file's owner and mode cannot be read";
    if (!S_ISREG(st.st_mode))
        return "the key file is not a regular file";
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "the key file belongs to another user; chown it";
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return "the key file is open to others; chmod 600 it";
    if (st.st_size != FILE_BYTES)
        return "not a key file: it has another size";
    return NULL;
}

static bool read_all(int fd, char *text, size_t len)
{
    size_t have = 0;
    while (have < len) {
        ssize_t n = read(fd, text + have, len - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

/* The text of a whole file, of FILE_BYTES and room for a zero. */
static bool parse_file(char *text, dxpu_noise_pair *p)
{
    uint8_t secret[KEY];
    bool good = memcmp(text, header, HEADER_BYTES) == 0 && text[FILE_BYTES - 1] == '\n';
    text[FILE_BYTES - 1] = 0;
    good = good && dxpu_sodium_key_parse(text + HEADER_BYTES, secret) &&
           !sodium_is_zero(secret, sizeof secret);
    if (good)
        dxpu_noise_pair_of(dxpu_sodium_primitives(), p, secret);
    sodium_memzero(secret, sizeof secret);
    return good;
}

dxpu_noise_pair *dxpu_sodium_key_load(const char *file, const char **why)
{
    char text[FILE_BYTES];
    dxpu_noise_pair *p = NULL;
    /* a pipe or a terminal must not hold us up before it is looked at */
    int fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *why =
        errno == EACCES
            ? "this user may not read the key file; chown it and its directory"
            : "the key file cannot be opened; make one, or name the file itself and no link to it";
    if (fd < 0)
        return NULL;
    errno = 0;
    *why = file_problem(fd);
    if (!*why && !read_all(fd, text, sizeof text))
        *why = "the key file cannot be read";
    if (!*why) {
        p = sodium_malloc(sizeof *p);
        *why = p ? NULL : "no memory for a key";
    }
    if (p && !parse_file(text, p)) {
        *why = "not a key file: it must begin with 'dxpu secret key 1'";
        dxpu_sodium_key_free(p);
        p = NULL;
        errno = 0;
    }
    sodium_memzero(text, sizeof text);
    (void)close(fd);
    return p;
}
