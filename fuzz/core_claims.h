/* core_claims.h - what holds of the manager's core whatever it read or was told
   SPDX-License-Identifier: MIT */
#ifndef CORE_CLAIMS_H_INCLUDED
#define CORE_CLAIMS_H_INCLUDED

#include "tests/core_rig.h"

/* Every slot of a lease is in that lease alone, and no two ports are to have one slot. */
static void check_core(const core *c)
{
    const pool *p = core_pool(c);
    uint32_t nodes, slots, ports, leased = 0, used = 0;
    const core_node *node = core_nodes(c, &nodes);
    const core_slot *slot = core_slots(c, &slots);
    const core_port *port = core_ports(c, &ports);
    for (uint32_t i = 0; i < nodes; i++) {
        must(!i || node[i - 1].number < node[i].number);
        must(node[i].total <= (node[i].role == DXPU_CONTROL_ROLE_BOX ? slots : ports));
    }
    must(p->slots == slots && p->epoch <= COREI_EPOCH_MAX);
    for (uint32_t i = 0; i < slots; i++) {
        must(p->slot[i].state < POOL_STATES && slot[i].node < nodes);
        must(p->slot[i].lease == POOL_NONE || p->lease[p->slot[i].lease].count);
        must(p->slot[i].state != POOL_LEASED || p->slot[i].lease != POOL_NONE);
        must(p->slot[i].epoch <= p->epoch);
        leased += p->slot[i].lease != POOL_NONE;
    }
    for (uint32_t i = 0; i < p->limits.leases; i++)
        used += pool_lease_number(p, i) ? p->lease[i].count : 0;
    must(leased == used);
    for (uint32_t i = 0; i < ports; i++) {
        must(port[i].slot == CORE_NONE || port[i].slot < slots);
        for (uint32_t k = 0; k < i && port[i].slot != CORE_NONE; k++)
            must(port[k].slot != port[i].slot);
    }
}

/* Of all leases and the slots in them, in whatever order the tables are. */
static uint64_t leases_of(const core *c)
{
    const pool *p = core_pool(c);
    uint64_t sum = p->leases;
    uint32_t count;
    const core_node *node = core_nodes(c, &count);
    const core_slot *slot = core_slots(c, &count);
    for (uint32_t i = 0; i < p->slots; i++) { /* their places in the tables may change */
        uint64_t number = (uint64_t)node[slot[i].node].number << 16 | slot[i].device.number;
        if (p->slot[i].lease != POOL_NONE)
            sum += (pool_lease_number(p, p->slot[i].lease) ^ p->slot[i].epoch << 20) * number;
    }
    return sum;
}

#endif /* CORE_CLAIMS_H_INCLUDED */
