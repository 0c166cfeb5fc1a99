/* core_paths.c - which box has an address: a register names addresses, and may name another box's
   SPDX-License-Identifier: MIT

   M-87.  Addresses are compared with the ports at which slots are reached (M-73): boxes behind one
   address of a NAT have ports of their own. */
#include <string.h>

#include "core_internal.h"
#include "dxpu_sodium.h"

/* Ports of one address, a bit each. */
typedef struct port_set {
    uint8_t bits[(UINT16_MAX + 1) / 8];
} port_set;

static void port_put(port_set *p, uint32_t port)
{
    if (port <= UINT16_MAX)
        p->bits[port / 8] |= (uint8_t)(1u << port % 8);
}

static bool port_has(const port_set *p, uint32_t port)
{
    return port <= UINT16_MAX && (p->bits[port / 8] >> port % 8 & 1);
}

static bool is_same_ip(const dxpu_control_address *a, const dxpu_control_address *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

/* Gives the ports at which a box is reached at this address; false: none. */
static bool ports_of(const core *c, uint32_t node, const dxpu_control_address *at, port_set *out)
{
    const core_node *n = &c->t.node[node];
    bool any = false;
    for (unsigned i = 0; i < n->paths; i++) {
        if (!is_same_ip(&n->path[i], at))
            continue;
        if (!any)
            memset(out, 0, sizeof *out);
        any = true;
        port_put(out, n->path[i].port);
        for (uint32_t s = n->first; s < n->first + n->total; s++)
            port_put(out, (uint32_t)n->path[i].port + c->t.slot[s].device.port_offset);
    }
    return any;
}

/* Does the register name one of the ports in `taken` that is not in `own`? */
static bool asks_for(const dxpu_control_register *r, const dxpu_control_address *at,
                     const port_set *taken, const port_set *own)
{
    dxpu_bytes entries = r->entries;
    dxpu_control_device d;
    bool found = port_has(taken, at->port) && !port_has(own, at->port);
    for (unsigned i = 0; !found && i < r->count && dxpu_control_device_next(r, &entries, &d); i++) {
        uint32_t port = (uint32_t)at->port + d.port_offset;
        found = port_has(taken, port) && !port_has(own, port);
    }
    return found;
}

/* Is it a box of another key, which is connected or may be back?  It keeps its addresses. */
static bool is_other(const core *c, uint32_t node, const uint8_t *key)
{
    const core_node *n = &c->t.node[node];
    return n->role == DXPU_CONTROL_ROLE_BOX && n->keyed &&
           memcmp(n->key, key, sizeof n->key) != 0 && !corei_node_given_up(c, node);
}

/* Returns the box that has an address which this one registers for the first time, or CORE_NONE. */
static uint32_t path_holder(const core *c, const dxpu_control_register *r,
                            const dxpu_control_address *at, uint32_t mine, const uint8_t *key)
{
    port_set own = { { 0 } }, taken;
    if (mine != CORE_NONE)
        (void)ports_of(c, mine, at, &own);
    memset(&taken, 0xff, sizeof taken);
    if (!asks_for(r, at, &taken, &own)) /* nothing new, as nearly always */
        return CORE_NONE;
    for (uint32_t node = 0; node < c->t.nodes; node++)
        if (node != mine && is_other(c, node, key) && ports_of(c, node, at, &taken) &&
            asks_for(r, at, &taken, &own))
            return node;
    return CORE_NONE;
}

static core_result refuse_path(core *c, const dxpu_control_address *at, const uint8_t *key,
                               uint32_t node)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    uint32_t number = c->t.node[node].number;
    if (corei_may_tell(c, &c->paths, key) && corei_begin(c).code == CORE_OK) {
        corei_event_node(c, CORE_EVENT_NODE_PATH, node,
                         "refused: key %s registered its address, port %u",
                         dxpu_sodium_key_print(key, text), at->port);
        (void)corei_commit(c);
    }
    return corei_result(
        CORE_E_STATE,
        "node %u, a box with another key, has this address; give this one the right --advertise, "
        "or forget that node if it is gone for good: dxpu forget %u",
        number, number);
}

core_result core_check_paths(core *c, const dxpu_control_register *r,
                             const uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    uint32_t mine = corei_node_of(c, r);
    if (r->role != DXPU_CONTROL_ROLE_BOX)
        return (core_result){ CORE_OK, "" };
    for (unsigned i = 0; i < r->paths && i < DXPU_CONTROL_PATHS_MAX; i++) {
        uint32_t node = path_holder(c, r, &r->path[i], mine, key);
        if (node != CORE_NONE)
            return refuse_path(c, &r->path[i], key, node);
    }
    return (core_result){ CORE_OK, "" };
}
