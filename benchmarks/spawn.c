/* The limit of the machine: how many processes per second a C program can start and reap, and at what cost.
 *
 *   spawn bare COUNT IN_FLIGHT              vfork and execve of /bin/true; wait
 *   spawn files COUNT IN_FLIGHT DIRECTORY   the same, each in a directory of its own, standard output and error in files
 *   spawn agent COUNT IN_FLIGHT DIRECTORY   the same, with all that an agent needs to keep hold of its tasks: a session
 *                                           of its own, death with the parent, no other open files, signals blocked
 *                                           until execve; pidfd and epoll for the end, then the whole group is killed
 *
 * Prints one JSON object: tasks per second, and microseconds of CPU time per task of this program and of the tasks.
 * Files are not deleted: that would slow down whoever creates files next.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

extern char **environ;
enum mode { BARE, FILES, AGENT };

static enum mode mode;
static int base = -1, events = -1, null_fd = -1;
static pid_t self;
static sigset_t all, before;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What the child does before execve in mode `agent`. */
static void isolate(int directory, int out, int err) {
    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self) _exit(126);
    if (dup2(null_fd, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || fchdir(directory) != 0) _exit(126);
    syscall(SYS_close_range, 3U, ~0U, 0U);   /* where there is none, execve closes them */
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static pid_t run(int directory, int out, int err) {
    char *argv[] = {"/bin/true", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        if (mode == AGENT) {
            isolate(directory, out, err);
        } else if (mode == FILES) {
            dup2(out, 1);
            dup2(err, 2);
        }
        execve(argv[0], argv, environ);
        _exit(127);
    }
    if (pid < 0) fail("vfork");
    return pid;
}

static void watch(pid_t pid) {
    struct epoll_event event = {.events = EPOLLIN};
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    /* both numbers come back with the event */
    event.data.u64 = (uint64_t)pid << 32 | (unsigned)pidfd;
    if (pidfd < 0 || epoll_ctl(events, EPOLL_CTL_ADD, pidfd, &event) != 0) fail("pidfd");
}

static void start(int number) {
    char name[32];
    if (mode == BARE) {
        run(-1, -1, -1);
        return;
    }
    snprintf(name, sizeof name, "task.%06d", number);
    if (mkdirat(base, name, 0777) != 0) fail("mkdir");
    int directory = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int out = openat(directory, "out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int err = openat(directory, "err", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (directory < 0 || out < 0 || err < 0) fail("open");
    if (mode == AGENT) {
        sigprocmask(SIG_BLOCK, &all, &before);
        pid_t pid = run(directory, out, err);
        sigprocmask(SIG_SETMASK, &before, NULL);
        watch(pid);
    } else {
        run(directory, out, err);
    }
    close(directory);
    close(out);
    close(err);
}

static void check(int good) {
    if (!good) {
        fprintf(stderr, "a task failed\n");
        exit(1);
    }
}

/* Wait until a task has ended, and reap it with all others that have: their number. */
static int reap(void) {
    struct epoll_event ended[16];
    siginfo_t info;
    int status;
    if (mode != AGENT) {
        check(wait(&status) > 0 && status == 0);
        return 1;
    }
    int count = epoll_wait(events, ended, 16, -1);
    for (int index = 0; index < count; index++) {
        int pidfd = (int)(ended[index].data.u64 & 0xffffffff);
        /* the number of the group is not used again before the process is reaped */
        if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOWAIT) != 0) fail("waitid");
        kill(-(pid_t)(ended[index].data.u64 >> 32), SIGKILL);
        waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED);
        close(pidfd);
        check(info.si_code == CLD_EXITED && info.si_status == 0);
    }
    return count;
}

/* Microseconds per task. */
static double cost(struct timeval time, int count) {
    return ((double)time.tv_sec * 1e6 + (double)time.tv_usec) / count;
}

static int usage(void) {
    fprintf(stderr, "usage: spawn bare COUNT IN_FLIGHT | spawn files|agent COUNT IN_FLIGHT DIRECTORY\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *const names[] = {"bare", "files", "agent"};
    if (argc < 4) return usage();
    while (mode <= AGENT && strcmp(names[mode], argv[1]) != 0) mode++;
    int count = atoi(argv[2]), limit = atoi(argv[3]), running = 0;
    if (mode > AGENT || count < 1 || limit < 1 || argc != (mode == BARE ? 4 : 5)) return usage();
    if (mode != BARE && (base = open(argv[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) fail(argv[4]);
    events = epoll_create1(EPOLL_CLOEXEC);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    self = getpid();
    sigfillset(&all);

    double begin = now();
    for (int number = 0; number < count; number++) {
        if (running == limit) running -= reap();
        start(number);
        running++;
    }
    while (running > 0) running -= reap();
    double seconds = now() - begin;

    struct rusage own, tasks;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &tasks);
    printf("{\"rate\": %.1f, \"cpu\": {\"C program\": [%.1f, %.1f, %.1f, %.1f]}}\n", count / seconds,
           cost(own.ru_utime, count), cost(own.ru_stime, count), cost(tasks.ru_utime, count),
           cost(tasks.ru_stime, count));
    return 0;
}
