"""Starting processes at the cost of the system call.

Everything is prepared before the child exists, and the child makes only system calls (spawn.h). Rules for callers:

- A started program is killed (SIGKILL) when the *thread* that started it ends, as the kernel counts parents by thread
  (PR_SET_PDEATHSIG). So tasks are started from the thread that lives as long as the agent.
- The program leads a session and a process group of its own, whose number is its pid.
- Signal handlers and the signal mask are the default ones. SIGPIPE, which Python ignores, ends the program as usual.
- Needs Linux 5.3, for process file descriptors.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport strlen


cdef extern from "spawn.h" nogil:
    enum:
        RP_SPAWN_MAX_FDS
        RP_SPAWN_CLONE
        RP_SPAWN_PIDFD
        RP_SPAWN_SESSION
        RP_SPAWN_DESCRIPTORS
        RP_SPAWN_DIRECTORY
        RP_SPAWN_EXECUTE

    struct rp_spawn:
        const char *path
        char **argv
        char **envp
        const char *cwd
        int fds[16]
        int nfds
        int pid
        int pidfd
        int error
        int step

    int rp_spawn_run(rp_spawn *request)


cdef dict _ACTIONS = {
    RP_SPAWN_CLONE: 'cannot create a process',
    RP_SPAWN_PIDFD: 'cannot get a process file descriptor (needs Linux 5.3)',
    RP_SPAWN_SESSION: 'cannot create a session',
    RP_SPAWN_DESCRIPTORS: 'cannot pass on the open files',
    RP_SPAWN_DIRECTORY: 'cannot enter the working directory',
    RP_SPAWN_EXECUTE: 'cannot execute',
}


cdef char *_text(object value) except NULL:
    """The C string in a bytes object, which must outlive it."""
    if not isinstance(value, bytes):
        raise TypeError(f'need bytes, not {type(value).__name__}: {value!r}')
    cdef char *text = PyBytes_AS_STRING(value)
    if <Py_ssize_t>strlen(text) != PyBytes_GET_SIZE(value):
        raise ValueError(f'a NUL character cannot be passed to a program: {value!r}')
    return text


cdef int _fill(char **target, list values) except -1:
    """Write the C strings of `values` and a closing NULL to `target`."""
    cdef Py_ssize_t index
    for index in range(len(values)):
        target[index] = _text(values[index])
    target[len(values)] = NULL
    return 0


cdef object _error(rp_spawn *request, bytes path, bytes cwd):
    """The exception that says what failed, on which path."""
    cdef str action = _ACTIONS[request.step]
    text = f'{action}: {os.strerror(request.error)}'
    if request.step == RP_SPAWN_EXECUTE:
        return OSError(request.error, text, os.fsdecode(path))
    if request.step == RP_SPAWN_DIRECTORY:
        return OSError(request.error, text, os.fsdecode(cwd))
    return OSError(request.error, text)


def spawn(list argv not None, list env not None, bytes cwd not None, int stdin_fd, int stdout_fd, int stderr_fd,
          tuple pass_fds=(), bytes path=None):
    """Start a program; gives its pid and a process file descriptor, which the caller has to close.

    `argv` are its arguments from the name on, `env` its whole environment as b'NAME=value', `cwd` its working
    directory, `path` the program if it is not argv[0]; nothing is searched for. The descriptors `pass_fds` become 3,
    4, ... of the program; all others are closed for it. A text file without #! is run by /bin/sh.
    Raises OSError with errno, a text that says which step failed, and the path if there is one; TypeError and
    ValueError for what cannot be passed to a program.
    """
    cdef rp_spawn request
    cdef Py_ssize_t index, nargs = len(argv), nenv = len(env), nfds = 3 + len(pass_fds)
    cdef char **block
    cdef int code

    if nargs == 0:
        raise ValueError('argv is empty: it needs at least the name of the program')
    if nfds > RP_SPAWN_MAX_FDS:
        raise ValueError(f'cannot pass {len(pass_fds)} file descriptors, the limit is {RP_SPAWN_MAX_FDS - 3}')
    program = argv[0] if path is None else path
    request.path = _text(program)
    request.cwd = _text(cwd)
    request.fds[0] = stdin_fd
    request.fds[1] = stdout_fd
    request.fds[2] = stderr_fd
    for index in range(3, nfds):
        request.fds[index] = pass_fds[index - 3]
    request.nfds = <int>nfds
    # one block: a free slot, the arguments, NULL, the environment, NULL
    block = <char **>malloc(<size_t>(nargs + nenv + 3) * sizeof(char *))
    if block == NULL:
        raise MemoryError()
    try:
        request.argv = block + 1
        request.envp = block + nargs + 2
        _fill(request.argv, argv)
        _fill(request.envp, env)
        code = rp_spawn_run(&request)
    finally:
        free(block)
    if code != 0:
        raise _error(&request, program, cwd)
    return request.pid, request.pidfd
