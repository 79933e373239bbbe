/* To be preloaded: shifts the wall clock by the seconds that the file named by TEST_CLOCK_OFFSET holds (eight bytes), at
 * once whenever they change. The monotonic clocks stay as they are.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("TEST_CLOCK_OFFSET");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *memory;

    if (fd < 0)
        return;
    memory = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        offset = memory;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}
