/* Start one program in a new session, without copying the memory of the parent process.
 *
 * The child shares the memory of its parent until it executes the program (CLONE_VM). Everything is prepared before, and
 * the child makes only raw system calls: the wrappers of the C library set errno, which the parent uses at the same
 * time. A failure is written to the request. All signals stay blocked until the child has reset the parent's handlers.
 *
 * `rp_spawn_start` does not wait for the child: the request, the data that it points to, and the stack must stay
 * unchanged until the child has ended or is known to have executed the program.
 *
 * With a closed gate, a started request stops before it executes its program, with everything but its affinity set,
 * until `rp_spawn_open`: a process can thus be created in advance. If RP_SPAWN_WAITS is not 0, that is impossible, as
 * the parent waits for the child.
 */
#ifndef RP_SPAWN_H
#define RP_SPAWN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define RP_SPAWN_MAX_FDS 16
#define RP_SPAWN_STACK 8192

enum rp_spawn_step {
    RP_SPAWN_CLONE = 0,
    RP_SPAWN_PIDFD,
    RP_SPAWN_SESSION,
    RP_SPAWN_DESCRIPTORS,
    RP_SPAWN_DIRECTORY,
    RP_SPAWN_AFFINITY,
    RP_SPAWN_MEMORY,
    RP_SPAWN_EXECUTE
};

struct rp_spawn {
    const char *path;     /* path of the program */
    char **argv;          /* ends with NULL; argv[-1] is a free slot, needed to run a script without #! */
    char **envp;          /* ends with NULL */
    const char *cwd;
    int fds[RP_SPAWN_MAX_FDS];  /* fds[i] becomes descriptor i of the program, all others are closed */
    int nfds;
    const char *cpus;     /* CPU mask in the kernel's form, or NULL to inherit */
    size_t cpus_size;
    unsigned long long memory;  /* limit of the data of each process in bytes, 0 for no limit */
    unsigned long long files;   /* limit of open files, 0 for that of this process */
    int gate;             /* while this is 1, the child waits before it sets its affinity and executes the program */
    /* results */
    int pid;
    int pidfd;
    int error;            /* errno of the step that failed; 0 if none has failed so far */
    int step;             /* enum rp_spawn_step: the step that failed */
    /* filled in for the child */
    int parent;
    uint64_t signals;     /* signals whose action is not the default */
};

/* Make a system call without the C library; return its result, or a negative errno. */
#if defined(__x86_64__)
#define RP_SPAWN_WAITS 0
static inline long rp_call(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;

    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define RP_SPAWN_WAITS 0
static inline long rp_call(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
#else
/* on other machines the parent waits, and does not use errno at the same time */
#define RP_SPAWN_WAITS CLONE_VFORK
static inline long rp_call(long number, long a, long b, long c, long d, long e)
{
    long result = syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
}
#endif

/* Return whether the file is a text: a script without #!, not a program for another machine. */
static int rp_spawn_is_text(const char *path)
{
    char head[256];
    long fd = rp_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0), got;

    if (fd < 0)
        return 0;
    got = rp_call(SYS_read, fd, (long)head, sizeof head, 0, 0);
    rp_call(SYS_close, fd, 0, 0, 0, 0);
    for (long index = 0; index < got; index++)
        if (head[index] == 0)
            return 0;
    return got >= 0;
}

/* Move the descriptors to 0..nfds-1 and close all others; return 0 or a negative errno. */
static long rp_spawn_descriptors(const struct rp_spawn *s)
{
    long source[RP_SPAWN_MAX_FDS], got;

    /* first move sources whose numbers are targets out of the way */
    for (int i = 0; i < s->nfds; i++) {
        source[i] = s->fds[i];
        if (source[i] < s->nfds && source[i] != i
            && (source[i] = rp_call(SYS_fcntl, source[i], F_DUPFD_CLOEXEC, s->nfds, 0, 0)) < 0)
            return source[i];
    }
    for (int i = 0; i < s->nfds; i++) {
        got = source[i] == i ? rp_call(SYS_fcntl, i, F_SETFD, 0, 0, 0) : rp_call(SYS_dup3, source[i], i, 0, 0, 0);
        if (got < 0)
            return got;
    }
    if (rp_call(SYS_close_range, s->nfds, ~0U, 0, 0, 0) != 0) {
        /* Linux older than 5.9 */
        uint64_t limit[2] = {0};

        if (rp_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)limit, 0) < 0 || limit[0] > 65536)
            limit[0] = 65536;
        for (uint64_t fd = (uint64_t)s->nfds; fd < limit[0]; fd++)
            rp_call(SYS_close, (long)fd, 0, 0, 0, 0);
    }
    return 0;
}

/* Return the signals that this process handles or ignores, bit 0 for signal 1. The queries cost as much as everything
 * else that a child does; the result is therefore cached for a second. */
static uint64_t rp_spawn_signals(void)
{
    static uint64_t found;
    static time_t until = -1;
    uint64_t action[8] = {0};  /* the kernel's struct: the handler is its first member, and the default is all zero */
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec > until) {
        until = now.tv_sec;
        found = 0;
        for (int number = 1; number <= 64; number++)
            if (rp_call(SYS_rt_sigaction, number, 0, (long)action, 8, 0) == 0 && action[0] != 0)
                found |= (uint64_t)1 << (number - 1);
    }
    return found;
}

static void rp_spawn_default_signals(uint64_t signals)
{
    uint64_t action[8] = {0};

    for (; signals != 0; signals &= signals - 1)
        rp_call(SYS_rt_sigaction, __builtin_ctzll(signals) + 1, (long)action, 0, 8, 0);
}

/* Limit the number of open files: this process may have raised its own limit. */
static long rp_spawn_limit_files(unsigned long long files)
{
    uint64_t limit[2];
    long got = rp_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)limit, 0);

    if (got < 0)
        return got;
    limit[0] = limit[1] < files ? limit[1] : files;
    return rp_call(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)limit, 0, 0);
}

/* Limit private writable memory, not the address space, of which programs reserve much more than they use. */
static long rp_spawn_limit_memory(unsigned long long bytes)
{
    uint64_t limit[2];
    long got = rp_call(SYS_prlimit64, 0, RLIMIT_DATA, 0, (long)limit, 0);

    if (got < 0)
        return got;
    if (limit[1] > bytes)  /* RLIM_INFINITY is the largest number */
        limit[1] = bytes;
    limit[0] = limit[1];
    return rp_call(SYS_prlimit64, 0, RLIMIT_DATA, (long)limit, 0, 0);
}

static long rp_spawn_execute(const struct rp_spawn *s)
{
    char **shell = s->argv - 1;
    long got = rp_call(SYS_execve, (long)s->path, (long)s->argv, (long)s->envp, 0, 0);

    if (got != -ENOEXEC || !rp_spawn_is_text(s->path))
        return got;
    shell[0] = (char *)"/bin/sh";
    shell[1] = (char *)s->path;
    return rp_call(SYS_execve, (long)shell[0], (long)shell, (long)s->envp, 0, 0);
}

static int rp_spawn_fail(struct rp_spawn *s, int step, long result)
{
    s->error = (int)-result;
    s->step = step;
    rp_call(SYS_exit_group, 127, 0, 0, 0, 0);
    return 127;
}

static int rp_spawn_child(void *request)
{
    struct rp_spawn *s = request;
    uint64_t none = 0;
    long got;

    rp_spawn_default_signals(s->signals);
    if ((got = rp_call(SYS_setsid, 0, 0, 0, 0, 0)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_SESSION, got);
    if ((got = rp_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_SESSION, got);
    if (rp_call(SYS_getppid, 0, 0, 0, 0, 0) != s->parent)
        rp_call(SYS_exit_group, 127, 0, 0, 0, 0);  /* the parent died before PR_SET_PDEATHSIG */
    if ((got = rp_spawn_descriptors(s)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_DESCRIPTORS, got);
    if (s->files != 0 && (got = rp_spawn_limit_files(s->files)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_DESCRIPTORS, got);
    if ((got = rp_call(SYS_chdir, (long)s->cwd, 0, 0, 0, 0)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_DIRECTORY, got);
    while (__atomic_load_n(&s->gate, __ATOMIC_ACQUIRE) != 0)
        rp_call(SYS_futex, (long)&s->gate, FUTEX_WAIT_PRIVATE, 1, 0, 0);
    if (s->cpus != NULL
        && (got = rp_call(SYS_sched_setaffinity, 0, (long)s->cpus_size, (long)s->cpus, 0, 0)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_AFFINITY, got);
    if (s->memory != 0 && (got = rp_spawn_limit_memory(s->memory)) < 0)
        return rp_spawn_fail(s, RP_SPAWN_MEMORY, got);
    rp_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, 8, 0);
    return rp_spawn_fail(s, RP_SPAWN_EXECUTE, rp_spawn_execute(s));
}

/* Start the request without waiting for the child, on a stack of RP_SPAWN_STACK bytes; see above for the data that must
 * stay unchanged. Return 0 and set pid, pidfd, or return -1 and set error, step. */
static inline int rp_spawn_start(struct rp_spawn *s, char *stack)
{
    sigset_t all, before;
    int cause;

    s->pidfd = -1;
    s->error = 0;
    s->step = RP_SPAWN_CLONE;
    s->parent = getpid();
    s->signals = rp_spawn_signals();
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->pid = clone(rp_spawn_child, stack + RP_SPAWN_STACK, CLONE_VM | CLONE_PIDFD | SIGCHLD | RP_SPAWN_WAITS, s,
                   &s->pidfd);
    cause = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->pid < 0) {
        s->error = cause;
        return -1;
    }
    if (s->pidfd < 0) {
        /* Linux older than 5.2 ignores CLONE_PIDFD */
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        s->error = ENOSYS;
        s->step = RP_SPAWN_PIDFD;
        return -1;
    }
    if (s->cpus != NULL && RP_SPAWN_WAITS == 0)
        /* the child does so as well; if it does not run yet, this saves a migration */
        sched_setaffinity(s->pid, s->cpus_size, (const cpu_set_t *)s->cpus);
    return 0;
}

/* Open the gate of a child; its affinity can be changed until then. */
static inline void rp_spawn_open(struct rp_spawn *s)
{
    /* so that it wakes up on its CPUs; if this fails, the child tries again and reports the error */
    if (s->cpus != NULL && sched_setaffinity(s->pid, s->cpus_size, (const cpu_set_t *)s->cpus) == 0)
        s->cpus = NULL;
    __atomic_store_n(&s->gate, 0, __ATOMIC_RELEASE);
    syscall(SYS_futex, &s->gate, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif
