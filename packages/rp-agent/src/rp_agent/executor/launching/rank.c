/* rp-rank PLAN: run a rank of a task that needs no shell.
 * rp-rank run NOTES PROGRAM [ARGUMENT]...: run the exec script of a rank that needs one, and note its usage.
 *
 * With a plan, it does the work of an exec script (see rank_script.py) without a shell, `date` and `taskset` for each
 * rank: it finds the number of its rank, applies the share of this rank, notes start and end, and runs the program in
 * between. `rank_program.py` writes the plan and describes its format.
 *
 * All processes that the program starts end with it, also those that have left its session: as this process is their
 * subreaper, they become its children when they lose their parents. Those that outlive the program are killed. After a
 * signal to end they get SIGTERM, and have the rest of the grace period.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FORMAT "rp-rank 2"
#define MAX_CPUS 8192
#define MAX_CHILDREN 1024
#define GRACE 4         /* seconds between SIGTERM and SIGKILL; Flux kills this process after 5 */
#define GUARD 3.0       /* seconds in which the script's guard can notice that the script was killed */
#define GIVE_UP 5.0     /* seconds after SIGKILL before surviving processes are given up */

static const char *launcher = "the launcher", *rank = "?";
static volatile sig_atomic_t program;   /* its pid, 0 if it does not run */
static volatile sig_atomic_t told;      /* a signal to end has been passed on */
static volatile sig_atomic_t late;      /* the grace period after it is over */
static long long own_taken, own_given;  /* bytes that this process itself has read and written before it */

__attribute__((noreturn, format(printf, 2, 3)))
static void fail(int code, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "rank %s, started by %s: ", rank, launcher);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(code);
}

/* The content of a file of NUL-terminated strings. */
struct strings {
    char *next, *end;
};

static struct strings read_strings(const char *path)
{
    struct strings found;
    struct stat about;
    ssize_t got, size = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    if (file < 0 || fstat(file, &about) < 0)
        fail(1, "cannot read %s: %s", path, strerror(errno));
    found.next = malloc(about.st_size + 1);
    if (found.next == NULL)
        fail(1, "no memory for %s", path);
    while (size < about.st_size && (got = read(file, found.next + size, about.st_size - size)) > 0)
        size += got;
    close(file);
    found.end = found.next + size;
    *found.end = '\0';
    return found;
}

static char *text(struct strings *plan)
{
    char *found = plan->next;

    if (found >= plan->end)
        fail(1, "its plan ends too soon");
    plan->next += strlen(found) + 1;
    return found;
}

static long number(struct strings *plan)
{
    return atol(text(plan));
}

static void set(char *assignment)
{
    if (putenv(assignment) != 0)
        fail(1, "cannot set %s: %s", assignment, strerror(errno));
}

/* Set the user's environment from a file, if the launcher does not pass it on. */
static void set_all(const char *path)
{
    struct strings block;

    if (*path == '\0')
        return;
    block = read_strings(path);
    while (block.next < block.end)
        set(text(&block));
}

/* Set RP_RANK, from the first of the next variables that is set; a single rank has none. */
static void find_number(struct strings *plan)
{
    const char *found = "";
    long count = number(plan);

    if (count == 0)
        found = "0";
    for (; count > 0; count--) {
        const char *name = text(plan), *value = getenv(name);
        if (*found == '\0' && value != NULL)
            found = value;
    }
    if (*found == '\0')
        fail(1, "the launcher did not set the number of the rank");
    if (strspn(found, "0123456789") != strlen(found))
        fail(1, "the launcher set the number of the rank to '%s'", found);
    rank = strdup(found);
    setenv("RP_RANK", rank, 1);
}

/* Bind this process to the CPUs of a list like 0-3,8. A rank that cannot be bound prints a warning and runs unbound. */
static void bind_to(const char *list)
{
    static cpu_set_t cpus[CPU_ALLOC_SIZE(MAX_CPUS) / sizeof(cpu_set_t)];
    size_t size = sizeof cpus;
    const char *at = list;

    if (*list == '\0')
        return;
    CPU_ZERO_S(size, cpus);
    while (*at != '\0') {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (; first <= last && first < MAX_CPUS; first++)
            CPU_SET_S(first, size, cpus);
        at = *end == ',' ? end + 1 : "";
    }
    if (sched_setaffinity(0, size, cpus) < 0)
        fprintf(stderr, "rank %s is not bound to the CPUs %s: %s\n", rank, list, strerror(errno));
}

/* Apply the share of this rank: its CPUs, and its own variables. */
static void take_share(struct strings *plan)
{
    long ranks = number(plan), own = atol(rank), share = -1, index, count;

    for (index = 0; index < ranks; index++) {
        long value = number(plan);
        if (index == own)
            share = value;
    }
    if (share < 0)
        fail(1, "there are only %ld ranks", ranks);
    count = number(plan);
    for (index = 0; index < count; index++) {
        const char *cpus = text(plan);
        long variables = number(plan);
        if (index == share)
            bind_to(cpus);
        for (; variables > 0; variables--) {
            char *assignment = text(plan);
            if (index == share)
                set(assignment);
        }
    }
}

/* Append a line by a single write, as all ranks of a task write to the same files. */
__attribute__((format(printf, 2, 3)))
static void append(const char *path, const char *format, ...)
{
    char line[8192];
    va_list values;
    int file, size;

    va_start(values, format);
    size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
        if (size < (int)sizeof line && write(file, line, size) != size)
            fprintf(stderr, "rank %s cannot write to %s: %s\n", rank, path, strerror(errno));
        close(file);
    }
}

static const char *now(void)
{
    static char text_of[40];
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    snprintf(text_of, sizeof text_of, "%lld.%07ld", (long long)time.tv_sec, time.tv_nsec / 100);
    return text_of;
}

#define ROW "%s,%s,,MainThread,%s,AGENT_EXECUTING,%s\n"

static void started(const char *path, const char *uid, int all)
{
    const char *time = now();

    if (*path != '\0' && all)
        append(path, ROW ROW ROW, time, "exec_start", uid, "", time, "exec_pre", uid, "", time, "rank_start", uid, "");
    else if (*path != '\0')
        append(path, ROW, time, "rank_start", uid, "");
}

static void stopped(const char *path, const char *uid, int all, const char *pids)
{
    const char *time = now();

    if (*path != '\0' && all)
        append(path, ROW ROW ROW, time, "rank_stop", uid, pids, time, "exec_post", uid, "", time, "exec_stop", uid, "");
    else if (*path != '\0')
        append(path, ROW, time, "rank_stop", uid, pids);
}

/* Find the bytes that this process, and the children that it has waited for, have read and written by system calls. */
static void find_bytes(long long *taken, long long *given)
{
    FILE *file = fopen("/proc/self/io", "re");

    if (file == NULL || fscanf(file, "rchar: %lld wchar: %lld", taken, given) != 2)
        *taken = *given = 0;
    if (file != NULL)
        fclose(file);
}

/* Return the usage of the program that has ended, as a line of the notes (see rank_script.py). */
static const char *used(void)
{
    static char line[200];
    struct rusage of;
    long long taken, given;

    getrusage(RUSAGE_CHILDREN, &of);
    find_bytes(&taken, &given);
    snprintf(line, sizeof line, "used %lld.%06ld %lld.%06ld %ld %lld %lld %lld\n", (long long)of.ru_utime.tv_sec,
             (long)of.ru_utime.tv_usec, (long long)of.ru_stime.tv_sec, (long)of.ru_stime.tv_usec,
             of.ru_nvcsw + of.ru_nivcsw, 1024LL * of.ru_maxrss, taken - own_taken, given - own_given);
    return line;
}

/* Pass a signal on to the program, once: a sender that also signals the process group, or the launcher, repeats it. */
static void pass_on(int signal)
{
    (void)signal;
    if (told)
        return;
    told = 1;
    if (program > 0)
        kill(program, SIGTERM);
    alarm(GRACE);
}

static void time_is_over(int signal)
{
    (void)signal;
    late = 1;
    if (program > 0)
        kill(program, SIGKILL);
}

/* Start the program; the kernel kills it if this process ends. */
static void start(char **argv)
{
    struct sigaction action = {.sa_handler = pass_on}, timer = {.sa_handler = time_is_over};
    sigset_t ends, before;
    pid_t parent = getpid(), child;
    int missing;

    sigemptyset(&ends);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    find_bytes(&own_taken, &own_given);
    child = fork();
    if (child < 0)
        fail(1, "no process for %s: %s", argv[0], strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[0], argv);
        missing = errno == ENOENT || errno == ENOTDIR;
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        _exit(missing ? 127 : 126);
    }
    program = child;
    sigemptyset(&action.sa_mask);
    sigemptyset(&timer.sa_mask);
    sigaction(SIGALRM, &timer, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Wait for the program and return its wait status; reap adopted processes that end before. */
static int ended(void)
{
    pid_t child;
    int status = 0;

    while ((child = waitpid(-1, &status, 0)) != program)
        if (child < 0 && errno != EINTR)
            fail(1, "cannot wait for its program: %s", strerror(errno));
    program = 0;
    return status;
}

/* Return an exit code, 128 plus the number of the signal for a killed program. */
static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t parent_of(const char *process)
{
    char path[300], line[512], *end;
    ssize_t size;
    int file, parent = 0;

    snprintf(path, sizeof path, "/proc/%s/stat", process);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    size = read(file, line, sizeof line - 1);
    close(file);
    line[size > 0 ? size : 0] = '\0';
    end = strrchr(line, ')');   /* the name before it may contain any character */
    if (end == NULL || sscanf(end + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* Find the children of this process; their pids stay valid until they are reaped. */
static int children(pid_t *found)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    if (processes == NULL)
        return 0;
    while (count < MAX_CHILDREN && (entry = readdir(processes)) != NULL)
        if (*entry->d_name >= '1' && *entry->d_name <= '9' && parent_of(entry->d_name) == getpid())
            found[count++] = atoi(entry->d_name);
    closedir(processes);
    return count;
}

static double seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Send SIGTERM to a child, once. */
static void ask(pid_t child)
{
    static pid_t asked[MAX_CHILDREN];
    static int count;
    int index;

    for (index = 0; index < count; index++)
        if (asked[index] == child)
            return;
    if (count < MAX_CHILDREN) {
        asked[count++] = child;
        kill(child, SIGTERM);
    }
}

/* Kill the processes that the program has left after `delay` seconds; after a signal to end, use its grace period. */
static void end_rest(double delay)
{
    static pid_t found[MAX_CHILDREN];
    const struct timespec moment = {0, 5000000};
    double began = seconds(), killed = 0;
    pid_t child;
    int count;

    for (;;) {
        while ((child = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (child < 0 || (killed > 0 && seconds() - killed > GIVE_UP))
            return;
        count = children(found);
        if (told && !late) {
            while (count > 0)
                ask(found[--count]);
        } else if (late || seconds() - began >= delay) {
            if (killed == 0)
                killed = seconds();
            while (count > 0)
                kill(found[--count], SIGKILL);
        }
        nanosleep(&moment, NULL);
    }
}

/* Run an exec script, which does everything else itself. */
static int run_script(const char *notes, char **argv)
{
    int status;

    launcher = "its launcher";
    start(argv);
    status = ended();
    append(notes, "%s", used());
    end_rest(WIFSIGNALED(status) ? GUARD : 0);
    return code_of(status);
}

static void limit(unsigned long long bytes)
{
    struct rlimit data = {bytes, bytes};

    if (bytes > 0 && setrlimit(RLIMIT_DATA, &data) < 0)
        fail(1, "cannot limit its memory to %llu bytes: %s", bytes, strerror(errno));
}

int main(int argc, char **argv)
{
    struct strings plan;
    const char *uid, *sandbox, *notes, *profile;
    static char **command;
    char pids[80];
    int code, each, ends, status, all;
    long count, index, own = getpid();
    sigset_t none;

    /* the program must not inherit the signals that the launcher ignores or blocks */
    for (each = 1; each < NSIG; each++)
        sigaction(each, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (argc > 3 && strcmp(argv[1], "run") == 0)
        return run_script(argv[2], argv + 3);
    if (argc != 2) {
        fprintf(stderr, "usage: rp-rank PLAN, or rp-rank run NOTES PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    plan = read_strings(argv[1]);
    if (strcmp(text(&plan), FORMAT) != 0)
        fail(1, "%s is not a plan for this program", argv[1]);
    uid = text(&plan);
    launcher = text(&plan);
    sandbox = text(&plan);
    notes = text(&plan);
    ends = number(&plan);
    profile = text(&plan);
    all = number(&plan);
    set_all(text(&plan));
    limit(strtoull(text(&plan), NULL, 10));
    for (count = number(&plan); count > 0; count--)
        set(text(&plan));
    find_number(&plan);
    take_share(&plan);
    for (count = number(&plan); count > 0; count--)
        set(text(&plan));
    snprintf(pids, sizeof pids, "%ld", own);
    setenv("RP_EXEC_PID", pids, 1);
    count = number(&plan);
    command = calloc(count + 1, sizeof *command);
    if (command == NULL)
        fail(1, "no memory for its arguments");
    for (index = 0; index < count; index++)
        command[index] = text(&plan);

    if (strcmp(rank, "0") == 0)
        append(notes, "0 started\n");
    if (chdir(sandbox) < 0) {
        append(notes, "%s 1\n", rank);
        fail(1, "cannot enter %s: %s", sandbox, strerror(errno));
    }
    started(profile, uid, all);
    start(command);
    snprintf(pids, sizeof pids, "RP_EXEC_PID=%ld:RP_RANK_PID=%ld", own, (long)program);
    status = ended();
    code = code_of(status);
    if (code != 0 || ends)
        append(notes, "%s %d\n%s", rank, code, used());
    else
        append(notes, "%s", used());
    stopped(profile, uid, all, pids);
    end_rest(0);
    return code;
}
