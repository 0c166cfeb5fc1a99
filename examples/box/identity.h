/* identity.h - who a device is: unique, and the same at every start
   SPDX-License-Identifier: MIT */
#ifndef IDENTITY_H_INCLUDED
#define IDENTITY_H_INCLUDED

#include <stdint.h>

/* The device in a slot of this machine's box.
   files    where its blocks are, as --file has it; the first one counts.  NULL: in memory
   address  where the box listens, which no other box of the machine does; it counts without files,
            for what is in memory is gone when the box ends */
uint64_t identity_of_slot(uint32_t node, unsigned slot, const char *files, const char *address);
/* The same on the machine whose identifier is in this file, instead of /etc/machine-id. */
uint64_t identity_on(const char *machine_file, uint32_t node, unsigned slot, const char *files,
                     const char *address);
/* The identifier in that file, or the machine's name in the network where there is none. */
enum { IDENTITY_MACHINE_BYTES = 256 };
void identity_machine(const char *file, char name[IDENTITY_MACHINE_BYTES]);
/* The device in a slot of the proxy that has this identity (identity_file.h). */
uint64_t identity_of_proxy(const uint8_t identity[16], unsigned slot);
/* The device that somebody has given this name. */
uint64_t identity_of_name(const char *name);

#endif /* IDENTITY_H_INCLUDED */
