/* The limit of the machine: how many tasks per second a C program can run, each with its directory and output files.
 *
 *   spawn DIRECTORY COUNT IN_FLIGHT
 *
 * For each task: mkdir, open two files in it, vfork, in the child: dup2 and execve of /bin/true, in the parent: reap.
 * Prints tasks per second. Files are not deleted: that would slow down whoever creates files next.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start(int base, int number) {
    char name[32];
    snprintf(name, sizeof name, "task.%06d", number);
    if (mkdirat(base, name, 0777) != 0) { perror("mkdir"); exit(1); }
    int directory = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int out = openat(directory, "out", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int err = openat(directory, "err", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    char *argv[] = {"/bin/true", NULL}, *envp[] = {NULL};
    if (directory < 0 || out < 0 || err < 0) { perror("open"); exit(1); }
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(out, 1);
        dup2(err, 2);
        execve(argv[0], argv, envp);
        _exit(127);
    }
    if (pid < 0) { perror("vfork"); exit(1); }
    close(directory);
    close(out);
    close(err);
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: spawn DIRECTORY COUNT IN_FLIGHT\n"); return 2; }
    int base = open(argv[1], O_RDONLY | O_DIRECTORY), count = atoi(argv[2]), limit = atoi(argv[3]), running = 0;
    if (base < 0) { perror(argv[1]); return 1; }
    double begin = now();
    for (int number = 0; number < count; number++) {
        if (running == limit) { wait(NULL); running--; }
        start(base, number);
        running++;
    }
    while (running-- > 0) wait(NULL);
    printf("%.0f\n", count / (now() - begin));
    return 0;
}
