"""The graph of dependencies among tasks that wait, as plain data.

An edge costs one reference: each task that others wait for has a list of these. Each waiting task counts the conditions
that are still to be met. A list is freed when its task ends, so each edge is looked at once when it is added and once
when it is resolved. A waiting task that was taken out stays in lists until these are freed, without its description.
"""

cimport cython

from rp_agent.dependencies.ends import End
from rp_agent.dependencies.ends import not_run
from rp_api import states
from rp_api.description.after import DONE as _DONE

cdef str _STATE = states.DONE


@cython.auto_pickle(False)
@cython.final
cdef class Waiting:
    """A task that waits: its description, packed, and the number of conditions to be met; -1 if it waits no more."""

    cdef readonly str uid
    cdef public bytes description
    cdef readonly Py_ssize_t missing

    def __init__(self, str uid not None, bytes description not None):
        self.uid = uid
        self.description = description
        self.missing = 0


@cython.auto_pickle(False)
@cython.final
cdef class Graph:
    """Tasks that wait, and those that they wait for."""

    cdef dict _waiting
    cdef dict _dependents   # by uid of the task that is waited for; with the condition, if it is not DONE

    def __cinit__(self):
        self._waiting = {}
        self._dependents = {}

    def __len__(self):
        return len(self._waiting)

    def __contains__(self, uid):
        return uid in self._waiting

    def __iter__(self):
        return iter(self._waiting.values())

    def dependents(self, str uid not None):
        """Return the tasks that wait for this one."""
        entries = [entry if isinstance(entry, Waiting) else entry[0] for entry in self._dependents.get(uid, ())]
        return [waiting for waiting in entries if waiting.missing > 0]

    def add(self, tasks, end_of):
        """Add tasks (uid, `after`, packed description); return those that may run, and the others with reasons.

        `end_of(uid)` returns how a task has ended, or None; it is called for tasks that are not waited for yet, and do
        not wait. So it learns of all tasks whose end has to be passed to `settle`.
        """
        cdef list new = [], released = [], doomed = []
        cdef Waiting waiting
        for uid, after, description in tasks:   # all first: they may be after each other, in any order
            waiting = Waiting(uid, description)
            self._waiting[uid] = waiting
            new.append((waiting, after))
        for waiting, after in new:
            reason = self._link(waiting, after, end_of)
            if reason is not None:
                doomed.append((waiting, reason))
            elif not waiting.missing:
                released.append(waiting)
        for waiting in released:
            self._drop(waiting)
        for waiting, _ in doomed:
            self._drop(waiting)
        return self._spread(released, doomed)

    def settle(self, ends):
        """Resolve the conditions on tasks that have ended; of several ends of a task, the first one counts."""
        cdef list released = [], doomed = []
        for uid, end in ends:
            self._settle(uid, end, released, doomed)
        return self._spread(released, doomed)

    def take(self, uids):
        """Remove those of these tasks that wait, and return them."""
        cdef list taken = [self._waiting[uid] for uid in dict.fromkeys(uids) if uid in self._waiting]
        cdef Waiting waiting
        for waiting in taken:
            self._drop(waiting)
        return taken

    cdef str _link(self, Waiting waiting, after, end_of):
        """Add the edges of a task; return why it will not run, if that is known."""
        cdef dict dependents = self._dependents
        cdef dict others = self._waiting
        cdef dict conditions = after if isinstance(after, dict) else None
        cdef str condition = _DONE
        cdef object entry = waiting
        cdef object found
        for uid in after:
            if conditions is not None:
                condition = conditions[uid]
                entry = waiting if condition == _DONE else (waiting, condition)
            found = dependents.get(uid)
            if found is not None:
                (<list> found).append(entry)
                waiting.missing += 1
                continue
            end = None if uid in others else end_of(uid)
            if end is None:
                dependents[uid] = [entry]
                waiting.missing += 1
            elif not end.meets(condition):
                return not_run(waiting.uid, uid, end.reason or f'is {end.state}')
        return None

    cdef int _settle(self, uid, end, list released, list doomed) except -1:
        cdef list dependents = self._dependents.pop(uid, None)
        cdef Waiting waiting
        cdef bint done, met
        if dependents is None:
            return 0
        done = end.state == _STATE
        for entry in dependents:
            if type(entry) is Waiting:
                waiting, met = entry, done
            else:
                waiting, met = entry[0], end.meets(entry[1])
            if waiting.missing < 0:
                continue
            if not met:
                self._drop(waiting)
                doomed.append((waiting, not_run(waiting.uid, uid, end.reason or f'is {end.state}')))
                continue
            waiting.missing -= 1
            if not waiting.missing:
                self._drop(waiting)
                released.append(waiting)
        return 0

    cdef tuple _spread(self, list released, list doomed):
        """Resolve the conditions on tasks that will not run, too, and so on; `doomed` grows meanwhile."""
        cdef Waiting waiting
        for waiting, reason in doomed:
            self._settle(waiting.uid, End(states.CANCELED, reason[len(waiting.uid) + 1:]), released, doomed)
        return released, doomed

    cdef int _drop(self, Waiting waiting) except -1:
        del self._waiting[waiting.uid]
        waiting.missing = -1
        return 0
