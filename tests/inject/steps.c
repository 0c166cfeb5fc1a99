/* SPDX-License-Identifier: MIT
   How many instructions a copy and a launch take, found in the ways that programs find them: the
   parent lets its child do one at a time.  One line a way, WAY INSTRUCTIONS; exit status 77 where a
   process may not watch its child. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entries.h"
#include "standin.h"

#define PROTOTYPE(base, suffix, version, per_thread, params, ...) CUresult base##suffix params;
ENTRIES(PROTOTYPE)

enum { CALLS = 4, NOT_ALLOWED = 77 };
typedef CUresult copy(CUdeviceptr, const void *, size_t);
typedef CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void **, void **);
typedef CUresult look(const char *, void **, int, unsigned long long);

static const char *const ways[] = { "nothing", "linked", "dlsym", "proc" };
enum { WAYS = sizeof ways / sizeof ways[0] };

static CUdeviceptr gpu;
static CUfunction work;
static copy *copies[WAYS];
static launch *launches[WAYS];

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "steps: error %u\n", result);
        _exit(1);
    }
}

static void *named(void *driver, const char *name)
{
    void *p = dlsym(driver, name);
    if (!p) {
        fprintf(stderr, "steps: no %s\n", name);
        _exit(1);
    }
    return p;
}

static void find(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *p;
    CUcontext ctx;
    CUmodule module;
    look *given;
    must(cuInit(0));
    must(cuCtxCreate_v2(&ctx, 0, 0));
    must(cuMemAlloc_v2(&gpu, 4096));
    must(cuModuleLoadData(&module, "work"));
    must(cuModuleGetFunction(&work, module, "work"));
    copies[1] = cuMemcpyHtoD_v2;
    launches[1] = cuLaunchKernel;
    p = named(driver, "cuMemcpyHtoD_v2");
    memcpy(&copies[2], &p, sizeof p);
    p = named(driver, "cuLaunchKernel");
    memcpy(&launches[2], &p, sizeof p);
    p = named(driver, "cuGetProcAddress");
    memcpy(&given, &p, sizeof p);
    must(given("cuMemcpyHtoD", &p, 12000, 0));
    memcpy(&copies[3], &p, sizeof p);
    must(given("cuLaunchKernel", &p, 12000, 0));
    memcpy(&launches[3], &p, sizeof p);
}

static void calls(unsigned way)
{
    static char host[64];
    uint64_t ns = 1000;
    void *params[] = { &ns };
    for (unsigned i = 0; way && i < CALLS; i++) {
        must(copies[way](gpu, host, sizeof host));
        must(launches[way](work, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    }
}

static void watched(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(NOT_ALLOWED);
    }
    raise(SIGSTOP);
    for (unsigned way = 0; way < WAYS; way++) {
        calls(way); /* what happens once, as the binding of names */
        raise(SIGUSR1);
        calls(way);
        raise(SIGUSR1);
    }
    _exit(0);
}

/* The settings alone, each at a place of its own: how many instructions the C library takes to look
   for one depends on whether a string lies across two pages, so on where the stack begins. */
static void own_environment(void)
{
    enum { SETTINGS = 8, BYTES = 512 };
    static _Alignas(BYTES) char text[SETTINGS][BYTES];
    static char *own[SETTINGS + 1];
    unsigned n = 0;
    for (char **from = environ; *from; from++) {
        bool setting = strncmp(*from, "STANDIN_", 8) == 0 || strncmp(*from, "CUDA_", 5) == 0 ||
                       strncmp(*from, "DXPU_INJECT_", 12) == 0;
        if (setting && (n == SETTINGS || strlen(*from) >= BYTES)) {
            fprintf(stderr, "steps: no room for %s\n", *from);
            exit(1);
        }
        if (setting) {
            own[n] = strcpy(text[n], *from);
            n++;
        }
    }
    environ = own;
}

/* Let it go on, by one instruction or to its next signal; false when it has ended. */
static int step(pid_t child, bool one, int *status)
{
    if (ptrace(one ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL) != 0 ||
        waitpid(child, status, 0) != child) {
        exit(NOT_ALLOWED);
    }
    return WIFSTOPPED(*status);
}

int main(void)
{
    pid_t child;
    int status = 0;
    own_environment();
    find();
    fflush(stdout);
    child = fork();
    if (child == 0) {
        watched();
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        return NOT_ALLOWED;
    }
    for (unsigned way = 0; way < WAYS; way++) {
        unsigned long long count = 0;
        if (!step(child, false, &status) || WSTOPSIG(status) != SIGUSR1) {
            return 1;
        }
        while (step(child, true, &status) && WSTOPSIG(status) == SIGTRAP) {
            count++;
        }
        printf("%s %llu\n", ways[way], count);
    }
    return 0;
}
