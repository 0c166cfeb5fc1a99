/* guest.c - see guest.h
   SPDX-License-Identifier: MIT */
#include "form.h"

#include <stdlib.h>

guest *guest_open(const guest_settings *set, const slot_line *const *lines, uint64_t hold_ns)
{
    return set->form->open(set, lines, hold_ns);
}

void guest_close(guest *g)
{
    for (unsigned i = 0; g->slots && i < g->set->slots; i++)
        slot_free(&g->slots[i]);
    free(g->slots);
    g->set->form->close(g);
}

/* ==== The virtual machine ===================================================================== */

unsigned guest_sockets(const guest_settings *set)
{
    return set->form->numbered ? (unsigned)set->slots : 1;
}

const char *guest_socket(const guest_settings *set, unsigned n, char out[GUEST_SOCKET_BYTES])
{
    if (!set->form->numbered)
        return set->socket;
    snprintf(out, GUEST_SOCKET_BYTES, "%s.%u", set->socket, n + 1);
    return out;
}

int guest_fd(const guest *g)
{
    return g->set->form->fd(g);
}

int guest_process(guest *g)
{
    return g->set->form->process(g);
}

int guest_client(const guest *g, unsigned n, uint64_t *number)
{
    const dxpu_vfu *server = g->set->form->server(g, n);
    *number = dxpu_vfu_count(server)->clients;
    return dxpu_vfu_client(server);
}

uint64_t guest_next_ns(const guest *g)
{
    uint64_t next = g->set->form->next_ns(g);
    for (unsigned i = 0; i < g->set->slots; i++) {
        uint64_t at = slot_next_ns(&g->slots[i]);
        next = at < next ? at : next;
    }
    return next;
}

void guest_tick(guest *g, uint64_t now)
{
    for (unsigned i = 0; i < g->set->slots; i++)
        slot_tick(&g->slots[i], now);
    g->set->form->tick(g, now);
}

/* ==== Lines =================================================================================== */

dxpu_tags *guest_tags(guest *g, unsigned slot)
{
    return &g->slots[slot - 1].tags;
}

void guest_place(guest *g, unsigned slot, const dxpu_p2p_place *place)
{
    g->slots[slot - 1].p2p.place = *place;
}

void guest_begin(guest *g, unsigned slot)
{
    slot_begin(&g->slots[slot - 1]);
}

void guest_up(guest *g, unsigned slot, const char *whose, uint64_t now)
{
    slot_up(&g->slots[slot - 1], whose, now);
}

bool guest_work(guest *g, unsigned slot, uint64_t now)
{
    bool more = slot_work(&g->slots[slot - 1], now);
    g->set->form->settle(g, slot);
    return more;
}

void guest_detach(guest *g, unsigned slot, uint8_t reason)
{
    slot_close(&g->slots[slot - 1], reason);
}

void guest_down(guest *g, unsigned slot)
{
    slot_down(&g->slots[slot - 1]);
    g->set->form->settle(g, slot); /* no line is left to work on: nothing else would read the
                                      guest again */
}

guest_view guest_look(const guest *g, unsigned slot)
{
    const guest_slot *s = &g->slots[slot - 1];
    bool looks = s->probe.running || (g->set->form->looks && g->set->form->looks(g, slot));
    guest_view v = { .state = looks             ? GUEST_LOOKS
                              : s->probe.failed ? GUEST_UNREADABLE
                              : s->misfit       ? GUEST_NO_ROOM
                                                : GUEST_SHOWN,
                     .to_device = s->down_tlps,
                     .from_device = s->up_tlps,
                     .dropped = s->dropped,
                     .msis_refused = s->msis_refused };
    if (v.state == GUEST_NO_ROOM)
        snprintf(v.note, sizeof v.note, "%.63s", s->note);
    return v;
}

plug_view guest_plug(const guest *g, unsigned slot)
{
    const plug_view none = { PLUG_NONE, false, false };
    return g->set->form->plug ? g->set->form->plug(g, slot) : none;
}

void guest_report(const guest *g, report *r)
{
    g->set->form->report(g, r);
}

void guest_report_slot(const guest *g, unsigned slot, report *r)
{
    slot_report(&g->slots[slot - 1], r);
}

/* Of all sockets together. */
void guest_report_server(const guest *g, report *r)
{
    report_open(r, "vfio_user");
    for (unsigned i = 0; dxpu_vfu_counter_name(i); i++) {
        uint64_t sum = 0;
        for (unsigned n = 0; n < guest_sockets(g->set); n++)
            sum += dxpu_vfu_counter_value(g->set->form->server(g, n), i);
        report_number(r, dxpu_vfu_counter_name(i), sum);
    }
    report_close(r);
}
