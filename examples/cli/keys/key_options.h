/* key_options.h - which key the command has, and whom it speaks to
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_KEY_OPTIONS_H
#define DXPU_CLI_KEY_OPTIONS_H

#include "dxpu_libevent.h"
#include "dxpu_sodium.h"

typedef struct key_options {
    const char *key, *peer; /* NULL: of the environment, or of the user's directory */
    bool plain, plain_network;
    dxpu_noise_pair *own; /* NULL: plain */
    uint8_t server[DXPU_NOISE_KEY_BYTES];
} key_options;

/* The lines of --help. */
#define KEY_OPTIONS_HELP                                                                           \
    "  --peer KEY   public key of what is there; it says it when it starts (DXPU_PEER)\n"          \
    "  --key FILE   own secret key, whose public key it must let in (DXPU_KEY,\n"                  \
    "               else $XDG_CONFIG_HOME/dxpu/key or ~/.config/dxpu/key)\n"                       \
    "  --plain      no keys, to one that runs --plain on this machine (--plain-network:\n"         \
    "               on another)\n"

/* Is argv[*i] one of these?  It is taken, and *i is at its value; *why says what is wrong. */
bool key_options_read(key_options *o, int argc, char **argv, int *i, const char **why);
/* Load them for a connection to this address.  NULL, or what is wrong, with the remedy (static). */
const char *key_options_open(key_options *o, const dxpu_udp_address *to);
void key_options_close(key_options *o); /* wipes the key */

#endif
