/* Start one program in a session of its own, without copying the memory of the process that starts it.
 *
 * The child borrows the memory of its parent until it executes the program (CLONE_VM | CLONE_VFORK), so a failure is
 * reported by writing it to the request. Everything is prepared before; the child makes nothing but system calls, and
 * all signals stay blocked until it has none of the parent's handlers left.
 */
#ifndef RP_SPAWN_H
#define RP_SPAWN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define RP_SPAWN_MAX_FDS 16
#define RP_SPAWN_STACK 32768

enum rp_spawn_step {
    RP_SPAWN_CLONE = 0,
    RP_SPAWN_PIDFD,
    RP_SPAWN_SESSION,
    RP_SPAWN_DESCRIPTORS,
    RP_SPAWN_DIRECTORY,
    RP_SPAWN_EXECUTE
};

struct rp_spawn {
    const char *path;     /* the program, already resolved */
    char **argv;          /* ends with NULL; argv[-1] is a free slot, needed to run a script without #! */
    char **envp;          /* ends with NULL */
    const char *cwd;
    int fds[RP_SPAWN_MAX_FDS];  /* fds[i] becomes descriptor i of the program, all others are closed */
    int nfds;
    /* results */
    int pid;
    int pidfd;
    int error;            /* errno, 0 if the program runs */
    int step;             /* enum rp_spawn_step: what failed */
    /* filled in for the child */
    int parent;
    unsigned last_fd;
};

/* Is the file a text? Then it is a script without #! and not a program for another machine. */
static int rp_spawn_is_text(const char *path)
{
    char head[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return 0;
    got = read(fd, head, sizeof head);
    close(fd);
    return got >= 0 && memchr(head, 0, (size_t)got) == NULL;
}

/* Give descriptors 0..nfds-1 their meaning and close all others; 0 or -1. */
static int rp_spawn_descriptors(const struct rp_spawn *s)
{
    int source[RP_SPAWN_MAX_FDS];

    /* a source that stands in the way of another one moves out of it first */
    for (int i = 0; i < s->nfds; i++) {
        source[i] = s->fds[i];
        if (source[i] < s->nfds && source[i] != i && (source[i] = fcntl(source[i], F_DUPFD_CLOEXEC, s->nfds)) < 0)
            return -1;
    }
    for (int i = 0; i < s->nfds; i++) {
        if (source[i] == i ? fcntl(i, F_SETFD, 0) < 0 : dup2(source[i], i) < 0)
            return -1;
    }
    if (syscall(SYS_close_range, (unsigned)s->nfds, ~0U, 0) != 0) {
        /* Linux before 5.9 */
        for (unsigned fd = (unsigned)s->nfds; fd < s->last_fd; fd++)
            close((int)fd);
    }
    return 0;
}

static void rp_spawn_default_signals(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &action, NULL);  /* refused for SIGKILL and SIGSTOP, which are always default */
}

static void rp_spawn_execute(const struct rp_spawn *s)
{
    char **shell = s->argv - 1;

    execve(s->path, s->argv, s->envp);
    if (errno != ENOEXEC)
        return;
    if (rp_spawn_is_text(s->path)) {
        shell[0] = (char *)"/bin/sh";
        shell[1] = (char *)s->path;
        execve(shell[0], shell, s->envp);
    } else {
        errno = ENOEXEC;
    }
}

static int rp_spawn_fail(struct rp_spawn *s, int step)
{
    s->error = errno;
    s->step = step;
    _exit(127);
    return 127;
}

static int rp_spawn_child(void *request)
{
    struct rp_spawn *s = request;
    sigset_t none;

    rp_spawn_default_signals();
    if (setsid() < 0)
        return rp_spawn_fail(s, RP_SPAWN_SESSION);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return rp_spawn_fail(s, RP_SPAWN_SESSION);
    if (getppid() != s->parent)
        _exit(127);  /* the parent died before the signal was asked for: nobody is there to be told */
    if (rp_spawn_descriptors(s) != 0)
        return rp_spawn_fail(s, RP_SPAWN_DESCRIPTORS);
    if (chdir(s->cwd) != 0)
        return rp_spawn_fail(s, RP_SPAWN_DIRECTORY);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    rp_spawn_execute(s);
    return rp_spawn_fail(s, RP_SPAWN_EXECUTE);
}

static unsigned rp_spawn_last_fd(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 65536)
        return 65536;
    return (unsigned)limit.rlim_cur;
}

/* Run the request: 0 and pid, pidfd, or -1 and error, step. Nothing is left behind by a failure. */
static int rp_spawn_run(struct rp_spawn *s)
{
    char stack[RP_SPAWN_STACK] __attribute__((aligned(16)));
    sigset_t all, before;
    int cause;

    s->pidfd = -1;
    s->error = 0;
    s->step = RP_SPAWN_CLONE;
    s->parent = getpid();
    s->last_fd = rp_spawn_last_fd();
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->pid = clone(rp_spawn_child, stack + RP_SPAWN_STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, s,
                   &s->pidfd);
    cause = errno;
    if (s->pid < 0) {
        s->error = cause;
    } else if (s->error == 0 && s->pidfd < 0) {
        /* Linux before 5.2 ignores CLONE_PIDFD */
        kill(s->pid, SIGKILL);
        s->error = ENOSYS;
        s->step = RP_SPAWN_PIDFD;
    }
    if (s->pid >= 0 && s->error != 0) {
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        if (s->pidfd >= 0)
            close(s->pidfd);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->error == 0 ? 0 : -1;
}

#endif
