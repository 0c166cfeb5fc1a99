/* policy_internal.h - which lease the data of a slot are kept for: of policy.c and its simulation
   SPDX-License-Identifier: MIT */
#ifndef POLICY_INTERNAL_H_INCLUDED
#define POLICY_INTERNAL_H_INCLUDED

#include "policy.h"

/* The slot's data are kept for a lease, for the place that it had there. */
void pool_own(pool *p, uint32_t at, uint32_t lease, unsigned place);
/* They are kept no longer. */
void pool_disown(pool *p, uint32_t at);

#endif /* POLICY_INTERNAL_H_INCLUDED */
