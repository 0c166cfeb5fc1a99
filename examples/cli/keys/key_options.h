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

/* Rows of a table of options (options.h) that fill `o`. */
#define KEY_OPTIONS(o)                                                                             \
    { "peer",                                                                                      \
      "KEY",                                                                                       \
      "the proxy's public key, which it prints when it starts (DXPU_PEER)",                        \
      OPTION_TEXT,                                                                                 \
      &(o).peer,                                                                                   \
      0,                                                                                           \
      0 },                                                                                         \
        { "key",                                                                                   \
          "FILE",                                                                                  \
          "own secret key; the proxy must authorize its public key (DXPU_KEY, else "               \
          "$XDG_CONFIG_HOME/dxpu/key or ~/.config/dxpu/key)",                                      \
          OPTION_TEXT,                                                                             \
          &(o).key,                                                                                \
          0,                                                                                       \
          0 },                                                                                     \
        { "plain",                                                                                 \
          NULL,                                                                                    \
          "no encryption or authentication, to a proxy with --plain on this machine",              \
          OPTION_FLAG,                                                                             \
          &(o).plain,                                                                              \
          0,                                                                                       \
          0 },                                                                                     \
    {                                                                                              \
        "plain-network", NULL, "with --plain: on another machine", OPTION_FLAG,                    \
            &(o).plain_network, 0, 0                                                               \
    }

/* Load them for a connection to this address.  NULL, or what is wrong, with the remedy (static). */
const char *key_options_open(key_options *o, const dxpu_udp_address *to);
void key_options_close(key_options *o); /* wipes the key */

#endif
