/* dxpu_vfio_user_copy.c - see dxpu_vfio_user_copy.h
   SPDX-License-Identifier: MIT

   A mapped page that has no file behind it any more is a SIGBUS for whoever touches it.  The
   handler leaves the copy by siglongjmp(), which interrupts nothing but loads and stores.  This
   costs 2 ns a copy; process_vm_readv() on oneself, which fails instead, costs 2.6 us. */
#define _GNU_SOURCE
#include "dxpu_vfio_user_copy.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* The copy that this thread makes now. */
static _Thread_local struct {
    sigjmp_buf back;
    uintptr_t first; /* of the guest's pages */
    size_t bytes;
    volatile sig_atomic_t active;
    bool unblocked; /* SIGBUS is: a blocked one would end the process */
} now;

static struct sigaction before;
static uintptr_t page_mask;

/* Another's fault: what was there before this handler decides. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        (void)sigaction(number, &before, NULL);
        if (info->si_code <= 0) /* sent by a process; a fault is repeated by itself */
            (void)raise(number);
    }
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr & ~page_mask;
    if (now.active && info->si_code > 0 && info->si_code != BUS_MCEERR_AO && at >= now.first &&
        at - now.first < now.bytes) {
        now.active = 0;
        siglongjmp(now.back, 1);
    }
    pass_on(number, info, context);
}

void vfu_copy_start(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction act, old;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = on_bus;
    /* not blocked in the handler, which is left by a jump that restores no mask */
    act.sa_flags = SA_SIGINFO | SA_NODEFER;
    (void)sigemptyset(&act.sa_mask);
    pthread_mutex_lock(&lock);
    page_mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    if (sigaction(SIGBUS, NULL, &old) == 0 && old.sa_sigaction != on_bus) {
        before = old;
        (void)sigaction(SIGBUS, &act, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void unblock(void)
{
    sigset_t bus;
    (void)sigemptyset(&bus);
    (void)sigaddset(&bus, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    now.unblocked = true;
}

/* To memory that another processor may be watching. */
static void copy_rising(uint8_t *to, const uint8_t *from, size_t n)
{
    if (n > 64) { /* bulk data: only its end is looked at for arrival */
        memcpy(to, from, n - 64);
        to += n - 64;
        from += n - 64;
        n = 64;
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }
    while (n > 0) {
        if (n >= 8 && ((uintptr_t)to & 7) == 0) {
            uint64_t v;
            memcpy(&v, from, sizeof v);
            __atomic_store_n((uint64_t *)(void *)to, v, __ATOMIC_RELEASE);
            to += 8, from += 8, n -= 8;
        } else if (n >= 4 && ((uintptr_t)to & 3) == 0) {
            uint32_t v;
            memcpy(&v, from, sizeof v);
            __atomic_store_n((uint32_t *)(void *)to, v, __ATOMIC_RELEASE);
            to += 4, from += 4, n -= 4;
        } else {
            __atomic_store_n(to, *from, __ATOMIC_RELEASE);
            to++, from++, n--;
        }
    }
}

/* A function of its own: its variables are not in registers that the jump restores. */
__attribute__((noinline)) static void copy(void *local, void *host, size_t n, bool write)
{
    if (write)
        copy_rising((uint8_t *)host, (const uint8_t *)local, n);
    else
        memcpy(local, host, n);
}

bool vfu_copy(void *local, void *host, size_t n, bool write)
{
    uintptr_t at = (uintptr_t)host;
    if (!now.unblocked)
        unblock();
    now.first = at & ~page_mask;
    now.bytes = n + (at & page_mask);
    if (sigsetjmp(now.back, 0))
        return false;
    now.active = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    copy(local, host, n, write);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    now.active = 0;
    return true;
}
