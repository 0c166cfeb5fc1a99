/* virtio_net_control.c - the control queue of a virtio network adapter, and its filters
   SPDX-License-Identifier: MIT

   CONTENTS   1 Filters   2 Commands */
#include "virtio_net_model.h"

enum { ACK_OK = 0, ACK_ERR = 1, COMMAND_HEADER = 2 };

enum { ETHERNET_BYTES = 14, TYPE_VLAN = 0x8100, VLAN_BYTES = 4 };

/* ==== 1  Filters ============================================================================== */

void net_filter_reset(virtio_net *n)
{
    memset(&n->filter, 0, sizeof n->filter);
    n->filter.promiscuous = true; /* until the driver says otherwise */
    memcpy(n->v.config, n->address, NET_ADDRESS_BYTES);
}

static bool is_listed(const uint8_t table[][NET_ADDRESS_BYTES], unsigned count, const uint8_t *to)
{
    if (count > NET_ADDRESSES)
        return true;
    for (unsigned i = 0; i < count; i++) {
        if (!memcmp(table[i], to, NET_ADDRESS_BYTES))
            return true;
    }
    return false;
}

static bool passes_vlan(const virtio_net *n, const uint8_t *frame, uint32_t bytes)
{
    unsigned id;
    if (!(n->v.accepted & NET_F_CTRL_VLAN) || bytes < ETHERNET_BYTES + VLAN_BYTES ||
        dxpu_get_be16(frame + 12) != TYPE_VLAN)
        return true;
    id = dxpu_get_be16(frame + 14) % NET_VLANS;
    return n->filter.vlan[id / 8] >> id % 8 & 1;
}

bool net_passes(const virtio_net *n, const uint8_t *frame, uint32_t bytes)
{
    static const uint8_t everyone[NET_ADDRESS_BYTES] = { 255, 255, 255, 255, 255, 255 };
    const net_filter *f = &n->filter;
    if (bytes < ETHERNET_BYTES)
        return false;
    if (f->promiscuous)
        return true;
    if (!passes_vlan(n, frame, bytes))
        return false;
    if (!memcmp(frame, everyone, sizeof everyone))
        return !f->no_broadcast;
    if (frame[0] & 1)
        return !f->no_multicast &&
               (f->all_multicast || is_listed(f->multicast, f->multicasts, frame));
    return !f->no_unicast && (f->all_unicast || !memcmp(frame, n->v.config, NET_ADDRESS_BYTES) ||
                              is_listed(f->unicast, f->unicasts, frame));
}

/* ==== 2  Commands ============================================================================= */

static uint8_t set_mode(virtio_net *n, unsigned command, const uint8_t *d, uint32_t bytes)
{
    bool *modes[] = { &n->filter.promiscuous,  &n->filter.all_multicast, &n->filter.all_unicast,
                      &n->filter.no_multicast, &n->filter.no_unicast,    &n->filter.no_broadcast };
    unsigned known = n->v.accepted & NET_F_CTRL_EXTRA ? 6 : 2;
    if (!(n->v.accepted & NET_F_CTRL_RX) || command >= known || bytes != 1 || d[0] > 1)
        return ACK_ERR;
    *modes[command] = d[0];
    return ACK_OK;
}

/* A table from *d on: a count, then addresses.  False: it is longer than what there is. */
static bool get_table(const uint8_t **d, uint32_t *bytes, unsigned *count,
                      uint8_t table[][NET_ADDRESS_BYTES])
{
    uint32_t entries = *bytes >= 4 ? dxpu_get_le32(*d) : UINT32_MAX;
    if (entries > (*bytes - 4) / NET_ADDRESS_BYTES)
        return false;
    *count = entries;
    memcpy(table, *d + 4,
           (size_t)(entries < NET_ADDRESSES ? entries : NET_ADDRESSES) * NET_ADDRESS_BYTES);
    *d += 4 + entries * NET_ADDRESS_BYTES;
    *bytes -= 4 + entries * NET_ADDRESS_BYTES;
    return true;
}

static uint8_t set_address(virtio_net *n, unsigned command, const uint8_t *d, uint32_t bytes)
{
    net_filter now = n->filter;
    if (command == 1 && (n->v.accepted & NET_F_CTRL_MAC) && bytes == NET_ADDRESS_BYTES) {
        memcpy(n->v.config, d, NET_ADDRESS_BYTES);
        return ACK_OK;
    }
    if (command != 0 || !(n->v.accepted & NET_F_CTRL_RX) ||
        !get_table(&d, &bytes, &now.unicasts, now.unicast) ||
        !get_table(&d, &bytes, &now.multicasts, now.multicast) || bytes)
        return ACK_ERR;
    n->filter = now;
    return ACK_OK;
}

static uint8_t set_vlan(virtio_net *n, unsigned command, const uint8_t *d, uint32_t bytes)
{
    unsigned id = bytes == 2 ? dxpu_get_le16(d) : NET_VLANS;
    if (!(n->v.accepted & NET_F_CTRL_VLAN) || command > 1 || id >= NET_VLANS)
        return ACK_ERR;
    n->filter.vlan[id / 8] &= (uint8_t) ~(1u << id % 8);
    n->filter.vlan[id / 8] |= (uint8_t)((command == 0) << id % 8);
    return ACK_OK;
}

static uint8_t set_pairs(virtio_net *n, unsigned command, const uint8_t *d, uint32_t bytes)
{
    unsigned pairs = bytes == 2 ? dxpu_get_le16(d) : 0;
    if (!(n->v.accepted & NET_F_MQ) || command != 0 || pairs < 1 || pairs > n->port.queues)
        return ACK_ERR;
    for (unsigned i = pairs; i < n->pairs; i++) {
        if (n->receiver[i].bytes && !n->receiver[i].writing) { /* it waits for buffers */
            n->receiver[i].bytes = 0;
            n->count.receive_dropped++;
        }
    }
    n->pairs = pairs;
    return ACK_OK;
}

uint8_t net_control(virtio_net *n, const uint8_t *command, uint32_t bytes)
{
    if (bytes < COMMAND_HEADER)
        return ACK_ERR;
    switch (command[0]) { /* its class */
    case 0:
        return set_mode(n, command[1], command + COMMAND_HEADER, bytes - COMMAND_HEADER);
    case 1:
        return set_address(n, command[1], command + COMMAND_HEADER, bytes - COMMAND_HEADER);
    case 2:
        return set_vlan(n, command[1], command + COMMAND_HEADER, bytes - COMMAND_HEADER);
    case 4:
        return set_pairs(n, command[1], command + COMMAND_HEADER, bytes - COMMAND_HEADER);
    default:
        return ACK_ERR;
    }
}
