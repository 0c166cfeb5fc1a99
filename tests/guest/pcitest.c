/* pcitest.c - in a guest: have Linux's pci_endpoint_test test a device; reach a BAR's ends; have
   one device copy in another one's memory
   SPDX-License-Identifier: MIT

       pcitest drive             all tests of the driver on /dev/pci-endpoint-test.0
       pcitest far DEVICE BAR    map a BAR of /sys/bus/pci/devices/DEVICE, write and read its ends
       pcitest peer DEVICE OTHER COUNT
                                 DEVICE copies 4 KB within OTHER's BAR 2, COUNT times; no driver

   One line for each test, "ok" or "FAILED" first, and a last line that counts them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The driver's interface, as linux/pcitest.h has it. */
#define TEST_BAR         _IO('P', 0x1)
#define TEST_MSI         _IOW('P', 0x3, int)
#define TEST_WRITE       _IOW('P', 0x4, unsigned long)
#define TEST_READ        _IOW('P', 0x5, unsigned long)
#define TEST_COPY        _IOW('P', 0x6, unsigned long)
#define TEST_MSIX        _IOW('P', 0x7, int)
#define TEST_SET_IRQTYPE _IOW('P', 0x8, int)
#define TEST_CLEAR_IRQ   _IO('P', 0x10)
struct xfer_param {
    unsigned long size;
    unsigned char flags;
};

enum { TYPE_MSI = 1, TYPE_MSIX = 2 };

static unsigned passed, failed;

static void say(bool good, const char *what, unsigned long detail)
{
    printf("%s %s %lu\n", good ? "ok" : "FAILED", what, detail);
    fflush(stdout);
    if (good)
        passed++;
    else
        failed++;
}

/* ==== Driver ================================================================================== */

static int device = -1;
static bool zero_is_good; /* from 6.14 on; before, 1 was success and 0 failure */

static bool test(unsigned long request, unsigned long argument)
{
    int rc = ioctl(device, request, argument);
    return zero_is_good ? rc == 0 : rc == 1;
}

static void learn_version(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    if (uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2)
        zero_is_good = major > 6 || (major == 6 && minor >= 14);
}

#define MISC "/sys/class/misc/pci-endpoint-test.0/device/"

/* How many vectors the kernel gave the driver. */
static unsigned vectors(void)
{
    DIR *d = opendir(MISC "msi_irqs");
    unsigned n = 0;
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* directory: of a device in /sys, with a slash at its end */
static uint64_t bar_bytes(const char *directory, unsigned bar)
{
    char path[160];
    FILE *f;
    unsigned long long start = 0, end = 0, flags;
    bool found = false;
    snprintf(path, sizeof path, "%sresource", directory);
    f = fopen(path, "r");
    if (!f)
        return 0;
    for (unsigned i = 0; i <= bar; i++)
        found = fscanf(f, "%llx %llx %llx", &start, &end, &flags) == 3;
    fclose(f);
    return found && end > start ? end - start + 1 : 0;
}

static void test_bars(void)
{
    for (unsigned bar = 0; bar < 6; bar++) {
        uint64_t bytes = bar_bytes(MISC, bar);
        if (bytes > 1u << 20) /* a dword at a time that would take hours */
            printf("not tested: bar %u, it is large\n", bar);
        else
            say(test(TEST_BAR, bar) == (bytes != 0), bytes ? "bar" : "absence of bar", bar);
    }
}

/* Every vector that there is arrives, and the one behind the last does not. */
static void test_interrupts(int type, unsigned long request, const char *name)
{
    unsigned n;
    char what[32];
    if (!test(TEST_SET_IRQTYPE, (unsigned long)type)) {
        say(false, "setting of irq type", (unsigned long)type);
        return;
    }
    n = vectors();
    snprintf(what, sizeof what, "vectors of %s", name);
    say(n > 0, what, n);
    for (unsigned i = 1; i <= n; i++)
        say(test(request, i), name, i);
    snprintf(what, sizeof what, "absence of %s", name);
    say(!test(request, n + 1), what, n + 1);
}

static void test_transfers(const char *interrupts)
{
    static const unsigned long sizes[] = { 1,    2,     3,     4,      5,       64,         127,
                                           128,  129,   512,   1000,   4095,    4096,       4097,
                                           8191, 65536, 65537, 102400, 1024001, 1024 * 1024 };
    static const struct {
        unsigned long request;
        const char *name;
    } kinds[] = { { TEST_READ, "read" }, { TEST_WRITE, "write" }, { TEST_COPY, "copy" } };
    char what[64];
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct xfer_param p = { sizes[i], 0 };
            snprintf(what, sizeof what, "%s with %s, bytes", kinds[k].name, interrupts);
            say(test(kinds[k].request, (unsigned long)&p), what, sizes[i]);
        }
    }
}

static int drive(void)
{
    device = open("/dev/pci-endpoint-test.0", O_RDWR);
    if (device < 0) {
        printf("FAILED no /dev/pci-endpoint-test.0: %s\n", strerror(errno));
        return 1;
    }
    learn_version();
    test_bars();
    test_interrupts(TYPE_MSI, TEST_MSI, "msi");
    test_transfers("msi");
    test_interrupts(TYPE_MSIX, TEST_MSIX, "msi-x");
    test_transfers("msi-x");
    say(test(TEST_CLEAR_IRQ, 0), "clearing of irqs", 0);
    close(device);
    return 0;
}

/* ==== Far end ================================================================================= */

static void enable(const char *directory)
{
    char path[160];
    int fd;
    snprintf(path, sizeof path, "%senable", directory);
    fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, "1", 1) != 1)
        printf("FAILED %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* One page of the BAR. */
static volatile uint32_t *page(int fd, uint64_t offset)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return p == MAP_FAILED ? NULL : (volatile uint32_t *)p;
}

/* Each place has a value of its own, so that no two of them can be the same memory. */
static void test_ends(int fd, uint64_t bytes)
{
    uint64_t at[6] = { 0, bytes / 4, bytes / 2 - 4, bytes / 2, bytes / 4 * 3, bytes - 4 };
    volatile uint32_t *p[6];
    for (unsigned i = 0; i < 6; i++) {
        p[i] = page(fd, at[i] & ~(uint64_t)4095);
        if (!p[i]) {
            say(false, "mapping of offset", at[i]);
            return;
        }
        p[i] += (at[i] & 4095) / 4;
        say(*p[i] == 0, "fresh memory is zero at", at[i]);
    }
    for (unsigned i = 0; i < 6; i++)
        *p[i] = 0xb0000000u + i;
    for (unsigned i = 0; i < 6; i++)
        say(*p[i] == 0xb0000000u + i, "written and read at", at[i]);
}

static int far_end(const char *name, const char *bar)
{
    char directory[96], path[128];
    uint64_t bytes;
    int fd;
    snprintf(directory, sizeof directory, "/sys/bus/pci/devices/%.40s/", name);
    enable(directory);
    bytes = bar_bytes(directory, (unsigned)strtoul(bar, NULL, 10));
    snprintf(path, sizeof path, "%sresource%.4s", directory, bar);
    fd = open(path, O_RDWR);
    if (fd < 0 || bytes < 4096) {
        printf("FAILED %s: %s\n", path, strerror(errno));
        return 1;
    }
    printf("bar %s has %llu bytes\n", bar, (unsigned long long)bytes);
    test_ends(fd, bytes);
    close(fd);
    return 0;
}

/* ==== From device to device =================================================================== */

enum { COMMAND = 1, STATUS, SOURCE, DESTINATION = 5, SIZE = 7 }; /* dwords of BAR 0 */
enum { COPY = 0x20, COPY_SUCCESS = 0x10, COPY_FAIL = 0x20 };
enum { PAGE_DW = 1024, BOTH_PAGES = 2 * PAGE_DW };

/* BAR 0 or 2 of a device that may be a bus master from now on; *bus is where its bus has it. */
static volatile uint32_t *map_bar(const char *name, unsigned bar, uint64_t *bus)
{
    char directory[96], path[128];
    uint32_t base = 0;
    uint16_t command = 6; /* Memory Space, Bus Master */
    void *p = MAP_FAILED;
    int fd;
    snprintf(directory, sizeof directory, "/sys/bus/pci/devices/%.40s/", name);
    enable(directory);
    snprintf(path, sizeof path, "%sconfig", directory);
    fd = open(path, O_RDWR);
    if (fd < 0 || pwrite(fd, &command, sizeof command, 4) != sizeof command ||
        pread(fd, &base, sizeof base, 0x10 + 4 * (off_t)bar) != sizeof base)
        printf("FAILED %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    *bus = base & ~UINT32_C(15);
    snprintf(path, sizeof path, "%sresource%u", directory, bar);
    fd = open(path, O_RDWR);
    if (fd >= 0)
        p = mmap(NULL, (size_t)BOTH_PAGES * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        printf("FAILED %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* Whether the device says so, in 20 s.  Asked seldom: what is asked is counted as the host's. */
static bool copy(volatile uint32_t *device, uint64_t source, uint64_t destination)
{
    device[SOURCE] = (uint32_t)source;
    device[SOURCE + 1] = (uint32_t)(source >> 32);
    device[DESTINATION] = (uint32_t)destination;
    device[DESTINATION + 1] = (uint32_t)(destination >> 32);
    device[SIZE] = PAGE_DW * 4;
    device[STATUS] = 0;
    device[COMMAND] = COPY;
    for (unsigned i = 0; i < 4000; i++) {
        uint32_t status = device[STATUS];
        if (status & (COPY_SUCCESS | COPY_FAIL))
            return (status & (COPY_SUCCESS | COPY_FAIL)) == COPY_SUCCESS;
        usleep(5000);
    }
    return false;
}

/* From either half of the other one's memory to the other half; a dword of it is another one each
   time. */
static int peer(const char *name, const char *other, unsigned long count)
{
    uint64_t registers, at;
    volatile uint32_t *device = map_bar(name, 0, &registers), *memory = map_bar(other, 2, &at);
    if (!device || !memory)
        return 1;
    for (unsigned i = 0; i < BOTH_PAGES; i++)
        memory[i] = i < PAGE_DW ? 0xb0000000u + i : 0;
    for (unsigned long n = 0; n < count; n++) {
        unsigned from = n % 2 * PAGE_DW, to = PAGE_DW - from;
        bool good;
        memory[from] = (uint32_t)n;
        good = memory[from] == (uint32_t)n; /* it is there before the other device reads it */
        if (!good || !copy(device, at + from * 4, at + to * 4) || memory[to] != (uint32_t)n) {
            say(false, "copy", n);
            return 1;
        }
    }
    for (unsigned i = 1; i < PAGE_DW; i++) {
        if (memory[i] != 0xb0000000u + i || memory[PAGE_DW + i] != 0xb0000000u + i) {
            say(false, "dword", i);
            return 1;
        }
    }
    say(true, "copies in another device's memory", count);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 2;
    if (argc == 2 && !strcmp(argv[1], "drive"))
        rc = drive();
    else if (argc == 4 && !strcmp(argv[1], "far"))
        rc = far_end(argv[2], argv[3]);
    else if (argc == 5 && !strcmp(argv[1], "peer"))
        rc = peer(argv[2], argv[3], strtoul(argv[4], NULL, 10));
    else
        fprintf(stderr, "usage: pcitest drive | far DEVICE BAR | peer DEVICE OTHER COUNT\n");
    printf("pcitest: %u passed, %u failed\n", passed, failed);
    return rc ? rc : failed != 0;
}
