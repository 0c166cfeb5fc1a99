/* key_command.c - dxpu keygen, dxpu pubkey: a program's secret key, and the public key of it
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "command.h"
#include "log.h"
#include "print_json.h"

#include "dxpu_sodium.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void print_public(const dxpu_noise_pair *p, const char *file, bool as_json)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES], print[DXPU_SODIUM_FINGERPRINT_BYTES];
    json_t *object;
    dxpu_sodium_key_print(p->public_key, text);
    if (!as_json) {
        puts(text);
        return;
    }
    object = json_pack("{s:s, s:s, s:s}", "public_key", text, "fingerprint",
                       dxpu_sodium_fingerprint(p->public_key, print), "file", file);
    print_json(object, 0);
}

/* Make missing parent directories of the file, the last one private to its owner.  What goes
   wrong shows when the file is made. */
static void make_folders(const char *file)
{
    char path[4096];
    size_t len = strlen(file);
    const char *last = strrchr(file, '/');
    if (!last || len >= sizeof path)
        return;
    memcpy(path, file, len + 1);
    for (char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        *end = '\0';
        (void)mkdir(path, end - path == last - file ? 0700 : 0755);
        *end = '/';
    }
}

static bool json;

static int print_key(dxpu_noise_pair *p, const char *file, const char *why)
{
    if (!p) {
        log_error("%s: %s%s%s", file, why, errno ? ": " : "", errno ? strerror(errno) : "");
        return EXIT_USAGE;
    }
    print_public(p, file, json);
    dxpu_sodium_key_free(p);
    return EXIT_ALL;
}

static int keygen(const option_call *c)
{
    const char *why = "libsodium does not start";
    dxpu_noise_pair *p = NULL;
    make_folders(c->words[0]);
    errno = 0;
    if (dxpu_sodium_init() == DXPU_OK)
        p = dxpu_sodium_key_create(c->words[0], &why);
    return print_key(p, c->words[0], why);
}

static int pubkey(const option_call *c)
{
    const char *why = "libsodium does not start";
    dxpu_noise_pair *p = NULL;
    errno = 0;
    if (dxpu_sodium_init() == DXPU_OK)
        p = dxpu_sodium_key_load(c->words[0], &why);
    return print_key(p, c->words[0], why);
}

static const option_row rows[] = {
    { "json", NULL, "public key, fingerprint and file as one JSON object", OPTION_FLAG, &json, 0,
      0 },
};
static const char tail[] = "  dxpu keygen box.key\n"
                           "  dxpu-host --peer $(dxpu pubkey box.key) ...\n"
                           "\n"
                           "Exit status: 0 done, 2 wrong usage or a file that cannot be read or "
                           "written.\n";

static const option_verb verbs[] = {
    { "keygen",
      "FILE",
      "create a secret key and print its public key",
      "Creates a secret key in a new file with mode 600, for --key of dxpu-host, dxpu-box and "
      "dxpu-manager, and prints its public key, which is for --peer and --peers of the others; a "
      "missing directory is created.",
      tail,
      1,
      1,
      { OPTION_ROWS(rows), { NULL, 0 } },
      keygen },
    { "pubkey",
      "FILE",
      "print the public key of a secret key",
      "Prints the public key of an existing file of a secret key.",
      tail,
      1,
      1,
      { OPTION_ROWS(rows), { NULL, 0 } },
      pubkey },
};

const option_verbs key_verbs = { "Keys of proxies, for their --key, --peer and --peers", verbs, 2 };
