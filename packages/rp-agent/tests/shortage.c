/* To be preloaded: makes calls fail as they do when the machine is short of something. The file named by TEST_SHORTAGE
 * holds two numbers of eight bytes: which call fails (0 none, 1 making a file, 2 making a process), and the errno.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { MAKE_FILE = 1, MAKE_PROCESS = 2 };

static volatile const int64_t *shortage;

__attribute__((constructor)) static void open_shortage(void)
{
    const char *path = getenv("TEST_SHORTAGE");
    int fd = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    void *memory;

    if (fd < 0)
        return;
    memory = mmap(NULL, 2 * sizeof *shortage, PROT_READ, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        shortage = memory;
    close(fd);
}

static int fails(int call)
{
    if (shortage == NULL || shortage[0] != call)
        return 0;
    errno = (int)shortage[1];
    return 1;
}

static int open_file(int directory, const char *path, int flags, mode_t mode)
{
    if ((flags & O_CREAT) && fails(MAKE_FILE))
        return -1;
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

#define MODE(last) \
    va_list more; \
    mode_t mode; \
    va_start(more, last); \
    mode = va_arg(more, mode_t); \
    va_end(more)

int open(const char *path, int flags, ...)
{
    MODE(flags);
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags);
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    MODE(flags);
    return open_file(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
    MODE(flags);
    return open_file(directory, path, flags, mode);
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
    static int (*real)(int (*)(void *), void *, int, void *, ...);
    va_list more;
    void *parent, *tls, *child;

    va_start(more, argument);
    parent = va_arg(more, void *);
    tls = va_arg(more, void *);
    child = va_arg(more, void *);
    va_end(more);
    if (fails(MAKE_PROCESS))
        return -1;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "clone");
    return real(function, stack, flags, argument, parent, tls, child);
}
