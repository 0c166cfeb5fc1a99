/* plan.h - what a slot holds, as --slot N=KIND[,key=value]... says
   SPDX-License-Identifier: MIT */
#ifndef PLAN_H_INCLUDED
#define PLAN_H_INCLUDED

#include "device.h"

enum { PLAN_MODEL_MAX = 31, PLAN_TAP_BYTES = 64 };

typedef struct slot_plan {
    const device_kind *kind; /* NULL: as the slots that no --slot names */
    uint64_t of;             /* the slot of which it is a further function; 0: none */
    unsigned function;       /* its number there, from 1 */
    device_settings set;     /* names of files are this slot's alone */
    char *model;             /* NULL: the box's */
    char attributes[DEVICE_ATTRIBUTES_BYTES]; /* beside its device's own: KEY=VALUE,KEY=VALUE */
    char *files;                              /* what set.file is; NULL: none */
    char *texts[8];                           /* what `set` points to besides */
    unsigned text_count;
} slot_plan;

typedef struct slot_plans {
    slot_plan *slot; /* of each slot, from number 1 on */
    unsigned count;
    const device_kind *const *kinds;
    unsigned kind_count;
    const device_settings *usual; /* what keys do not say */
} slot_plans;

/* Adds what `text` says to p.  NULL, or what is wrong with it (valid until the next call):
   plan_no_memory is no fault of the text. */
extern const char plan_no_memory[];
const char *plan_add(slot_plans *p, const char *text);
/* What `text` says of a slot, KIND[,KEY=VALUE]..., into *p, which is all 0: as plan_add() else. */
const char *plan_read(const slot_plans *all, const char *text, slot_plan *p);
void plan_clear(slot_plan *p);
/* What is wrong with all slots together, when every text was added; NULL: nothing, and functions
   have their numbers. */
const char *plan_check(slot_plans *p);
/* The tap of slot index + 1, of several slots that one option names a tap for. */
const char *plan_tap(const char *tap, unsigned index, char name[PLAN_TAP_BYTES]);
/* The box has the device itself: it is neither another process's nor a card's, nor missing. */
bool plan_is_model(const device_kind *kind);
/* Adds attributes to others; false: there are too many. */
bool plan_attributes(char all[DEVICE_ATTRIBUTES_BYTES], const char *more);
void plan_free(slot_plans *p);

#endif /* PLAN_H_INCLUDED */
