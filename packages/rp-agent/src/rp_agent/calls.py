"""Calls of the application to this agent, and the procedures that answer them (see `rp_api.task_modes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.errors import sentence


class Call:
    """A call that is being answered, by exactly one `done` or `fail`; later ones have no effect."""

    def __init__(self, uid: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any],
                 answered: Callable[[Call, Any, str | None, str], object]) -> None:
        self.uid = uid
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self._on_cancel: Callable[[], object] = lambda: None
        self._answered = answered
        self._open = True

    def done(self, value: Any = None) -> None:
        """Answer with a value, plain data."""
        self._answer(value, None, '')

    def fail(self, reason: str, detail: str = '') -> None:
        """Answer with an error.

        Args:
            reason: The error, one sentence.
            detail: The explanation for the user, such as the last lines of an output.
        """
        self._answer(None, reason, detail)

    def when_cancelled(self, callback: Callable[[], object]) -> None:
        """Call back when the caller no longer waits, to end the work on the call."""
        self._on_cancel = callback

    def cancel(self, reason: str) -> None:
        """End the work on the call, and answer with an error."""
        self._on_cancel()
        self.fail(reason)

    def _answer(self, value: Any, reason: str | None, detail: str) -> None:
        if self._open:
            self._open = False
            self._answered(self, value, reason, detail)


Procedure = Callable[[Call], object]
"""Answers a call, at once or later; it must not block. An exception that it raises fails the call."""


class Calls:
    """The procedures by name, and the calls that are not answered yet."""

    def __init__(self) -> None:
        self._procedures: dict[str, dict[str, Procedure]] = {}   # by name and address
        self._open: dict[str, Call] = {}

    def register(self, name: str, procedure: Procedure, address: str = '') -> None:
        """Register the procedure that answers the calls of that name: the agent's or, at an address, that of a task.

        Raises ValueError if the agent has a procedure of the name already.
        """
        known = self._procedures.setdefault(name, {})
        if address and '' in known:
            raise ValueError(f'the agent itself answers {name!r}')
        known[address] = procedure

    def remove(self, name: str, address: str) -> None:
        """Remove the procedure of a task that has ended."""
        known = self._procedures.get(name, {})
        known.pop(address, None)
        if not known:
            self._procedures.pop(name, None)

    def call(self, uid: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any],
             answered: Callable[[Call, Any, str | None, str], object], address: str = '') -> None:
        """Start a call; `answered(call, value, reason, detail)` gets its value, or the reason why it failed.

        Of the procedures that tasks have registered under one name, the address selects one; without, it is the first.
        """
        def ended(call: Call, value: Any, reason: str | None, detail: str) -> None:
            self._open.pop(uid, None)
            answered(call, value, reason, detail)

        call = self._open[uid] = Call(uid, name, args, kwargs, ended)
        known = self._procedures.get(name, {})
        procedure = known.get(address) or (None if address else next(iter(known.values()), None))
        if procedure is None:
            at = f' of {address}' if address else ''
            call.fail(f'the agent has no procedure {name!r}{at}: it has {", ".join(self._names()) or "none"}')
            return
        try:
            procedure(call)
        except Exception as error:   # wrong arguments, most often
            call.fail(sentence(error))

    def _names(self) -> list[str]:
        return sorted(f'{name} of {address}' if address else name
                      for name, known in self._procedures.items() for address in known)

    def cancel(self, uids: Iterable[str], reason: str) -> None:
        """End the open ones of these calls with that reason; ignore all others."""
        for uid in list(uids):
            call = self._open.get(uid)
            if call is not None:
                call.cancel(reason)

    def cancel_all(self, reason: str) -> None:
        """End all open calls with that reason."""
        self.cancel(self._open, reason)


def answer_task(task: AgentTask, value: Any, reason: str | None, detail: str) -> None:
    """Set the result of a task that is a call."""
    if reason is not None:
        task.fail(reason, detail)
    else:
        task.return_value = value
        task.end(states.DONE)
