"""The engine of a master: one thread with a loop that serves the agent, the workers and the applications."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from reprlib import repr as short  # abbreviates long and deeply nested values
from typing import Any

from rp_api import states
from rp_api.errors import CoordinationError, PilotError
from rp_api.failures.kinds import SIGNAL
from rp_api.loop.event_loop import Loop
from rp_api.loop.soon import Soon
from rp_api.raptor_link import beside, link_file, master_file
from rp_api.system.network import address_towards
from rp_api.system.owner_process import OwnerProcess
from rp_api.transport.access import Access
from rp_raptor.client.caller import Failed, Results
from rp_raptor.master.agent_link import AgentLink
from rp_raptor.master.connections import Peers
from rp_raptor.master.hooks import STOP, Hooks, Procedures, Request
from rp_raptor.master.local import LocalCaller
from rp_raptor.master.tasks import Filter, Task, Tasks, described
from rp_raptor.master.workers import Workers
from rp_raptor.objects.reference import ObjectRef
from rp_raptor.wire.parts import Part
from rp_raptor.wire.payload import encode_error, values_directory

UNPROVEN = 16
"""Tasks that a master requests before it knows the capacity of its workers."""

HOOKS_TIMEOUT, TERM_HOOKS_TIMEOUT = 10.0, 1.0
"""Seconds that hooks may take at the end for finished tasks: in general, and after SIGTERM, as the agent sends SIGKILL
after 5 s."""

DRAIN = 0.25
"""Seconds for the last messages of a worker, or a part of one, whose end the agent has reported."""

LINGER = 1.0
"""Seconds at the end for pending messages to be sent."""

SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread has to yield the interpreter."""

WorkerHook = Callable[[dict[str, Any], str], object]

_log = logging.getLogger('radical.pilot.raptor')


class Core:
    """The part of a master outside of the user's code; methods may be called from any thread, but not in a fork.

    A hook is None if the master does not override it. `over` is called, in some thread, when the master has to end.
    """

    def __init__(self, uid: str, pilot_sandbox: str, retries: int, over: Callable[[], object], *,
                 request_cb: Filter | None, result_cb: Filter | None, worker_state_cb: WorkerHook | None) -> None:
        access = Access.load(link_file(pilot_sandbox, os.environ.get('RP_PARTITION_ID', '')))
        # the loop's thread yields the interpreter at each message, and would wait up to 5 ms (the default) to get it
        # back while the user's code is busy
        sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))
        self.uid = uid
        self.process = OwnerProcess(uid)
        self.error: BaseException | None = None   # the failure that has ended the master
        self.workers = Workers(self._worker_changed)
        self._over = over
        self._hooks_timeout = HOOKS_TIMEOUT
        self._reason = ''   # of the end
        self._worker_state_cb = worker_state_cb
        self.pilot_sandbox = pilot_sandbox
        self._own_workers: set[str] = set()
        self._callers: set[LocalCaller] = set()
        self._futures: Hooks | None = None   # the thread in which futures get their results
        self._closed = False
        self._lock = threading.Lock()
        self._asked = 0   # requested tasks that have not arrived
        self._taking = self._ending = False
        self._hooks = Hooks(f'{uid}.hooks')
        self._loop = Loop()
        self.procedures = Procedures(uid, partial(self._loop.call_soon, self._answer))
        self._peers = Peers(self._loop, uid, _interface(access.address), beside(access.address), self,
                            self.workers, retries)
        self._router = self._peers.router
        self._agent = AgentLink(self._loop, self._peers.context, access, uid, self._peers.applications_access, self)
        self._ask_soon = Soon(self._loop, self._ask)
        self._tasks = Tasks(self._router, self._agent, request_cb, result_cb, self._hooks.hook, self._loop.call_soon,
                            self._changed)
        self._file = master_file(pilot_sandbox, uid)
        self._peers.workers_access.save(self._file)
        self._thread = threading.Thread(target=self._run, name=f'{uid}.loop', daemon=True)
        self._thread.start()
        atexit.register(self._leave)   # for programs that do not stop the master, or cannot

    def start(self) -> None:
        """Accept tasks, and call hooks, from now on."""
        self.process.check()
        self._hooks.open()
        self._loop.call_soon(self._start_taking)

    def hurry(self) -> None:
        """Use the short timeout for hooks at the end."""
        self._hooks_timeout = TERM_HOOKS_TIMEOUT

    def stop(self, reason: str) -> None:
        """Begin to end, for this reason."""
        self.process.check()
        self._loop.call_soon(self._end, reason)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if `timeout` has passed."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def open_caller(self, on_results: Results, on_failed: Failed, attributes: Mapping[str, Any] | None,
                    apart: bool) -> LocalCaller:
        """Open a source of calls; results are reported in the loop's thread or, if `apart`, in a thread for them."""
        self.process.check()
        if apart:
            with self._lock:
                self._futures = self._futures or Hooks(f'{self.uid}.futures')
            on_results = partial(self._futures.call, on_results)
            on_failed = partial(self._futures.call, on_failed)
        caller = LocalCaller(self._loop, self._router, self._peers.deal_soon, on_results, on_failed, attributes,
                             self._callers.discard)
        with self._lock:
            self._callers.add(caller)
            over = self._closed
        if over:
            caller.end(self._reason)
        return caller

    def put_object(self, value: Any) -> ObjectRef:
        """Store an object for calls, and return a reference to it."""
        self.process.check()
        return self._peers.objects.put(value)

    def submit(self, tasks: list[Task]) -> None:
        """Schedule tasks."""
        self.process.check()
        self._loop.call_soon(self._tasks.submit, tasks)

    def submit_workers(self, descriptions: list[dict[str, Any]]) -> None:
        """Submit workers to the agent: plain descriptions with uid and ranks."""
        self.process.check()
        for description in descriptions:
            self.workers.expect(description['uid'])
        self._loop.call_soon(self._submit_workers, descriptions)

    def cancel_workers(self, uids: list[str]) -> None:
        """Stop workers."""
        self.process.check()
        self._loop.call_soon(self._cancel_workers, uids)

    # the thread

    def _leave(self) -> None:
        """Stop at the end of the process."""
        if not self.process.here:   # a fork ends
            return
        self.hurry()
        self.stop('its process ends')
        self.join(HOOKS_TIMEOUT)

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:
            _log.exception('%s cannot go on', self.uid)
            self.error = error
            self._reason = f'{self.uid} cannot go on: {error!r}'
        finally:
            self._close()
            self._over()

    def _end(self, reason: str) -> None:
        """Wait for the hooks of finished tasks, then stop the loop."""
        if self._ending:
            return
        _log.info('%s ends: %s', self.uid, reason)
        self._ending = True
        self._reason = reason
        self._taking = False
        self.workers.close(reason)
        self._over()
        self._hooks.call(self._loop.call_soon, self._loop.stop)
        self._loop.call_later(self._hooks_timeout, self._loop.stop)

    def _close(self) -> None:
        """Release everything; in the loop's thread, after its last turn."""
        self._ending = True
        atexit.unregister(self._leave)
        with suppress(FileNotFoundError):
            os.unlink(self._file)
        self.workers.close(self._reason)
        try:
            started = {uid for uid, worker in self.workers.all().items() if worker['status'] != 'NEW'}
            if missing := sorted(self._own_workers - started):
                self._agent.send('cancel', missing)
            self._tasks.close(self._reason)
            self._peers.end(self._reason)
            self._agent.close(LINGER)
            with suppress(OSError):   # large results that are still to be read stay
                os.rmdir(values_directory(self.pilot_sandbox, self.uid))
        finally:
            with self._lock:
                self._closed = True
                callers = list(self._callers)
            for caller in callers:
                caller.end(self._reason)
            self._peers.close(LINGER)
            self._loop.close()
            for hooks in (self._hooks, self._futures):
                if hooks is not None:
                    hooks.close(self._hooks_timeout)

    # tasks

    def _start_taking(self) -> None:
        if not self._ending:
            self._taking = True
            self.procedures.open()
            self._ask()

    def _changed(self) -> None:
        """Distribute calls and request tasks, as calls or room for some have come."""
        self._peers.deal_soon()
        self._ask_soon()

    def _ask(self) -> None:
        """Request as many tasks from the agent as the workers have room for."""
        room = (self._router.pool.capacity or UNPROVEN) - self._tasks.in_hand - self._asked
        if self._taking and room > 0 and (room >= 64 or not self._asked):
            self._asked += room
            self._agent.send('credit', room)

    def on_tasks(self, common: bytes, uids: list[str], sandboxes: list[str], rests: list[bytes]) -> None:
        """Take tasks that were requested; see `rp_api.raptor_link`."""
        self._asked = max(0, self._asked - len(uids))
        self._tasks.take(common, uids, sandboxes, rests)
        self._ask_soon()

    def on_cancel(self, uids: list[str]) -> None:
        """Cancel tasks."""
        self._tasks.cancel(uids)

    def on_give_back(self, count: int) -> None:
        """Return tasks for any master that no rank has started."""
        self._tasks.give_back(count)

    def on_task_state(self, uid: str, state: str, result: dict[str, Any] | None) -> None:
        """Take the state of a worker or an executable from the agent."""
        if state == states.AGENT_SCHEDULING:   # a worker that the application has submitted
            self.workers.expect(uid)
            self._router.pool.expect(uid, int((result or {}).get('ranks', 1)))
        elif result and 'part' in result:
            self._part_ended(state, result)
        elif state in states.FINAL and self.workers.knows(uid):
            self._own_workers.discard(uid)
            self._worker_ended(uid, state, result or {})
        else:
            self._tasks.agent_state(uid, state, result)

    def on_rpc(self, number: int, command: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Handle a remote call: `stop`, or a registered procedure."""
        if command != STOP:
            self.procedures.call(Request(number, command, args, kwargs))
        elif args or kwargs:
            self._answer(number, False, f'{STOP} of {self.uid} takes no arguments, not {short(args)} {short(kwargs)}')
        else:
            self._answer(number, True, None)
            self._end('an application has stopped it')

    def _answer(self, number: int, good: bool, value: Any) -> None:
        if not self._closed:
            self._agent.send('rpc_result', number, good, value)

    def on_stop(self, reason: str) -> None:
        """End, as the agent requests for a reason."""
        self._end(reason)

    def on_agent_lost(self, reason: str) -> None:
        """End, as no task and no result can be exchanged any more."""
        self._end(f'the agent is lost: {reason}')

    # workers

    def _submit_workers(self, descriptions: list[dict[str, Any]]) -> None:
        for description in descriptions:
            self._own_workers.add(description['uid'])
            self._router.pool.expect(description['uid'], description.get('ranks', 1))
        self._agent.send('submit', descriptions)

    def _cancel_workers(self, uids: list[str]) -> None:
        self._peers.stop_workers(uids)
        absent = [uid for uid in uids if uid in self._own_workers and not self._peers.has_worker(uid)]
        if absent:
            self._agent.send('cancel', absent)

    def _worker_ended(self, uid: str, state: str, result: dict[str, Any]) -> None:
        """Handle the final state of a worker's task; the worker may never have connected."""
        wanted = state in (states.DONE, states.CANCELED)
        reason = _reason(state, result)
        self._router.pool.lost(uid, '' if wanted else f'worker {uid} is {state}: {reason}')
        self.workers.ended(uid, state, reason)
        self._peers.lose_worker(uid, reason, DRAIN)

    def _part_ended(self, state: str, result: dict[str, Any]) -> None:
        """Handle the end of the process that has a part of a worker."""
        part = Part.told(result['part'], len(result['part']['numbers']))
        self._loop.call_later(DRAIN, self._peers.lose_part, result['part']['worker'], part, _reason(state, result))

    def capacity_changed(self) -> None:
        """Handle workers that accept more calls, or a part of a worker that has ended."""
        self._ask_soon()

    def ended(self, uid: str, reason: str, *, failed: bool) -> None:
        """Handle a worker that has disconnected."""
        if self._ending:
            return
        self.workers.ended(uid, states.FAILED if failed else states.DONE, reason)
        self._ask_soon()

    def has_ranks(self, number: int) -> None:
        """Report the number of ranks of the workers."""
        self._agent.send('ranks', number)

    def waits(self, text: str) -> None:
        """Report that calls wait for workers that may never come, or for none any more."""
        _log.warning('%s waits for %s', self.uid, text or 'nothing any more')
        self._agent.send('waits', text)

    def run(self, uid: str, number: int, description: dict[str, Any], result: bytes,
            answer: Callable[[bytes], object]) -> None:
        """Run a task that a rank submits, or record one that it has run."""
        try:
            task = described(f'{uid}.run.{number:06d}', description, self.pilot_sandbox, 'raptor')
        except PilotError as error:
            answer(encode_error(error))
        else:
            if result:
                self._tasks.ran(task, result, answer)
            else:
                self._tasks.submit([task], answer)

    def _worker_changed(self, worker: dict[str, Any], state: str) -> None:
        if self._worker_state_cb is not None:
            self._hooks.hook(self._worker_state_cb, worker, state)


def _reason(state: str, result: dict[str, Any]) -> str:
    """Return why a task of a worker has ended: its signal, the last line that it has written, or the agent's reason."""
    record = result.get('error')
    if isinstance(record, dict) and record.get('kind') == SIGNAL:
        return str(result.get('exception_detail') or state).partition('\n')[0]
    return str(result.get('stderr') or result.get('exception') or state).strip().rpartition('\n')[2]


def _interface(address: str) -> str | None:
    """Return the interface to listen on: TCP if the agent uses it, which it does with more than one node."""
    if not address.startswith('tcp://'):
        return None
    try:
        return address_towards(address)
    except (OSError, ValueError) as error:
        raise CoordinationError(f'the agent cannot be reached at {address}: {error}') from error
