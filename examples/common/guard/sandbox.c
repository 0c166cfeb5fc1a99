/* sandbox.c - see sandbox.h
   SPDX-License-Identifier: MIT

   The filter has three answers.  A list of calls is allowed.  Those that start programs, look into
   other processes, or change the system end the process (SIGSYS, which the kernel's audit log
   shows).  All others fail with ENOSYS, on which C libraries fall back to older calls, so that one
   of a later version still runs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "sandbox.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    const sandbox_settings *set; /* NULL: not started, or off */
    bool holds;                  /* capabilities that end with the set-up */
} the;

/* ==== Who ===================================================================================== */

static int wrong(const char *what, const char *remedy)
{
    log_error("%s: %s%s%s", what, strerror(errno), remedy[0] ? "; " : "", remedy);
    return -1;
}

static int nobody(const char *kind, const char *name)
{
    log_error("--user: there is no %s '%s'; useradd --system makes one", kind, name);
    return -1;
}

static bool number(const char *text, unsigned *out)
{
    char *end;
    unsigned long value;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    value = strtoul(text, &end, 10);
    if (*end || errno || value >= UINT32_MAX)
        return false;
    *out = (unsigned)value;
    return true;
}

/* NAME[:GROUP]; the group of a number is the same number. */
static int find_user(const char *text, uid_t *uid, gid_t *gid)
{
    char name[64];
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    const struct passwd *user;
    const struct group *group;
    if (!len || len >= sizeof name)
        return nobody("user", text);
    memcpy(name, text, len);
    name[len] = 0;
    user = getpwnam(name);
    if (user) {
        *uid = user->pw_uid;
        *gid = user->pw_gid;
    } else if (number(name, uid)) {
        *gid = *uid;
    } else {
        return nobody("user", name);
    }
    if (!colon || number(colon + 1, gid))
        return 0;
    group = getgrnam(colon + 1);
    if (!group)
        return nobody("group", colon + 1);
    *gid = group->gr_gid;
    return 0;
}

/* *changed: this process was another user before. */
static int become(const char *text, bool *none, bool *changed)
{
    uid_t uid;
    gid_t gid;
    *none = find_user(text, &uid, &gid) != 0;
    if (*none)
        return -1;
    *changed = uid != geteuid() || gid != getegid();
    if (!*changed)
        return 0;
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
        return wrong("--user", "");
    if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
        return wrong("--user", "only root can change to another user");
    return 0;
}

/* ==== Capabilities ============================================================================ */

#define CAP_WORD(cap) ((cap) / 32u)
#define CAP_BIT(cap)  (1u << (cap) % 32u)

/* Those that opening AF_XDP needs: maps and programs, its sockets, the interface's settings, and
   locked memory for older kernels.  Using it and closing it needs none: the XDP program is detached
   when the descriptor of its bpf_link is closed, also by the end of the process. */
static const unsigned network_capabilities[] = { CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK,
#ifdef CAP_BPF
                                                 CAP_BPF
#endif
};

/* Keeps, in this thread and those that it makes, only what is both permitted and needed; none is
   inheritable, and the bounding set does not matter to a process that can start no program. */
static int drop_capabilities(bool network)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct has[2], keep[2];
    memset(keep, 0, sizeof keep);
    if (syscall(SYS_capget, &head, has))
        return wrong("capabilities cannot be read", "--no-sandbox keeps them");
    for (unsigned i = 0;
         network && i < sizeof network_capabilities / sizeof network_capabilities[0]; i++) {
        unsigned cap = network_capabilities[i];
        keep[CAP_WORD(cap)].permitted |= has[CAP_WORD(cap)].permitted & CAP_BIT(cap);
    }
    for (unsigned i = 0; i < 2; i++)
        keep[i].effective = keep[i].permitted;
    if (syscall(SYS_capset, &head, keep))
        return wrong("capabilities cannot be dropped", "--no-sandbox keeps them");
    the.holds = network;
    return 0;
}

/* Secrets are locked in memory later, without the capability that knows no limit: so the limit goes
   first, where that is allowed. */
static void raise_locked_memory(void)
{
    const struct rlimit no_limit = { RLIM_INFINITY, RLIM_INFINITY };
    (void)setrlimit(RLIMIT_MEMLOCK, &no_limit);
}

/* The set-up is over.  A thread that was made before would keep what this one gives up. */
static int drop_the_rest(void)
{
    return the.holds ? drop_capabilities(false) : 0;
}

/* ==== Domain ================================================================================== */

/* Of <linux/landlock.h>, as of Linux 6.12: older headers and kernels have less of it. */
typedef struct landlock_rules {
    uint64_t files, ports, scoped;
} landlock_rules;
enum {
    LANDLOCK_VERSION_ASKED = 1, /* a flag of create_ruleset */
    LANDLOCK_EXECUTE = 1,
    LANDLOCK_FIRST_FILES = (1 << 13) - 1, /* all that version 1 knows */
    LANDLOCK_REFER = 1 << 13,
    LANDLOCK_TRUNCATE = 1 << 14,
    LANDLOCK_DEVICES = 1 << 15, /* ioctl() */
    LANDLOCK_TCP = 3,           /* bind() and connect() */
    LANDLOCK_ABSTRACT_SOCKETS = 1,
    LANDLOCK_SIGNALS = 2,
    LANDLOCK_WITH_REFER = 2, /* versions */
    LANDLOCK_WITH_TRUNCATE = 3,
    LANDLOCK_WITH_PORTS = 4,
    LANDLOCK_WITH_DEVICES = 5,
    LANDLOCK_WITH_SCOPES = 6,
    LANDLOCK_BENEATH = 1 /* a kind of rule */
};

#if defined SYS_landlock_create_ruleset && !defined __SANITIZE_ADDRESS__

/* Files may be moved between directories, which a domain forbids unless it handles the right. */
static int allow_moves(int rules)
{
    struct {
        uint64_t allowed;
        int32_t folder;
    } __attribute__((packed)) rule = { LANDLOCK_REFER, open("/", O_PATH | O_CLOEXEC) };
    int rc;
    if (rule.folder < 0)
        return -1;
    rc = (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_BENEATH, &rule, 0);
    (void)close(rule.folder);
    return rc;
}

static long domain_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION_ASKED);
}

static int restrict_to(const landlock_rules *want, bool moves)
{
    int rules = (int)syscall(SYS_landlock_create_ruleset, want, sizeof *want, 0), rc;
    if (rules < 0)
        return wrong("Landlock", "--no-sandbox starts without it");
    rc = moves ? allow_moves(rules) : 0;
    rc = rc ? rc : (int)syscall(SYS_landlock_restrict_self, rules, 0);
    if (rc)
        (void)wrong("Landlock", "--no-sandbox starts without it");
    (void)close(rules);
    return rc ? -1 : 0;
}

/* A process in a domain of Landlock traces no process outside, nor opens its memory in /proc; it
   runs no file, and sends no signals out of the domain where the kernel knows such (6.12).  Only
   threads that are made later are in it, so it comes before them.  Without it the filter is all
   (S-124). */
static int enter_domain(void)
{
    landlock_rules want = { LANDLOCK_EXECUTE, 0, 0 };
    long version = domain_version();
    if (version < 1)
        return 0;
    if (version >= LANDLOCK_WITH_REFER)
        want.files |= LANDLOCK_REFER;
    if (version >= LANDLOCK_WITH_SCOPES)
        want.scoped = LANDLOCK_ABSTRACT_SOCKETS | LANDLOCK_SIGNALS;
    return restrict_to(&want, version >= LANDLOCK_WITH_REFER);
}

/* S-201: no file can be opened, made, renamed or removed, and no TCP port used.  Descriptors that
   are open stay as they are. */
static int leave_files(void)
{
    landlock_rules want = { LANDLOCK_FIRST_FILES, 0, 0 };
    long version = domain_version();
    if (version < 1)
        return 0;
    if (version >= LANDLOCK_WITH_REFER)
        want.files |= LANDLOCK_REFER;
    if (version >= LANDLOCK_WITH_TRUNCATE)
        want.files |= LANDLOCK_TRUNCATE;
    if (version >= LANDLOCK_WITH_PORTS)
        want.ports = LANDLOCK_TCP;
    if (version >= LANDLOCK_WITH_DEVICES)
        want.files |= LANDLOCK_DEVICES;
    return restrict_to(&want, false);
}

#else

static long domain_version(void)
{
    return 0;
}

static int enter_domain(void)
{
    return 0;
}

static int leave_files(void)
{
    return 0;
}

#endif

/* Rights that one of the processes of a program does not need, besides system calls. */
static int drop_for(unsigned part)
{
    if (part != SANDBOX_PARENT && drop_the_rest())
        return -1;
    return part != SANDBOX_WORKER && part != SANDBOX_PARENT && the.set ? leave_files() : 0;
}

int sandbox_start(const sandbox_settings *s, bool *wrong_use)
{
    bool changed = false;
    *wrong_use = false;
    if (s->user || !s->off)
        raise_locked_memory(); /* before the user changes, to one without the right */
    if (s->user && become(s->user, wrong_use, &changed))
        return -1;
    if (s->off)
        return changed ? drop_capabilities(s->network) : 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return wrong("no_new_privs", "--no-sandbox starts without it");
    the.set = s;
    return drop_capabilities(s->network) ? -1 : enter_domain();
}

const char *sandbox_hint(int error)
{
    return error == EACCES && the.set ? "; or start it as root with --no-sandbox, which keeps "
                                        "CAP_NET_BIND_SERVICE"
                                      : "";
}

int sandbox_enter(void)
{
    return sandbox_enter_as(SANDBOX_WORKER);
}

/* ==== System calls ============================================================================ */

#if defined __SANITIZE_ADDRESS__ || !defined DXPU_SECCOMP

int sandbox_enter_as(unsigned part)
{
    return drop_for(part);
}

const char *sandbox_name(void)
{
    return domain_version() > 0 ? "Landlock" : "none";
}

#else

#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#if defined __s390__
#define CLONE_FLAGS SCMP_A1 /* the stack comes first */
#else
#define CLONE_FLAGS SCMP_A0
#endif

/* What finds files by their names, beside mode_calls; not names of own descriptors, not fstat(). */
static const char *const paths[] = { "stat",       "lstat",    "stat64",    "lstat64",
                                     "statfs",     "access",   "faccessat", "faccessat2",
                                     "getdents64", "rename",   "renameat",  "renameat2",
                                     "unlink",     "unlinkat", "mkdir",     "mkdirat",
                                     "rmdir",      "link",     "linkat",    "truncate",
                                     "getcwd",     "utimensat" };

static const char *const allowed[] = {
    /* files that are open */
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2",
    "pwritev2", "lseek", "_llseek", "close", "close_range", "fstat", "fstat64", "newfstatat",
    "fstatat64", "statx", "fstatfs", "readlink", "readlinkat", "dup", "dup2", "dup3", "umask",
    /* sockets and waiting */
    "getsockname", "getpeername", "getsockopt", "sendto", "recvfrom", "shutdown", "eventfd2",
    "poll", "ppoll", "select", "_newselect", "pselect6",
    /* memory and threads */
    "munmap", "mremap", "madvise", "mincore", "munlock", "msync", "brk", "futex", "set_robust_list",
    "get_robust_list", "rseq", "set_tid_address", "membarrier", "sched_yield", "sched_getaffinity",
    "sched_getparam", "sched_getscheduler", "exit", "exit_group", "gettid", "getcpu",
    /* time, signals, who am I */
    "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time",
    "times", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait",
    "rt_sigsuspend", "sigaltstack", "sigreturn", "restart_syscall", "getpid", "getppid", "getuid",
    "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "getrlimit",
    "ugetrlimit", "getrusage", "sysinfo", "uname", "getrandom", "capget"
};

/* What a renderer does without: memory that RLIMIT_DATA does not count, descriptors to others and
   from them, sockets with names, other processes' cores (S-245). */
static const char *const unless_rendering[] = {
    "ftruncate", "ftruncate64", "fallocate", "fsync", "fdatasync", "sync_file_range", "fadvise64",
    "flock", "fchown", "fchown32", "copy_file_range", "sendfile", "memfd_create", "mlock", "mlock2",
    "bind", "connect", "listen", "accept", "accept4", "setsockopt", "sendmsg", "sendmmsg",
    "recvmsg", "recvmmsg", "pipe", "pipe2", "timerfd_create", "timerfd_settime", "timerfd_gettime",
    "signalfd4", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "sched_setaffinity",
    /* a guest's eventfd is signalled so, without waiting (S-173) */
    "io_setup", "io_submit", "io_getevents"
};

/* What only somebody asks for who has taken over the process. */
static const char *const processes[] = { "fork", "vfork" };
static const char *const set_up[] = { "bpf", "capset" }; /* for AF_XDP, in a process made later */
static const char *const deadly[] = { "execve",
                                      "execveat",
                                      "ptrace",
                                      "process_vm_readv",
                                      "process_vm_writev",
                                      "process_madvise",
                                      "kcmp",
                                      "pidfd_getfd",
                                      "mount",
                                      "umount2",
                                      "pivot_root",
                                      "chroot",
                                      "move_mount",
                                      "open_tree",
                                      "fsopen",
                                      "fsmount",
                                      "mount_setattr",
                                      "unshare",
                                      "setns",
                                      "init_module",
                                      "finit_module",
                                      "delete_module",
                                      "kexec_load",
                                      "kexec_file_load",
                                      "reboot",
                                      "swapon",
                                      "swapoff",
                                      "keyctl",
                                      "add_key",
                                      "request_key",
                                      "userfaultfd",
                                      "perf_event_open",
                                      "iopl",
                                      "ioperm",
                                      "modify_ldt",
                                      "personality",
                                      "setuid",
                                      "setgid",
                                      "setreuid",
                                      "setregid",
                                      "setresuid",
                                      "setresgid",
                                      "setgroups",
                                      "setfsuid",
                                      "setfsgid",
                                      "acct",
                                      "quotactl",
                                      "syslog",
                                      "sethostname",
                                      "setdomainname",
                                      "settimeofday",
                                      "clock_settime",
                                      "adjtimex",
                                      "clock_adjtime",
                                      "open_by_handle_at",
                                      "mknod",
                                      "mknodat",
                                      "io_uring_setup" };

/* Not allowed anywhere: they give files a mode, too, that of openat2() where no filter sees it. */
static const char *const other_modes[] = { "openat2", "creat" };
enum { FCHMODAT2 = 452 }; /* on all machines; libseccomp knows its name from 2.6 on */

/* Names that this machine does not have are passed over. */
static int add_names(scmp_filter_ctx f, uint32_t action, const char *const *names, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        int call = seccomp_syscall_resolve_name(names[i]);
        if (call >= 0)
            rc = seccomp_rule_add(f, action, call, 0);
    }
    return rc;
}

/* The kernel looks at the lower half alone of an argument that is an int: so do these. */
#define INT_MASK      ((scmp_datum_t)UINT32_MAX)
#define A0_IS(value)  SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, (scmp_datum_t)(uint32_t)(value))
#define A1_IS(value)  SCMP_A1(SCMP_CMP_MASKED_EQ, INT_MASK, (scmp_datum_t)(uint32_t)(value))
#define COUNT(values) (sizeof(values) / sizeof(values)[0])

/* The second argument is one of these. */
static int add_choices(scmp_filter_ctx f, uint32_t action, int call, const unsigned *values,
                       size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && !rc && call >= 0; i++)
        rc = seccomp_rule_add(f, action, call, 1, A1_IS(values[i]));
    return rc;
}

/* As if somebody typed. */
static int end_typing(scmp_filter_ctx f)
{
    static const unsigned typing[] = { TIOCSTI, TIOCLINUX };
    return add_choices(f, SCMP_ACT_KILL_PROCESS, SCMP_SYS(ioctl), typing, COUNT(typing));
}

/* Calls that give a file its mode: which argument that is, and which one says whether a file is
   made (0: none, the mode counts). */
static const struct mode_call {
    const char *name;
    unsigned mode, flags;
} mode_calls[] = { { "chmod", 1, 0 },
                   { "fchmod", 1, 0 },
                   { "fchmodat", 2, 0 },
                   { "open", 2, 1 },
                   { "openat", 3, 2 } };
enum { SET_IDS = S_ISUID | S_ISGID, MADE = O_CREAT | (O_TMPFILE & ~O_DIRECTORY) };

/* With this of SET_IDS in the mode.  Rules of one call compare its arguments in the same order, or
   one that does not match would hide another. */
static int add_mode(scmp_filter_ctx f, uint32_t action, const struct mode_call *c,
                    scmp_datum_t mask, scmp_datum_t value)
{
    static const scmp_datum_t made[] = { O_CREAT, MADE & ~O_CREAT };
    const struct scmp_arg_cmp mode = SCMP_CMP(c->mode, SCMP_CMP_MASKED_EQ, mask, value);
    const int call = seccomp_syscall_resolve_name(c->name);
    int rc = 0;
    if (call < 0)
        return 0;
    if (!c->flags)
        return seccomp_rule_add(f, action, call, 1, mode);
    for (size_t i = 0; i < COUNT(made) && !rc; i++)
        rc = seccomp_rule_add(f, action, call, 2,
                              SCMP_CMP(c->flags, SCMP_CMP_MASKED_EQ, made[i], made[i]), mode);
    return rc;
}

/* No file that others run as its owner or group. */
static int end_set_ids(scmp_filter_ctx f)
{
    int rc = 0;
    for (size_t i = 0; i < COUNT(mode_calls) && !rc; i++) {
        rc = add_mode(f, SCMP_ACT_KILL_PROCESS, &mode_calls[i], S_ISUID, S_ISUID);
        rc = rc ? rc : add_mode(f, SCMP_ACT_KILL_PROCESS, &mode_calls[i], S_ISGID, S_ISGID);
    }
    return rc;
}

static int add_modes(scmp_filter_ctx f)
{
    int rc = end_set_ids(f);
    for (size_t i = 0; i < COUNT(mode_calls) && !rc; i++) {
        const struct mode_call *c = &mode_calls[i];
        const int call = seccomp_syscall_resolve_name(c->name);
        rc = add_mode(f, SCMP_ACT_ALLOW, c, SET_IDS, 0);
        if (c->flags && call >= 0)
            rc = rc ? rc
                    : seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 1,
                                       SCMP_CMP(c->flags, SCMP_CMP_MASKED_EQ, MADE, 0));
    }
    return rc;
}

/* fcntl() without what sends signals to other processes (F_SETOWN, F_SETOWN_EX, F_SETSIG); ioctl()
   as the programs and their libraries need it. */
static int add_controls(scmp_filter_ctx f)
{
    static const unsigned controls[] = { F_DUPFD,      F_DUPFD_CLOEXEC, F_GETFD,     F_SETFD,
                                         F_GETFL,      F_SETFL,         F_OFD_GETLK, F_OFD_SETLK,
                                         F_OFD_SETLKW, F_ADD_SEALS,     F_GET_SEALS, F_GETPIPE_SZ,
                                         F_SETPIPE_SZ, F_GETLK,         F_SETLK,     F_SETLKW },
                          wide[] = { 12, 13, 14 }, /* of fcntl64(), 32-bit machines' locks */
        requests[] = { TCGETS,       TIOCGWINSZ,  FIONREAD,   FIONBIO,       FS_IOC_GETVERSION,
                       SIOCGIFINDEX, SIOCGIFNAME, SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFFLAGS,
                       TUNSETOFFLOAD };
    const int wider = seccomp_syscall_resolve_name("fcntl64");
    int rc = add_choices(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), controls, COUNT(controls));
    rc = rc ? rc : add_choices(f, SCMP_ACT_ALLOW, wider, controls, COUNT(controls));
    rc = rc ? rc : add_choices(f, SCMP_ACT_ALLOW, wider, wide, COUNT(wide));
    rc = rc ? rc : add_choices(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), requests, COUNT(requests));
    return rc ? rc : end_typing(f);
}

/* No new UNIX sockets, which would reach who starts programs for others; those that are there take
   connections.  Pairs are streams, which cannot be connected elsewhere. */
static int add_sockets(scmp_filter_ctx f)
{
    static const int families[] = { AF_INET, AF_INET6, AF_NETLINK };
    const scmp_datum_t type = 0xf; /* beside SOCK_CLOEXEC, SOCK_NONBLOCK */
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, type, SOCK_STREAM));
    for (size_t i = 0; i < COUNT(families) && !rc; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, A0_IS(families[i]));
    return rc;
}

/* Memory without code in it. */
static int add_memory(scmp_filter_ctx f)
{
    const scmp_datum_t exec = PROT_EXEC;
    const struct scmp_arg_cmp plain = SCMP_A2(SCMP_CMP_MASKED_EQ, exec, 0);
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, plain);
    return rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, plain);
}

/* Memory, with code where shaders are compiled: that of a descriptor, or what RLIMIT_DATA counts;
   that has no shared pages and no stacks that grow. */
static int add_counted_memory(scmp_filter_ctx f)
{
    const scmp_datum_t of_none = MAP_ANONYMOUS | MAP_GROWSDOWN, uncounted = of_none | MAP_SHARED,
                       anonymous = MAP_ANONYMOUS;
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                              SCMP_A3(SCMP_CMP_MASKED_EQ, of_none, 0));
    rc = rc ? rc
            : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                               SCMP_A3(SCMP_CMP_MASKED_EQ, uncounted, anonymous));
    return rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 0);
}

/* What a GPU's driver asks of the DRM node that is open: requests of type 'd'. */
static int add_driver(scmp_filter_ctx f)
{
    const scmp_datum_t type = 0xff00, drm = 'd' << 8;
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                            SCMP_A1(SCMP_CMP_MASKED_EQ, type, drm));
}

/* Threads but no processes; clone3, whose flags no filter can see, is not there (ENOSYS).  more:
   SCMP_ACT_ALLOW, or how another thread fails. */
static int add_threads(scmp_filter_ctx f, uint32_t more)
{
    const scmp_datum_t thread = CLONE_THREAD;
    const struct scmp_arg_cmp is_thread = CLONE_FLAGS(SCMP_CMP_MASKED_EQ, thread, thread),
                              no_thread = CLONE_FLAGS(SCMP_CMP_MASKED_EQ, thread, 0);
    int rc = seccomp_rule_add(f, more, SCMP_SYS(clone), 1, is_thread);
    return rc ? rc : seccomp_rule_add(f, SCMP_ACT_KILL_PROCESS, SCMP_SYS(clone), 1, no_thread);
}

/* Calls that are allowed with some arguments; with others they fail as said. */
static int add_conditions(scmp_filter_ctx f)
{
    const struct scmp_arg_cmp self = A0_IS(getpid()), zero = A0_IS(0), nobody_else = A1_IS(0),
                              name = A0_IS(PR_SET_NAME);
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, self);
    rc = rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(kill), 1, self);
    rc = rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, zero);
    /* of this thread alone, which without a capability can only step back */
    rc = rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(setpriority), 2, zero, nobody_else);
    return rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, name);
}

static bool is_renderer(unsigned part)
{
    return part == SANDBOX_RENDERER || part == SANDBOX_GPU_RENDERER;
}

/* In software all threads are there. */
static int add_rendering(scmp_filter_ctx f, unsigned part)
{
    const bool gpu = part == SANDBOX_GPU_RENDERER;
    int rc = add_counted_memory(f);
    rc = rc ? rc : add_threads(f, gpu ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EAGAIN));
    return rc || !gpu ? rc : add_driver(f);
}

static int add_serving(scmp_filter_ctx f)
{
    int rc = add_names(f, SCMP_ACT_ALLOW, unless_rendering, COUNT(unless_rendering));
    rc = rc ? rc : add_memory(f);
    return rc ? rc : add_threads(f, SCMP_ACT_ALLOW);
}

static int build(scmp_filter_ctx f, unsigned part)
{
    int rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (part == SANDBOX_PARENT) { /* its children are under this filter and one of their own */
        rc = rc ? rc : add_names(f, SCMP_ACT_KILL_PROCESS, deadly, COUNT(deadly));
        rc = rc ? rc : end_typing(f);
        rc = rc ? rc : end_set_ids(f);
        rc = rc ? rc : add_names(f, SCMP_ACT_ERRNO(ENOSYS), other_modes, COUNT(other_modes));
        rc = rc ? rc : seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), FCHMODAT2, 0);
        if (!the.holds)
            rc = rc ? rc : add_names(f, SCMP_ACT_KILL_PROCESS, set_up, COUNT(set_up));
        return rc ? rc : seccomp_load(f);
    }
    rc = rc ? rc : add_names(f, SCMP_ACT_ALLOW, allowed, COUNT(allowed));
    rc = rc ? rc : add_names(f, SCMP_ACT_KILL_PROCESS, deadly, COUNT(deadly));
    rc = rc ? rc : add_names(f, SCMP_ACT_KILL_PROCESS, set_up, COUNT(set_up));
    rc = rc ? rc : add_names(f, SCMP_ACT_KILL_PROCESS, processes, COUNT(processes));
    rc = rc ? rc : add_conditions(f);
    rc = rc ? rc : add_controls(f);
    rc = rc ? rc : is_renderer(part) ? add_rendering(f, part) : add_serving(f);
    if (part == SANDBOX_MONITOR) {
        rc = rc ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, A0_IS(AF_UNIX));
    } else if (part == SANDBOX_WORKER) { /* others have all that they need */
        rc = rc ? rc : add_names(f, SCMP_ACT_ALLOW, paths, COUNT(paths));
        rc = rc ? rc : add_modes(f);
        rc = rc ? rc : add_sockets(f);
    }
    return rc ? rc : seccomp_load(f);
}

int sandbox_enter_as(unsigned part)
{
    scmp_filter_ctx f;
    int rc = -ENOMEM;
    if (drop_for(part))
        return -1;
    if (!the.set)
        return 0;
    /* S-125: /proc/self/mem, which writes to code, too, is root's from now on; no core holds a key.
       (Not in builds with a sanitizer, above: the one that looks for leaks traces its process.) */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return wrong("other processes can read its memory", "--no-sandbox starts without it");
    f = seccomp_init(part == SANDBOX_PARENT ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ENOSYS));
    if (f)
        rc = build(f, part);
    seccomp_release(f);
    errno = -rc;
    return rc ? wrong("the filter of system calls", "--no-sandbox starts without it") : 0;
}

const char *sandbox_name(void)
{
    return domain_version() > 0 ? "seccomp and Landlock" : "seccomp";
}

#endif
