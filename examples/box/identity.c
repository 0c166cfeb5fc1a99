/* identity.c - see identity.h
   SPDX-License-Identifier: MIT

   Two boxes with one node number must not be one another's twins: Linux refuses a second disk of
   the same NQN.  So the machine counts as well, and of what a machine has once: a file, a port. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* realpath() */
#endif
#include "identity.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MACHINE_FILE "/etc/machine-id"
enum { PATH_BYTES = 4096 };

/* FNV-1a */
static uint64_t hash_byte(uint64_t h, uint8_t byte)
{
    return (h ^ byte) * 0x100000001b3u;
}

/* With the zero at the end: "ab", "c" is not "a", "bc". */
static uint64_t hash_text(uint64_t h, const char *text)
{
    do {
        h = hash_byte(h, (uint8_t)*text);
    } while (*text++);
    return h;
}

/* Its low bits are poor until they are mixed; every step can be undone, so nothing is lost. */
static uint64_t hash_end(uint64_t h)
{
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

static uint64_t hash_begin(void)
{
    return 0xcbf29ce484222325u;
}

void identity_machine(const char *file, char name[IDENTITY_MACHINE_BYTES])
{
    FILE *f = fopen(file, "r");
    name[0] = '\0';
    if (f) {
        if (!fgets(name, IDENTITY_MACHINE_BYTES, f))
            name[0] = '\0';
        fclose(f);
    }
    name[strcspn(name, "\n")] = '\0';
    if (!name[0])
        (void)gethostname(name, IDENTITY_MACHINE_BYTES - 1);
    name[IDENTITY_MACHINE_BYTES - 1] = '\0';
}

/* The same from any working directory, and before the file is made as after. */
static void first_path(const char *files, char path[PATH_BYTES])
{
    char name[PATH_BYTES], copy[PATH_BYTES], *real;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(files, ","), files);
    snprintf(path, PATH_BYTES, "%s", name);
    real = realpath(name, NULL);
    if (real) {
        snprintf(path, PATH_BYTES, "%s", real);
    } else {
        memcpy(copy, name, sizeof copy);
        real = realpath(dirname(copy), NULL);
        if (real) {
            size_t len = strlen(real);
            len = len > 1 ? len : 0; /* the root ends with its slash */
            memcpy(copy, name, sizeof copy);
            snprintf(path, PATH_BYTES, "%.*s/%s", (int)len, real, basename(copy));
        }
    }
    free(real);
}

static uint64_t identity_within(const char *machine, uint32_t node, unsigned slot,
                                const char *files, const char *address)
{
    char path[PATH_BYTES], numbers[32];
    uint64_t h = hash_begin();
    snprintf(numbers, sizeof numbers, "%u/%u", (unsigned)node, slot);
    h = hash_text(hash_text(h, machine), numbers);
    if (files)
        first_path(files, path);
    h = hash_text(hash_text(h, files ? "file" : "memory"), files ? path : address);
    return hash_end(h);
}

uint64_t identity_on(const char *machine_file, uint32_t node, unsigned slot, const char *files,
                     const char *address)
{
    char machine[IDENTITY_MACHINE_BYTES];
    identity_machine(machine_file, machine);
    return identity_within(machine, node, slot, files, address);
}

uint64_t identity_of_slot(uint32_t node, unsigned slot, const char *files, const char *address)
{
    static char machine[IDENTITY_MACHINE_BYTES]; /* read once, not for each slot */
    if (!machine[0])
        identity_machine(MACHINE_FILE, machine);
    return identity_within(machine, node, slot, files, address);
}

uint64_t identity_of_proxy(const uint8_t identity[16], unsigned slot)
{
    uint64_t h = hash_begin();
    char number[16];
    for (unsigned i = 0; i < 16; i++)
        h = hash_byte(h, identity[i]);
    snprintf(number, sizeof number, "%u", slot);
    return hash_end(hash_text(h, number));
}

uint64_t identity_of_name(const char *name)
{
    return hash_end(hash_text(hash_text(hash_begin(), "name"), name));
}
