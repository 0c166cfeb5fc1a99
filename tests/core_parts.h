/* core_parts.h - the manager's core and what it stands on, in one translation unit
   SPDX-License-Identifier: MIT */
#ifndef CORE_PARTS_H_INCLUDED
#define CORE_PARTS_H_INCLUDED

#include "examples/manager/policy.c"
#include "examples/manager/store.c"
#include "examples/manager/core.c"
#include "examples/manager/core_events.c"
#include "examples/manager/core_history.c"
#include "examples/manager/core_load.c"
#include "examples/manager/core_nodes.c"
#include "examples/manager/core_paths.c"
#include "examples/manager/core_orders.c"
#include "examples/manager/core_record.c"
#include "examples/manager/core_requests.c"
#include "examples/manager/core_retain.c"
#include "examples/manager/core_slots.c"
#include "examples/manager/core_store.c"
#include "examples/manager/core_tables.c"

#endif /* CORE_PARTS_H_INCLUDED */
