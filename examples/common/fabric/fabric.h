/* fabric.h - the channels of a proxy over one UDP port: memory, demultiplexing, open and re-open
   SPDX-License-Identifier: MIT

   A channel id is random except for its low bits, which are the index of the channel here: one
   lookup finds the channel of a datagram, and datagrams of an old incarnation find none.

   Paths.  The opener names an address for each path and keeps it.  The acceptor learns each: the
   source of the first frame on the path that the channel accepted.  The acceptor follows the opener
   to another address (a NAT rebinding, a host that moved) when the channel accepts a frame on the
   path from there whose packet number is above all before on that path; otherwise the channel, and
   the guest's device, would be lost.  So neither a forged nor a replayed frame redirects a path; an
   attacker who can delay and forward frames can redirect it, as with QUIC.  An address that has not
   shown that it receives is sent at most three times the bytes that arrived from it (P-27): what is
   above that is dropped, and the channel retransmits it as if the network had lost it.

   Keys.  Unless the program runs with --plain, the opener first agrees on keys with the owner of a
   public key (sealing.h); from all others only handshakes are accepted or answered.  Until then the
   channel exists but has not been opened; a refusal, or silence, ends it like an opened one. */
#ifndef FABRIC_H_INCLUDED
#define FABRIC_H_INCLUDED

#include "bypass.h"
#include "dxpu_acceptor.h"
#include "recorder.h"
#include "sealing.h"
#include "stats.h"

enum {
    FABRIC_INDEX_BITS = 12,
    FABRIC_CHANNELS_MAX = 1 << FABRIC_INDEX_BITS,
    FABRIC_INDEX_MASK = FABRIC_CHANNELS_MAX - 1
};

/* One path of a channel, by the number that both ends give it. */
typedef struct fabric_path {
    bool known; /* at is set */
    dxpu_udp_path at;
    uint64_t tx_frames, tx_data_frames, rx_frames;
    uint64_t moves;             /* times the opener's address changed */
    dxpu_validation validation; /* acceptor: of `at` */
    dxpu_udp_address valid_at;  /* the last valid one: valid at once when the path returns to it */
    uint64_t held_back;         /* frames that were not sent, by P-27 */
    dxpu_path_info info;        /* of a channel that is over: as it was at its end */
} fabric_path;

/* Those of a channel, or of all the channels of one slot. */
typedef struct fabric_paths {
    fabric_path path[DXPU_PATHS_MAX];
} fabric_paths;

/* One incarnation. */
typedef struct fabric_channel {
    dxpu_channel ch;
    void *mem;
    uint32_t id;          /* ours; 0 while the place is free */
    uint32_t remote_id;   /* an opener's, to know its repeated open */
    unsigned live_at;     /* in fabric.live */
    uint16_t slot;        /* box: of the offer */
    bool accepted;        /* begun by the other side */
    bool up;              /* up() was called */
    bool ended;           /* down() was called; kept for its closing period */
    bool more;            /* work() has not finished */
    bool waits;           /* up() has not let it in yet: what it brings stays, past its end too */
    uint8_t closed_turns; /* since it was closed */
    bool asking;          /* opener: no keys yet; nothing reaches ch, and nothing of it leaves */
    unsigned asked;       /* initiations sent */
    uint64_t ask_ns;      /* when the next one is due */
    dxpu_sodium_session *session; /* its keys; NULL: none */
    uint64_t born_ns;
    fabric_paths paths;
} fabric_channel;

typedef struct fabric_callbacks {
    void *user;
    /* Authorize an open, or a handshake that prepares one: then only epoch and places of the offer
       are set.  Return DXPU_REASON_NONE and complete *cfg (epoch and places are set), or the reason
       to refuse.  key: the peer's, NULL with --plain.  NULL: no opens are accepted. */
    uint8_t (*authorize)(void *user, const dxpu_offer *offer, const uint8_t *key,
                         dxpu_channel_config *cfg);
    /* The channel carries TLPs from now on.  The program may set `waits` until it knows whether it
       lets the channel in; then it clears it, and sets `more` to have work() called (and, with
       `few`, calls fabric_stir_channel()). */
    void (*up)(void *user, fabric_channel *c, uint64_t now_ns);
    /* Take and submit.  True: there is more to do without waiting for anything. */
    bool (*work)(void *user, fabric_channel *c, uint64_t now_ns);
    /* The incarnation is over (dxpu_channel_status says how). */
    void (*down)(void *user, fabric_channel *c, uint64_t now_ns);
    /* The program's own timer: when, and what then; both may be NULL. */
    uint64_t (*next_ns)(void *user);
    void (*tick)(void *user, uint64_t now_ns);
    /* sealing_callbacks.known */
    sealing_known (*known)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
    /* May this channel continue with the owner of this key?  NULL: as --peer and --peers say. */
    bool (*allowed)(void *user, const fabric_channel *c, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
} fabric_callbacks;

#define FABRIC_COUNTERS(X)                                                                         \
    X(opens_sent, "incarnations started here")                                                     \
    X(opens_accepted, "incarnations accepted")                                                     \
    X(opens_refused, "opens refused")                                                              \
    X(opens_repeated, "opens received again")                                                      \
    X(unknown_channel, "frames for an unknown channel id, or one that has ended")                  \
    X(not_frames, "datagrams that are not frames of this version")                                 \
    X(bad_opens, "open frames damaged or out of range")                                            \
    X(unannounced, "turns in which a channel had work that no event had announced")                \
    X(unseen, "turns in which a channel sent what no event had announced")                         \
    X(ended_close, "incarnations closed gracefully")                                               \
    X(ended_other, "incarnations ended otherwise")
#define FABRIC_FIELD(name, text) uint64_t name;
typedef struct fabric_counters {
    FABRIC_COUNTERS(FABRIC_FIELD)
} fabric_counters;
#undef FABRIC_FIELD

typedef struct fabric {
    dxpu_udp *udp;
    dxpu_xdp *xdp; /* below udp, with --af-xdp; else NULL */
    fabric_callbacks cb;
    dxpu_channel_config base;  /* what every channel here has in common */
    fabric_channel **channels; /* by index */
    fabric_channel **live;     /* those in use, in any order */
    unsigned live_count;
    unsigned capacity;
    uint32_t *free_list; /* indices; oldest freed first */
    unsigned free_head, free_count;
    unsigned first; /* which of them was served first the last time */
    /* With `few`, which is the program's, a turn with more live ones than that serves only those
       that have work; 0: all, however many. */
    unsigned few;
    uint64_t *due_ns; /* of each live one, when it has work; 0: it may have now */
    bool heard;       /* a datagram arrived since the last turn */
    bool again;       /* all are to be served at all_ns, whatever due_ns says */
    uint64_t all_ns;
    const fabric_channel *serving; /* NULL: none, it is not their turn */
    unsigned up;                   /* channels that are */
    unsigned *promise; /* of each place, the last of `promised` that it was for; 0: none */
    unsigned promised; /* places, to channels whose open may arrive */
    unsigned pending;  /* of those, at most */
    keys *keys;
    sealing sealing;
    recorder own_frames, *frames; /* the second may be another fabric's */
    dxpu_counters ended;          /* sums over incarnations that are over */
    fabric_counters count;
} fabric;

/* What both programs ask of their user. */
typedef struct fabric_settings {
    const char *listen;
    unsigned wait; /* DXPU_UDP_ADAPTIVE.. */
    uint64_t window_frames, mtu, hold_ms;
    bool spread, lossless;
    const char *frames; /* pcap of all datagrams, NULL for none */
    const char *af_xdp; /* interface and how, NULL for the kernel's sockets alone */
    /* Number of fabrics, one for each thread: the first one has the ports of `listen`, the next one
       those that follow, and so on; --frames is one file. */
    uint64_t shards;
    unsigned shard;   /* which one this is, from 0 */
    fabric *beside;   /* the first one, for all others */
    bool in_a_row;    /* also where the system chooses the first one's port */
    uint64_t rekey_s; /* lifetime of a key phase */
    keys *keys;       /* the program's */
} fabric_settings;
#define FABRIC_SETTINGS_DEFAULT(listen)                                                            \
    {                                                                                              \
        (listen), DXPU_UDP_ADAPTIVE, 64, 1500, 1000, false, false, NULL, NULL, 1, 0, NULL, false,  \
            120, NULL                                                                              \
    }
/* Rows for options.h that both programs share; s is a fabric_settings. */
#define FABRIC_OPTIONS(s)                                                                          \
    { "listen",                                                                                    \
      "ADDR:PORT",                                                                                 \
      "local address, or several with commas, one for each path; [ADDR]:PORT for IPv6",            \
      OPTION_TEXT,                                                                                 \
      &(s).listen,                                                                                 \
      0,                                                                                           \
      0 },                                                                                         \
        { "wait",                                                                                  \
          "adaptive|block|busy",                                                                   \
          "spin 50 us then block (default), block, never block",                                   \
          OPTION_CHOICE,                                                                           \
          &(s).wait,                                                                               \
          0,                                                                                       \
          0 },                                                                                     \
        { "window",      "FRAMES",           "frames in flight, a power of two (64)",              \
          OPTION_NUMBER, &(s).window_frames, 4,                                                    \
          16384 },                                                                                 \
        { "mtu", "BYTES", "MTU of the paths, IP header included (1500)", OPTION_NUMBER, &(s).mtu,  \
          1280,  9216 },                                                                           \
        { "hold-ms",                                                                               \
          "MS",                                                                                    \
          "silence that ends a channel; the smaller of both ends counts (1000)",                   \
          OPTION_NUMBER,                                                                           \
          &(s).hold_ms,                                                                            \
          10,                                                                                      \
          600000 },                                                                                \
        { "spread",                                                                                \
          NULL,                                                                                    \
          "send on all paths at once, not only on the first that works",                           \
          OPTION_FLAG,                                                                             \
          &(s).spread,                                                                             \
          0,                                                                                       \
          0 },                                                                                     \
        { "lossless",                                                                              \
          NULL,                                                                                    \
          "a network that never drops (PFC): no congestion control",                               \
          OPTION_FLAG,                                                                             \
          &(s).lossless,                                                                           \
          0,                                                                                       \
          0 },                                                                                     \
        { "rekey-s", "SECONDS", "lifetime of a sealing key (120)", OPTION_NUMBER, &(s).rekey_s,    \
          1,         120 },                                                                        \
        { "frames",                                                                                \
          "FILE",                                                                                  \
          "write every frame sent and received to a pcap",                                         \
          OPTION_TEXT,                                                                             \
          &(s).frames,                                                                             \
          0,                                                                                       \
          0 },                                                                                     \
    {                                                                                              \
        "af-xdp", "IFNAME[,QUEUE]",                                                                \
            "bypass the kernel's network stack on this interface" BYPASS_NOTE, OPTION_TEXT,        \
            &(s).af_xdp, 0, 0                                                                      \
    }

/* Returns the channel with this id; NULL: there is none. */
fabric_channel *fabric_channel_by_id(const fabric *f, uint32_t id);
/* Adds `ports` to the address's port; port 0, which means any, stays.  False: it would be above
   65535. */
bool fabric_port_further(dxpu_udp_address *a, unsigned ports);
/* NULL, or what is wrong with the settings: a matter of usage.  Valid until the next call. */
const char *fabric_check(const fabric_settings *s, const keys_settings *k);
/* Open the port.  base's window, frame limit and hold are set from s.  0, or -1 after a message;
   FABRIC_TAKEN: the system chose the ports of `beside`, and one that follows is in use. */
enum { FABRIC_TAKEN = 1 };
int fabric_open(fabric *f, const fabric_settings *s, unsigned capacity, const fabric_callbacks *cb);
/* Free everything; 0, or -1 when the frame capture could not be written. */
int fabric_close(fabric *f);
/* Chooses the paths to a box at these addresses, 1..DXPU_PATHS_MAX: path n leaves by the nth local
   address, or, when that is of another kind (IPv4, IPv6), by the first of the same kind.  DXPU_OK;
   E_NONE: no local address of a kind; E_ARG: two paths would be the same. */
int fabric_route(const fabric *f, const dxpu_udp_address *box, unsigned count, dxpu_udp_path *out);
/* Begin an incarnation towards a box: epoch, places and tags of cfg are the caller's, the rest is
   f->base.  key is the box's public one, unless this is --plain.  NULL when there is no room. */
fabric_channel *fabric_dial(fabric *f, const dxpu_channel_config *cfg, const uint8_t *key,
                            const dxpu_udp_path *path, unsigned count, uint64_t now_ns);
/* End the channels whose keys may not have them any more: after keys_reload(), in f's thread. */
void fabric_keys_changed(fabric *f);
/* With `few`: call it when a channel gets work that neither a datagram nor its own timer announces;
   fabric_stir() where it is not known which channel.  See fabric_turn() for what happens if the
   call is missing. */
void fabric_stir_channel(const fabric *f, fabric_channel *c);
void fabric_stir(fabric *f);
/* Calls dxpu_channel_reset(); the channel's next turn handles the end. */
void fabric_reset(const fabric *f, fabric_channel *c, uint8_t reason);
/* Run until fabric_stop(). */
int fabric_run(fabric *f);
void fabric_stop(fabric *f);
/* True while a channel has something to say or to wait for (not counting those that linger). */
bool fabric_busy(const fabric *f);
/* Close all channels gracefully. */
void fabric_close_all(fabric *f, uint8_t reason);
/* How an incarnation ended, for people: "no frame for 1000 ms".  out is returned. */
enum { FABRIC_END_BYTES = 120 };
const char *fabric_end_text(const fabric_channel *c, char out[FABRIC_END_BYTES]);
/* Counters of all incarnations so far, of the port, and of this file. */
void fabric_totals(const fabric *f, dxpu_counters *out);
void fabric_report(const fabric *f, report *r);

/* Returns the present state of a path of a channel. */
dxpu_path_info fabric_path_info(const fabric_channel *c, unsigned path);
/* Returns the source of the last frame that the channel accepted. */
const dxpu_udp_address *fabric_peer(const fabric_channel *c);
/* Add up a channel that is over, for fabric_report_paths(). */
void fabric_paths_keep(fabric_paths *sum, const fabric_channel *c);
/* `paths`: counts of all the channels; the rest is of c, or when that is NULL of the last one. */
void fabric_report_paths(const fabric_paths *past, const fabric_channel *c, report *r);
/* "2 of 3 paths usable, path 1 active", empty for a channel of one path.  out is returned. */
enum { FABRIC_PATHS_TEXT_BYTES = 60 };
const char *fabric_paths_text(const fabric_channel *c, char out[FABRIC_PATHS_TEXT_BYTES]);

uint32_t fabric_random(void);
/* Which CRC-32 the program was built with. */
const char *fabric_crc_name(void);

#endif /* FABRIC_H_INCLUDED */
