/* leak_scan.c - linked into sanitized programs: their leak check skips memory never touched
   SPDX-License-Identifier: MIT

   LeakSanitizer looks for pointers in all writable segments, also in 5 MB of tables of its own,
   and to touch each of their pages first costs more than all else at the end of a program.  A page
   never touched holds what the file has, or zeros, and no pointer to the heap.  So the check sees
   the touched parts of a segment as segments, or the whole where the kernel does not say which
   they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int visitor(struct dl_phdr_info *, size_t, void *);
enum { PAGE = 4096, SEGMENTS = 64, PARTS = 1024 };
static int pagemap = -1; /* once a check has begun */
static unsigned known;   /* entries of it, from page `first` */

/* Of the runtime: where its allocator is, which the check leaves out, in one piece of a segment. */
typedef void range(uintptr_t *from, uintptr_t *end);
extern range allocator __asm__("_ZN6__lsan23GetAllocatorGlobalRangeEPmS0_") __attribute__((weak));

static bool touched(uintptr_t page)
{
    static uint64_t entries[512];
    static uintptr_t first;
    if (page - first >= known) {
        const long got = syscall(SYS_pread64, pagemap, entries, sizeof entries, page * 8);
        known = got < 8 ? 0 : (unsigned)got / 8;
        first = page;
    }
    return !known || entries[page - first] >> 62; /* present, or swapped out */
}

/* Writes a header for each part, the last one with the rest, and returns how many. */
static unsigned split(ElfW(Phdr) * parts, unsigned room, const ElfW(Phdr) * whole, uintptr_t base)
{
    uintptr_t at = base + whole->p_vaddr, end = at + whole->p_memsz, next, own, own_end;
    unsigned n = 0;
    bool in = false;
    allocator(&own, &own_end);
    for (; at < end; at = next) {
        next = (at / PAGE + 1) * PAGE < end ? (at / PAGE + 1) * PAGE : end;
        if (!touched(at / PAGE) && (next <= own || at >= own_end)) {
            in = false;
            continue;
        }
        if (!in && n < room) {
            parts[n] = *whole;
            parts[n++].p_vaddr = at - base;
        }
        parts[n - 1].p_memsz = next - base - parts[n - 1].p_vaddr;
        in = true;
    }
    return n;
}

struct visit {
    visitor *visit;
    void *data;
};

static int visit_parts(struct dl_phdr_info *whole, size_t bytes, void *data)
{
    static ElfW(Phdr) parts[PARTS + SEGMENTS]; /* there is one left for each segment */
    const struct visit *v = data;
    struct dl_phdr_info info = *whole;
    unsigned i;
    if (whole->dlpi_phnum > SEGMENTS)
        return v->visit(whole, bytes, v->data);
    known = 0;
    info.dlpi_phdr = parts;
    info.dlpi_phnum = 0;
    for (i = 0; i < whole->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = whole->dlpi_phdr + i;
        ElfW(Phdr) *to = parts + info.dlpi_phnum;
        const unsigned room = PARTS + i + 1 - info.dlpi_phnum;
        if (h->p_type == PT_LOAD && (h->p_flags & PF_W))
            info.dlpi_phnum = (ElfW(Half))(info.dlpi_phnum + split(to, room, h, info.dlpi_addr));
        else
            parts[info.dlpi_phnum++] = *h;
    }
    return v->visit(&info, bytes, v->data);
}

/* In front of that of libc, for the runtime alone. */
__attribute__((visibility("hidden"))) int dl_iterate_phdr(visitor *visit, void *data)
{
    static int (*real)(visitor *, void *);
    struct visit v = { visit, data };
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return pagemap < 0 ? real(visit, data) : real(visit_parts, &v);
}

/* The runtime asks before each check. */
int __lsan_is_turned_off(void)
{
    const bool can = allocator && sysconf(_SC_PAGESIZE) == PAGE;
    pagemap = can ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
    return 0;
}

/* The runtime guesses where the thread-local data of a library loaded late are.  A wrong guess has
   made the leak check end the program. */
const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0";
}
