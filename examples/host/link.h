/* link.h - the host's end of one attachment: dials the box, re-dials, matches completions, records
   SPDX-License-Identifier: MIT */
#ifndef LINK_H_INCLUDED
#define LINK_H_INCLUDED

#include "fabric.h"
#include "source.h"

enum { LINK_TAGS = 1024 };

/* how it ended: the program's exit status */
enum { LINK_DONE = 0, LINK_WRONG = 1, LINK_SYSTEM = 3, LINK_NO_CHANNEL = 4 };

typedef struct link_settings {
    const char *box;
    uint64_t slot, node, epoch;
    uint64_t timeout_ms; /* of a request */
    uint64_t give_up_ms; /* without a channel */
    unsigned tags_mode;  /* DXPU_TAGS_*, or 0 when the source brings its own */
    unsigned tags;       /* how many may be in flight */
    const char *record;
} link_settings;

typedef struct host_link {
    fabric fabric;
    const link_settings *set;
    const source *source;
    dxpu_udp_address box[DXPU_PATHS_MAX];
    dxpu_udp_path path[DXPU_PATHS_MAX];
    uint8_t key[DXPU_NOISE_KEY_BYTES]; /* the box's; not with --plain */
    unsigned paths;
    fabric_paths past;       /* of incarnations that are over */
    fabric_channel *channel; /* the incarnation, NULL between two */
    dxpu_tags tags;
    dxpu_tag_entry entries[LINK_TAGS];
    recorder record;
    histogram rtt; /* of non-posted requests: submitted to last completion */
    bool stopping, closing, is_up, over;
    bool silence_told; /* since it was up */
    int result;
    uint64_t dial_ns, alone_ns, stop_ns, progress_ns, started_ns;
    uint64_t submitted, taken, contained, timeouts, device_posted, device_unsupported, events;
    uint64_t ups; /* incarnations that came up */
} host_link;

/* box[paths] are the addresses of set->box.  0, or -1 after a message. */
int link_open(host_link *l, const link_settings *set, const fabric_settings *net, const source *s);
/* Until all is done, the user stops it, or there is no channel.  LINK_DONE.. */
int link_run(host_link *l);
/* Submit one TLP and record it.  As dxpu_channel_submit(); E_CLOSED while there is no channel. */
int link_submit(host_link *l, dxpu_bytes tlp, uint64_t now_ns, uint64_t user);
/* All that was submitted has been stored by the box. */
bool link_acked(const host_link *l, uint64_t now_ns);
/* End gracefully: nothing more is submitted, what was is finished.  Asked twice: at once. */
void link_stop(host_link *l);
void link_report(const host_link *l, report *r);
/* 0, or -1 when a file could not be written. */
int link_close(host_link *l);
/* The channel is cut off, and link_run() returns the first `result` that was given. */
void link_end(host_link *l, int result);

#endif /* LINK_H_INCLUDED */
