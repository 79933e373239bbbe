"""Declarations of requests to create processes."""


cdef extern from "spawn.h" nogil:
    enum:
        RP_SPAWN_MAX_FDS
        RP_SPAWN_STACK
        RP_SPAWN_WAITS
        RP_SPAWN_CLONE
        RP_SPAWN_PIDFD
        RP_SPAWN_SESSION
        RP_SPAWN_DESCRIPTORS
        RP_SPAWN_DIRECTORY
        RP_SPAWN_AFFINITY
        RP_SPAWN_MEMORY
        RP_SPAWN_EXECUTE
        SYS_pidfd_open    # spawn.h defines it where the system headers are too old

    struct rp_spawn:
        const char *path
        char **argv
        char **envp
        const char *cwd
        int fds[16]
        int nfds
        const char *cpus
        size_t cpus_size
        unsigned long long memory
        unsigned long long files
        int gate
        int pid
        int pidfd
        int error
        int step

    int rp_spawn_start(rp_spawn *request, char *stack)
    void rp_spawn_open(rp_spawn *request)


cdef class Variables:
    cdef dict _position
    cdef list _encoded      # owns the texts that `pointers` point to
    cdef char **pointers
    cdef Py_ssize_t count


cdef class Launch:
    cdef rp_spawn request
    cdef char **block           # a free slot, the arguments, NULL, then other data of this request
    cdef char *stack
    cdef tuple kept             # owns the texts that the request points to
    cdef bytes cpus             # owns the CPU mask

    cdef int prepare(self, list argv, object env, bytes cwd, tuple stdio, tuple pass_fds, bytes path, bytes cpus,
                     unsigned long long memory) except -1
    cdef int start(self) except -1
    cdef int bind(self, bytes cpus) except -1
    cdef object error(self)
