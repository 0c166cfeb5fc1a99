/* key_options.c - see key_options.h
   SPDX-License-Identifier: MIT */
#include "key_options.h"
#include "keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *of_environment(const char *given, const char *name)
{
    const char *value = given ? given : getenv(name);
    return value && *value ? value : NULL;
}

/* The user's own key, where there is one. */
static const char *usual_key(void)
{
    static char path[4096];
    const char *folder = of_environment(NULL, "XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = folder || home ? snprintf(path, sizeof path, "%s%s/dxpu/key", folder ? folder : home,
                                      folder ? "" : "/.config")
                           : 0;
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0 ? path : NULL;
}

static const char *load(key_options *o, const char *file)
{
    static char text[4300];
    const char *why = "libsodium does not start";
    errno = 0;
    o->own = dxpu_sodium_init() == DXPU_OK ? dxpu_sodium_key_load(file, &why) : NULL;
    if (o->own)
        return NULL;
    snprintf(text, sizeof text, "--key %s: %s%s%s", file, why, errno ? ": " : "",
             errno ? strerror(errno) : "");
    return text;
}

const char *key_options_open(key_options *o, const dxpu_udp_address *to)
{
    const char *key, *peer;
    if (o->plain && (o->key || o->peer))
        return "--plain cannot be used with --key and --peer";
    if (o->plain)
        return o->plain_network || keys_loopback(to) ? NULL : keys_plain_address;
    if (o->plain_network)
        return "--plain-network requires --plain";
    peer = of_environment(o->peer, "DXPU_PEER");
    if (!peer)
        return "--peer KEY is required: the public key that the proxy prints when it starts (or "
               "--plain, if the proxy runs with --plain)";
    if (!dxpu_sodium_key_parse(peer, o->server))
        return "--peer must be a public key, 44 characters; `dxpu pubkey FILE` prints it";
    key = of_environment(o->key, "DXPU_KEY");
    if (!key)
        key = usual_key();
    if (!key)
        return "--key FILE is required: `dxpu keygen ~/.config/dxpu/key` makes one and prints the "
               "public key that the proxy must know: its --peer KEY, or a line with may=control "
               "in its --peers";
    return load(o, key);
}

void key_options_close(key_options *o)
{
    dxpu_sodium_key_free(o->own);
    o->own = NULL;
}
