/* shards.h - the loops of a box: one for each core, which share nothing while they run
   SPDX-License-Identifier: MIT

   One alone runs in the first thread, which also has the control port, the manager and the signals.
   With several the first thread has only those, and what concerns a slot or a port is called in the
   loop that has it (worker.h). */
#ifndef SHARDS_H_INCLUDED
#define SHARDS_H_INCLUDED

#include "slots.h"

enum { SHARDS_MAX = 64 };

/* Open net->shards ports in a row for the b->count slots that are to come; the box's name and
   node are set.  0, or -1 after a message. */
int shards_open(box *b, const fabric_settings *net);
/* 0, or -1 when the capture of frames could not be written. */
int shards_close(box *b);
/* Where they listen, on stderr. */
void shards_say(const box *b);
/* Until all have ended: 0, or -1 after a message. */
int shards_run(box *b);
/* --peers was read again: channels end whose keys may not have them any more. */
void shards_keys_changed(box *b);
/* Close all channels gracefully, and end; called twice, end at once. */
void shards_stop(box *b);
void shards_report(box *b, report *r);

/* What requests.h asks for; user is the box. */
unsigned shards_bind(void *user, const dxpu_control_bind *m);
unsigned shards_unbind(void *user, const dxpu_control_unbind *m);
unsigned shards_reset(void *user, const dxpu_control_reset *m);
unsigned shards_drain(void *user, const dxpu_control_drain *m);
unsigned shards_direct(void *user, const dxpu_control_direct *m);
unsigned shards_plug(void *user, const dxpu_control_plug *m);
unsigned shards_screenshot(void *user, unsigned number);
void shards_describe(void *user, unsigned number, dxpu_control_slot *out);
/* What an order about a slot that was to be answered later has become: from its loop. */
void shards_answer(box *b, unsigned number, unsigned code);
/* manager_proxy.device, .node, .directs; user is the box. */
void shards_device(void *user, unsigned number, dxpu_control_device *out);
void shards_node(void *user, uint32_t node);
void shards_directs(void *user, bool on);

#endif /* SHARDS_H_INCLUDED */
