/* pool_print.h - the manager's objects as people read them
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_PRINT_H
#define DXPU_CLI_POOL_PRINT_H

#include "pool_table.h"

#define POOL_BOX_TITLES  "+node|name|!state|+slots|+free|+leased|+broken|since|addresses|program"
#define POOL_HOST_TITLES "+node|name|!state|+slots|+free|+leased|owner|since|program"
#define POOL_SLOT_TITLES                                                                           \
    "#slot|model|!state|#lease|reason|health|box|box name|group|+epoch|serial|attributes"
#define POOL_LEASE_TITLES "#lease|!state|host|model|slots|tenant|ends|need|key|data"
#define POOL_EVENT_TITLES "+event|at|type|#lease|where|text"

void pool_box_row(pool_table *t, const json_t *o);
void pool_host_row(pool_table *t, const json_t *o);
void pool_slot_row(pool_table *t, const json_t *o);
void pool_lease_row(pool_table *t, const json_t *o);
/* A lease's host: its number, and its name where the manager gives it. */
void pool_host_cell(pool_table *t, const json_t *o);
void pool_event_row(pool_table *t, const json_t *event);
/* The slots of a lease. */
void pool_slots_cell(pool_table *t, const json_t *slots);

bool pool_is_overview(const json_t *o);
/* Counts, then a table of the models. */
void pool_print_overview(const json_t *o, FILE *out, unsigned width, bool color);
/* " (its box is disconnected)" or "", of a slot of a lease. */
const char *pool_print_away(const json_t *slot);
/* "lease c00000003: slot 10.3 is slot 1 of host 12", a line for each of its slots. */
void pool_print_lease_slots(const json_t *lease, FILE *out);

#endif
