/* SPDX-License-Identifier: MIT
   The ways in which a program comes by a function of the driver.  A direct link binds to the
   wrappers, since they are preloaded; dlsym, dlvsym and cuGetProcAddress are hooked to give them
   out.  While nothing is to be injected or profiled they give out the driver's own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "hooks.h"

static const struct known {
    const char *name, *base;
    int version, per_thread;
    function hook;
} known[ENTRY_COUNT] = {
#define KNOWN(base, suffix, version, per_thread, ...)                                              \
    { #base #suffix, #base, version, per_thread, (function)hook_##base##suffix },
#define KNOWN_PLAIN(base, suffix, version, ...) KNOWN(base, suffix, version, 0, )
    ENTRIES(KNOWN) LOOKUPS(KNOWN_PLAIN) LIFETIME(KNOWN_PLAIN)
};

_Atomic(function) inject_reals[ENTRY_COUNT];
static _Atomic(void *) driver_handle;

/* C knows no conversion between the two. */
static function as_function(void *p)
{
    function f;
    memcpy(&f, &p, sizeof f);
    return f;
}

static void *as_pointer(function f)
{
    void *p;
    memcpy(&p, &f, sizeof p);
    return p;
}

/* ---- the C library's own dlsym: ours hides it, so its symbol table is read.  Nothing of the C
   library is called here: whoever replaces those functions may be what is asking for a symbol. */

static bool same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++, b++;
    }
    return *a == *b;
}

static bool file_is(const char *path, const char *name)
{
    const char *file = path;
    for (const char *c = path; *c; c++) {
        file = *c == '/' ? c + 1 : file;
    }
    return same(file, name);
}

typedef void *lookup(void *handle, const char *name);
typedef void *versioned_lookup(void *handle, const char *name, const char *version);
__attribute__((visibility("hidden"))) lookup *inject_real_dlsym;
__attribute__((visibility("hidden"))) versioned_lookup *inject_real_dlvsym;

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hash; /* DT_GNU_HASH */
};

static struct symbols symbols_of(const struct link_map *map)
{
    struct symbols s = { 0 };
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB) {
            s.table = at;
        } else if (d->d_tag == DT_STRTAB) {
            s.names = at;
        } else if (d->d_tag == DT_GNU_HASH) {
            s.hash = at;
        }
    }
    return s;
}

static void *symbol_in(const struct link_map *map, const char *name)
{
    struct symbols s = symbols_of(map);
    if (!s.table || !s.names || !s.hash || !s.hash[0]) {
        return NULL;
    }
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++) {
        hash = hash * 33 + (unsigned char)*c;
    }
    const uint32_t *buckets = s.hash + 4 + s.hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = buckets + s.hash[0];
    uint32_t i = buckets[hash % s.hash[0]];
    for (bool last = i < s.hash[1]; !last; i++) {
        uint32_t have = chain[i - s.hash[1]];
        last = have & 1;
        if ((have | 1) == (hash | 1) && s.table[i].st_shndx != SHN_UNDEF &&
            same(s.names + s.table[i].st_name, name)) {
            return (void *)(map->l_addr + s.table[i].st_value);
        }
    }
    return NULL;
}

static void *symbol_of_libc(const char *name)
{
    void *found = NULL;
    for (const struct link_map *m = _r_debug.r_map; m && !found; m = m->l_next) {
        if (file_is(m->l_name, "libc.so.6") || file_is(m->l_name, "libdl.so.2")) {
            found = symbol_in(m, name);
        }
    }
    return found;
}

static void find_libc(void)
{
    if (!inject_real_dlsym) {
        inject_real_dlvsym = (versioned_lookup *)as_function(symbol_of_libc("dlvsym"));
        inject_real_dlsym = (lookup *)as_function(symbol_of_libc("dlsym"));
    }
}

/* ---- the driver's functions */

const char *inject_name(enum entry e)
{
    return known[e].name;
}

function inject_driver(const char *name)
{
    find_libc();
    void *handle = atomic_load(&driver_handle);
    if (!handle) {
        handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* keeps it loaded */
        if (handle) {
            atomic_store(&driver_handle, handle);
        }
    }
    return inject_real_dlsym ? as_function(inject_real_dlsym(handle ? handle : RTLD_NEXT, name))
                             : NULL;
}

function inject_real(enum entry e)
{
    function real = inject_found(e);
    if (!real) {
        real = inject_driver(known[e].name);
        if (real == known[e].hook) {
            real = NULL;
        }
        atomic_store(&inject_reals[e], real);
    }
    return real;
}

static function real_or(enum entry e, function otherwise)
{
    function real = inject_real(e);
    if (!real) {
        real = otherwise;
        atomic_store(&inject_reals[e], real);
    }
    return real;
}

/* ---- dlsym, dlvsym */

static enum entry entry_named(const char *name)
{
    int e = 0;
    while (e < ENTRY_COUNT && strcmp(known[e].name, name) != 0) {
        e++;
    }
    return (enum entry)e;
}

struct answer {
    void *address;
    uintptr_t given; /* or else the caller is to ask the C library */
};
struct answer inject_answer(void *handle, const char *name, const char *version);

__attribute__((visibility("hidden"), used)) struct answer
inject_answer(void *handle, const char *name, const char *version)
{
    struct answer answer = { NULL, 0 };
    find_libc();
    if (!name || name[0] != 'c' || name[1] != 'u') {
        return answer;
    }
    enum entry e = entry_named(name);
    if (e == ENTRY_COUNT || !inject_real_dlsym) {
        return answer;
    }
    inject_start();
    answer.given = 1;
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) {
        answer.address = version && inject_real_dlvsym ? inject_real_dlvsym(handle, name, version)
                                                       : inject_real_dlsym(handle, name);
        if (answer.address && as_function(answer.address) != known[e].hook &&
            !atomic_load(&driver_handle)) {
            inject_driver(name); /* libcuda.so.1, if there is one, is the driver */
            void *none = NULL;
            atomic_compare_exchange_strong(&driver_handle, &none, handle);
        }
        if (!answer.address) {
            return answer;
        }
    }
    if (!answer.address || as_function(answer.address) == known[e].hook) {
        answer.address = inject_real_dlsym(RTLD_NEXT, name); /* behind this library */
    }
    if (answer.address && inject_active &&
        real_or(e, as_function(answer.address)) == as_function(answer.address)) {
        answer.address = as_pointer(known[e].hook);
    }
    return answer;
}

/* The C library finds RTLD_NEXT and RTLD_DEFAULT by its return address, so it is jumped to, and
   sees the program as its caller. */
#if defined(__x86_64__)
#define TRAMPOLINE(name, version)                                                                  \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"                    \
            " .cfi_startproc\n"                                                                    \
            " endbr64\n"                                                                           \
            " push %rdi\n push %rsi\n push %rdx\n"                                                 \
            " .cfi_adjust_cfa_offset 24\n" version " call inject_answer\n"                         \
            " mov %rdx, %rcx\n"                                                                    \
            " pop %rdx\n pop %rsi\n pop %rdi\n"                                                    \
            " .cfi_adjust_cfa_offset -24\n"                                                        \
            " test %rcx, %rcx\n jz 1f\n ret\n"                                                     \
            "1: jmp *inject_real_" #name "(%rip)\n"                                                \
            " .cfi_endproc\n.size " #name ", . - " #name "\n")
TRAMPOLINE(dlsym, " xor %edx, %edx\n");
TRAMPOLINE(dlvsym, "");
#elif defined(__aarch64__)
#define TRAMPOLINE(name, version)                                                                  \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n"                    \
            " hint #34\n"                                                                          \
            " stp x29, x30, [sp, #-48]!\n mov x29, sp\n"                                           \
            " stp x0, x1, [sp, #16]\n str x2, [sp, #32]\n" version " bl inject_answer\n"           \
            " mov x17, x0\n mov x16, x1\n"                                                         \
            " ldp x0, x1, [sp, #16]\n ldr x2, [sp, #32]\n ldp x29, x30, [sp], #48\n"               \
            " cbz x16, 1f\n mov x0, x17\n ret\n"                                                   \
            "1: adrp x16, inject_real_" #name "\n ldr x16, [x16, #:lo12:inject_real_" #name "]\n"  \
            " br x16\n.size " #name ", . - " #name "\n")
TRAMPOLINE(dlsym, " mov x2, #0\n");
TRAMPOLINE(dlvsym, "");
#endif /* elsewhere only direct links and cuGetProcAddress are hooked */

/* ---- cuGetProcAddress */

/* By address; by name, version and kind of default stream where the driver hands out addresses
   that it does not export. */
static enum entry entry_given(const char *symbol, function f, int version, unsigned long long flags)
{
    int best = ENTRY_COUNT;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    for (int e = 0; e < ENTRY_COUNT; e++) {
        if (inject_real((enum entry)e) == f) {
            return (enum entry)e;
        }
        if (strcmp(known[e].base, symbol) == 0 && known[e].version <= version &&
            known[e].per_thread <= per_thread &&
            (best == ENTRY_COUNT || known[e].per_thread > known[best].per_thread ||
             (known[e].per_thread == known[best].per_thread &&
              known[e].version > known[best].version))) {
            best = e;
        }
    }
    return (enum entry)best;
}

static void give_hook(CUresult result, const char *symbol, void **found, int version,
                      unsigned long long flags)
{
    if (!inject_active || inject_depth || result != CUDA_SUCCESS || !symbol || !found || !*found) {
        return;
    }
    enum entry e = entry_given(symbol, as_function(*found), version, flags);
    if (e != ENTRY_COUNT) {
        real_or(e, as_function(*found));
        *found = as_pointer(known[e].hook);
    }
}

CUresult hook_cuGetProcAddress(const char *symbol, void **found, int version,
                               unsigned long long flags)
{
    inject_start();
    CUresult (*real)(const char *, void **, int, unsigned long long) = (CUresult(*)(
        const char *, void **, int, unsigned long long))inject_real(ENTRY_cuGetProcAddress);
    if (!real) {
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    }
    CUresult result = real(symbol, found, version, flags);
    give_hook(result, symbol, found, version, flags);
    return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **found, int version,
                                  unsigned long long flags, void *status)
{
    inject_start();
    CUresult (*real)(const char *, void **, int, unsigned long long, void *) =
        (CUresult(*)(const char *, void **, int, unsigned long long, void *))inject_real(
            ENTRY_cuGetProcAddress_v2);
    if (!real) {
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    }
    CUresult result = real(symbol, found, version, flags, status);
    give_hook(result, symbol, found, version, flags);
    return result;
}

#define EXPORTED_LOOKUP(base, suffix, version, params, args) EXPORTED(base, suffix, params)
LOOKUPS(EXPORTED_LOOKUP)
