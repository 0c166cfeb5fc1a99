/* keys.h - this program's secret key, and the public keys that it knows
   SPDX-License-Identifier: MIT

   One for a program.  Any thread may ask; keys_reload() is the first thread's.  A file of peers has
   a line for each:

       KEY [name=WORD] [may=fabric,control,host,box] [at=ADDR:PORT[,ADDR:PORT...]] [slots=1-4,7]

   KEY is 44 characters of base64, as `dxpu pubkey` prints it; `#` begins a comment.  A key and a
   name stand there once. */
#ifndef KEYS_H_INCLUDED
#define KEYS_H_INCLUDED

#include "dxpu_libevent.h"
#include "dxpu_sodium.h"

typedef struct keys_settings {
    const char *key;   /* file of the secret key; NULL: one for this run */
    const char *peer;  /* public keys with commas between */
    const char *peers; /* file of public keys */
    bool plain;        /* no keys at all */
    bool plain_network;
} keys_settings;
/* Rows for options.h; s is a keys_settings. */
#define KEYS_OPTIONS(s)                                                                            \
    { "key",                                                                                       \
      "FILE",                                                                                      \
      "file with its secret key; created if missing (a key for this run)",                         \
      OPTION_TEXT,                                                                                 \
      &(s).key,                                                                                    \
      0,                                                                                           \
      0 },                                                                                         \
        { "peer", "KEY[,KEY...]", "public keys with full access", OPTION_TEXT, &(s).peer, 0, 0 },  \
        { "peers",                                                                                 \
          "FILE",                                                                                  \
          "file of public keys and the rights of each; SIGHUP reloads it",                         \
          OPTION_TEXT,                                                                             \
          &(s).peers,                                                                              \
          0,                                                                                       \
          0 },                                                                                     \
        { "plain", NULL, "no encryption or authentication; tests only", OPTION_FLAG, &(s).plain,   \
          0,       0 },                                                                            \
    {                                                                                              \
        "plain-network", NULL, "with --plain: also beyond this machine, on an isolated network",   \
            OPTION_FLAG, &(s).plain_network, 0, 0                                                  \
    }

/* What a peer may: bit, and the word behind may= */
#define KEYS_MAY(X)                                                                                \
    X(FABRIC, 1, "fabric")   /* channels: a host open, a box be dialed */                          \
    X(CONTROL, 2, "control") /* ask and change by the control port */                              \
    X(HOST, 4, "host")       /* register at a manager as a host */                                 \
    X(BOX, 8, "box")         /* register at a manager as a box */
#define KEYS_ENUM(name, bit, text) KEYS_##name = (bit),
enum { KEYS_MAY(KEYS_ENUM) KEYS_ALL = 0xff };
#undef KEYS_ENUM

enum { KEYS_NAME_MAX = 31, KEYS_RANGES_MAX = 16, KEYS_PEERS_MAX = 16384 };
enum { KEYS_PASSING_MAX = 256 }; /* timestamps of keys that others name, at most */

typedef struct keys_range {
    uint16_t first, last;
} keys_range;

typedef struct keys_peer {
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    char name[KEYS_NAME_MAX + 1];        /* "" for none */
    unsigned may;                        /* KEYS_FABRIC.. */
    dxpu_udp_address at[DXPU_PATHS_MAX]; /* port 0: any */
    unsigned at_count;
    keys_range slots[KEYS_RANGES_MAX];
    unsigned slots_count; /* 0: every slot */
} keys_peer;

typedef struct keys keys;

/* NULL, or what is wrong with the settings: a matter of usage.  Static text. */
const char *keys_check(const keys_settings *s);
/* The same for addresses to listen on or to dial (S-97).  A name may be another address when it is
   used: keys_allow_address() decides then. */
const char *keys_check_addresses(const keys_settings *s, const dxpu_udp_address *at,
                                 unsigned count);
bool keys_loopback(const dxpu_udp_address *a);
/* Why an address beyond this machine is refused, and the remedy. */
extern const char keys_plain_address[];
/* Read or make the key, and read the peers; says on stderr who this is.  NULL after a message.
   With --plain there are no keys, and a warning.  *wrong: what is given is wrong, a matter of
   usage, and no file that cannot be read or written. */
keys *keys_open(const keys_settings *s, bool *wrong);
/* No keys, and nothing is said: for what stays in one process, or one test.  Not to be closed. */
keys *keys_none(void);
void keys_close(keys *k); /* wipes the secret; NULL is allowed */
/* A thread still reads for them, and the process ends without it: keys_close() leaves them. */
void keys_abandon(keys *k);
bool keys_plain(const keys *k);
/* May this program listen on an address, or dial it?  Not without keys, beyond this machine: asked
   of each address right before it is used. */
bool keys_allow_address(const keys *k, const dxpu_udp_address *a);
/* This program's identity, NULL with --plain. */
const dxpu_noise_pair *keys_own(const keys *k);
/* Its public key is known to no peer: it was made for this run. */
bool keys_own_new(const keys *k);
/* Read --peers again: 0, or -1 after a message.  It may wait for a disk and a name server.  In any
   thread, but in one at a time.  Nothing changes before keys_take(). */
int keys_read(keys *k);
/* What keys_read() has read, and returned 0 for, counts from now on. */
void keys_take(keys *k);
/* Both.  0, or -1 after a message: nothing has changed. */
int keys_reload(keys *k);
/* Changes with each keys_reload() that was good. */
unsigned keys_generation(const keys *k);

/* Whose name is this at a manager (M-86)?  A name= is its key's alone, as are name-2 to name-64,
   the further guests of its program, unless another line has that name itself. */
enum {
    KEYS_NAME_FREE,  /* no line has it, and that of this key, if there is one, none at all */
    KEYS_NAME_OWN,   /* its line says so */
    KEYS_NAME_OTHER, /* the line of another key has it */
    KEYS_NAME_WRONG  /* its line says another, which is in own */
};
unsigned keys_name(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], const char *name,
                   char own[KEYS_NAME_MAX + 1]);

/* A copy of what is known of a public key; false for a stranger. */
bool keys_find(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], keys_peer *out);
/* May this key (KEYS_FABRIC..), and, where slot is not 0, with this slot? */
bool keys_allow(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], unsigned may, uint16_t slot);
/* How many may. */
unsigned keys_count(keys *k, unsigned may);
/* The first of `slots` slots that two keys may open channels to, 0 for none: without a manager one
   takes it from the other by a higher epoch. */
unsigned keys_shared_slot(keys *k, unsigned slots);
/* The largest timestamp that was taken of a public key, by whatever port; 0 for none (S-93). */
uint64_t keys_newest(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
/* Take this one, unless it is not above all before.  It is for keys that were let in. */
bool keys_fresh(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp);
/* The same of a key that is let in because another one names it: who names many of them makes room
   among these alone. */
bool keys_fresh_passing(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp);
/* The key of the box at these addresses, for a host that was given no other: of the peer that is
   `at` one of them, else of the only one that is at none.  NULL, or why not, with a remedy. */
const char *keys_box(keys *k, const dxpu_udp_address *box, unsigned count,
                     uint8_t out[DXPU_NOISE_KEY_BYTES]);
/* What it may be that a box, dialed with these keys, does not answer: S-92's remedy. */
const char *keys_silence(const keys *k);
/* Nanoseconds since 1970, larger each time, whatever the clock does: timestamps of initiations. */
uint64_t keys_wall_ns(keys *k);
/* A peer for people: its name, or the first characters of its key.  out is returned. */
enum { KEYS_TEXT_BYTES = KEYS_NAME_MAX + 1 };
const char *keys_text(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], char out[KEYS_TEXT_BYTES]);

/* ==== Files that a program adds to ============================================================ */

enum { KEYS_LINE_BYTES = 160 };

/* Words of may= with commas between.  NULL, or what is wrong (static). */
const char *keys_parse_may(const char *words, unsigned *may);
/* The line for key, name ("": none) and may of a peer, without its end.  False when such a line
   would not say that: a name that does not fit one. */
bool keys_line(const keys_peer *p, char out[KEYS_LINE_BYTES]);
/* Add that line to a file of peers, which is made (mode 644) when there is none: on the disk with
   all that was there, or all is as before.  p NULL: only look whether it could be.
   0; 1: the key has a line there, which stays as it is; -1 after a message. */
int keys_add(const char *file, const keys_peer *p);

#endif /* KEYS_H_INCLUDED */
