/* twice.c - preloaded: a name server that changes its mind (net_secure.py)
   SPDX-License-Identifier: MIT

   "twice.invalid" is this machine's address, but for the question whose number is DXPU_FAR: there
   it is DXPU_FAR_AT. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

typedef int answer(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    static unsigned long asked;
    const char *far = getenv("DXPU_FAR"), *at = getenv("DXPU_FAR_AT");
    answer *next;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&next, &symbol, sizeof next);
    if (node && far && at && !strcmp(node, "twice.invalid")) {
        asked++;
        node = asked == strtoul(far, NULL, 10) ? at : "127.0.0.1";
    }
    return next(node, service, hints, found);
}
