/* core_parts.h - the manager's core and what it stands on, in one translation unit
   SPDX-License-Identifier: MIT */
#ifndef CORE_PARTS_H_INCLUDED
#define CORE_PARTS_H_INCLUDED

#include "policy.c"
#include "store.c"
#include "core.c"
#include "core_events.c"
#include "core_history.c"
#include "core_load.c"
#include "core_nodes.c"
#include "core_paths.c"
#include "core_orders.c"
#include "core_record.c"
#include "core_requests.c"
#include "core_retain.c"
#include "core_slots.c"
#include "core_store.c"
#include "core_tables.c"

#endif /* CORE_PARTS_H_INCLUDED */
