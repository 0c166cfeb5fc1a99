/* bridge_internal.h - the function in front of a virtual machine's slots: of bridge.c and its test
   SPDX-License-Identifier: MIT */
#ifndef BRIDGE_INTERNAL_H_INCLUDED
#define BRIDGE_INTERNAL_H_INCLUDED

#include "access.h"
#include "bridge.h"
#include "vmd.h"

#include "dxpu_vswitch.h"

typedef struct bridge {
    guest guest;
    dxpu_vfu *vfu;
    dxpu_vswitch vs;
    vmd vmd;
    slot_host host;
    windows memory; /* of the guest, as the client gave it last */
    uint32_t memory_changes;
    bool reach_changed; /* what devices may reach, and their boxes were not notified */
    uint8_t domain[DXPU_P2P_DOMAIN_BYTES]; /* random: no other guest's slots have it (B-4) */
    access_table accesses;
    bool owed; /* there was no room for an interrupt of the switch */
    uint64_t config_reads, config_writes, memory_reads, memory_writes, unclaimed, resets;
} bridge;

/* 0, or -1 after a message. */
int bridge_open_switch(bridge *g);
void bridge_machine_reset(bridge *g);
/* What helps where a device of this size has no room. */
void bridge_remedy(const bridge *g, uint64_t largest, char *out, size_t cap);
/* access_table.send */
bool bridge_send_memory(void *user, dxpu_tlp *t, uint64_t part);
/* access_table.unread */
void bridge_on_unread(void *user, guest_access *a, uint32_t at, uint32_t bytes);
/* Of dxpu_vfu_callbacks; user is the bridge. */
void bridge_on_read(void *user, const dxpu_vfu_access *v);
void bridge_on_write(void *user, const dxpu_vfu_access *v, const uint8_t *data);
void bridge_on_reset(void *user, uint64_t token);
void bridge_on_disconnected(void *user, const char *why);
/* Of slot_host. */
void bridge_on_reach(void *user, unsigned slot, windows *out);
void bridge_on_neighbors(void *user, unsigned slot, dxpu_p2p_list *out);
void bridge_on_completion(void *user, const dxpu_tlp *cpl, uint64_t part, bool last);
bool bridge_on_message(void *user, unsigned slot, const dxpu_tlp *t);
void bridge_on_filled(void *user, unsigned slot, bool filled);
void bridge_on_lost(void *user, unsigned slot, const dxpu_vswitch_values *values);

#endif /* BRIDGE_INTERNAL_H_INCLUDED */
