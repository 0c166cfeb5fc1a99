/* key_command.c - dxpu keygen, dxpu pubkey: a program's secret key, and the public key of it
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "command.h"

#include "dxpu_sodium.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: dxpu keygen [--json] FILE\n"
    "       dxpu pubkey [--json] FILE\n"
    "\n"
    "keygen creates a secret key in a new file with mode 600, for --key of dxpu-host,\n"
    "dxpu-box and dxpu-manager, and prints its public key, which is for --peer and --peers\n"
    "of the others; a missing directory is created.  pubkey prints the public key of an existing\n"
    "file.\n"
    "\n"
    "  --json           public key, fingerprint and file as an object\n"
    "\n"
    "  dxpu keygen box.key\n"
    "  dxpu-host --peer $(dxpu pubkey box.key) ...\n"
    "\n"
    "Exit status: 0 done, 2 wrong usage or a file that cannot be read or written.\n";

static void print_public(const dxpu_noise_pair *p, const char *file, bool json)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES], print[DXPU_SODIUM_FINGERPRINT_BYTES];
    json_t *object;
    dxpu_sodium_key_print(p->public_key, text);
    if (!json) {
        puts(text);
        return;
    }
    object = json_pack("{s:s, s:s, s:s}", "public_key", text, "fingerprint",
                       dxpu_sodium_fingerprint(p->public_key, print), "file", file);
    if (!object || json_dumpf(object, stdout, JSON_COMPACT))
        out_of_memory();
    putchar('\n');
    json_decref(object);
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

static int run(const char *command, bool make, int argc, char **argv)
{
    const char *file = NULL, *why = "libsodium does not start";
    bool json = false;
    dxpu_noise_pair *p = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            return EXIT_ALL;
        }
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (argv[i][0] == '-' || file)
            return usage_error(command, "unexpected argument '%s'; give one file", argv[i]);
        else
            file = argv[i];
    }
    if (!file)
        return usage_error(command, "FILE is missing");
    if (make)
        make_folders(file);
    errno = 0;
    if (dxpu_sodium_init() == DXPU_OK)
        p = make ? dxpu_sodium_key_create(file, &why) : dxpu_sodium_key_load(file, &why);
    if (!p) {
        fprintf(stderr, "dxpu %s: %s: %s%s%s\n", command, file, why, errno ? ": " : "",
                errno ? strerror(errno) : "");
        return EXIT_USAGE;
    }
    print_public(p, file, json);
    dxpu_sodium_key_free(p);
    return EXIT_ALL;
}

int keygen_command(int argc, char **argv)
{
    return run("keygen", true, argc, argv);
}

int pubkey_command(int argc, char **argv)
{
    return run("pubkey", false, argc, argv);
}
