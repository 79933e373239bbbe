"""Declarations of what the kernel tells about the usage of processes."""


cdef extern from "<sys/resource.h>" nogil:
    struct timeval:
        long tv_sec
        long tv_usec

    struct rusage:
        timeval ru_utime
        timeval ru_stime
        long ru_maxrss
        long ru_nvcsw
        long ru_nivcsw

    enum:
        RUSAGE_SELF

    int getrusage(int who, rusage *used)


cdef extern from "<sys/syscall.h>" nogil:
    enum:
        SYS_waitid


cdef int bytes_of(int pid, long long *taken, long long *given) noexcept
