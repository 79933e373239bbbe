/* Preloaded into the processes of a pilot, this makes them live on another host, whose clock is wrong: it is ahead by
 * OTHER_HOST_AHEAD seconds. Nothing else is different. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    const char *value = getenv("OTHER_HOST_AHEAD");
    return value ? atol(value) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (result == 0 && id == CLOCK_REALTIME)
        now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

int timespec_get(struct timespec *now, int base) {   /* by which date(1) tells the time */
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* what the host is known by: see rp_api/system/host.py */
ssize_t readlink(const char *restrict path, char *restrict buffer, size_t size) {
    static ssize_t (*real)(const char *, char *, size_t);
    if (!real)
        real = (ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink");
    if (strcmp(path, "/proc/self/ns/pid") != 0)
        return real(path, buffer, size);
    size_t length = size < 10 ? size : 10;
    memcpy(buffer, "other host", length);
    return (ssize_t)length;
}

int uname(struct utsname *name) {
    static int (*real)(struct utsname *);
    if (!real)
        real = (int (*)(struct utsname *))dlsym(RTLD_NEXT, "uname");
    int result = real(name);
    strcpy(name->nodename, "other");
    return result;
}
