/* late.c - see late.h
   SPDX-License-Identifier: MIT */
#include "late.h"
#include "log.h"
#include "status.h"

#include <dlfcn.h>
#include <stdlib.h>

void *late_open(const char *const *names, const char *package)
{
    void *library = NULL;
    for (const char *const *name = names; !library && *name; name++)
        library = dlopen(*name, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        (void)dlopen(names[0], RTLD_LAZY | RTLD_LOCAL); /* the message is about this one */
        log_error("%s: install %s", dlerror(), package);
        exit(PROGRAM_SYSTEM);
    }
    return library;
}

void *late_find(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        log_error("%s: a newer version is required", dlerror());
        exit(PROGRAM_SYSTEM);
    }
    return address;
}
