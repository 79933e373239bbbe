"""The batch launcher: runs pilots as jobs of local and remote batch systems, and of hosts over ssh.

A separate process (`process.py`) communicates with batch systems. This module sends it requests, and translates its
events into reports on pilots. The batch system reports the state of jobs, agents report the state of pilots.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PilotError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client import bootstrap
from rp_client.bootstrap import FAILED, Client, prepare, read_failure
from rp_client.launcher.base import Context, End, Launcher, Start
from rp_client.launcher.batch.job import check_request, job_request
from rp_client.launcher.batch.owner import BatchProcess
from rp_client.launcher.batch.saga.adaptors import require_adaptor, require_saga
from rp_client.launcher.batch.shell import is_remote
from rp_client.launcher.batch.systems.base import Adapted, Delegated
from rp_client.launcher.batch.systems.registry import batch_system, is_known

REAP_TIMEOUT = 2.0
"""Seconds to wait for the end of the process."""

_ANNOUNCED = re.compile(r'time.?(limit|out)|walltime|preempt|deadline|runlimit|revoked', re.IGNORECASE)
"""Messages of batch systems about jobs that they have ended by themselves, besides those that were cancelled."""

LOG = 'batch.log'
"""The file in the session's directory with the messages of the process."""


class _Pilot:
    __slots__ = ('fail_if_unschedulable', 'failed', 'job', 'sandbox', 'uid', 'url')

    def __init__(self, uid: str, url: str, sandbox: str, *, fail_if_unschedulable: bool) -> None:
        self.uid = uid
        self.url = url
        self.sandbox = sandbox
        self.fail_if_unschedulable = fail_if_unschedulable
        self.job = ''   # the batch system's id, once known
        self.failed = False   # reported as ended, although its job exists


class BatchLauncher(Launcher):
    """The launcher that submits pilots as jobs."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pilots: dict[str, _Pilot] = {}
        self._asked: dict[str, tuple[str, Callable[[str, str], object]]] = {}
        self._numbers = itertools.count()
        self._over = threading.Condition()
        self._handlers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            'submitted': self._on_submitted, 'refused': self._on_refused, 'state': self._on_state,
            'delayed': self._on_delayed, 'ended': self._on_ended, 'checked': self._on_checked,
            'trouble': self._on_trouble}
        self._process = BatchProcess(context.loop, context.directory / LOG, self._on_event, self._on_restart,
                                    self._on_given_up)

    @staticmethod
    def takes(url: str) -> bool:
        return is_known(url)

    @classmethod
    def check(cls, platform: ResourceConfig, description: PilotDescription) -> None:
        url = platform.job_manager_endpoint
        system = batch_system(url)
        if isinstance(system, Delegated):
            require_adaptor(url)
        elif isinstance(system, Adapted):
            require_saga(url)
        check_request(description, job_request(description, platform, '/', ['/bin/sh'], {}), system)
        bootstrap.check(platform)

    @classmethod
    def sees_sandboxes(cls, platform: ResourceConfig) -> bool:
        return not is_remote(platform.job_manager_endpoint)

    def locate(self, platform: ResourceConfig, path: str, done: Callable[[str, str], object]) -> None:
        if '$' not in path and not path.startswith('~'):
            done(path, '')
            return
        key = f'locate.{next(self._numbers)}'
        url = platform.job_manager_endpoint
        self._asked[key] = url, done
        self._request({'op': 'check', 'url': url, 'key': key, 'script': f'set -u; printf %s "{_expandable(path)}"'},
                      lambda why: self._located(key, '', why))

    def expect(self, platform: ResourceConfig) -> None:
        self._request({'op': 'open', 'url': platform.job_manager_endpoint}, lambda why: None)

    def launch(self, starts: Sequence[Start]) -> None:
        jobs: dict[str, list[dict[str, Any]]] = {}
        client = Client.here()
        for start in starts:
            url = start.platform.job_manager_endpoint
            try:
                job = _job(start, client)
            except PilotError as error:
                self.context.reports.refused(start.uid, str(error))
            else:
                self._pilots[start.uid] = _Pilot(start.uid, url, str(start.sandbox),
                                                 fail_if_unschedulable=start.description.fail_if_unschedulable)
                jobs.setdefault(url, []).append(job)
        for url, bulk in jobs.items():
            self._request({'op': 'submit', 'url': url, 'jobs': bulk}, self._on_given_up)

    def adopt(self, uid: str, sandbox: Path, handle: Mapping[str, Any]) -> bool:
        if not handle.get('job'):
            return False
        pilot = self._pilots[uid] = _Pilot(uid, handle['url'], str(sandbox),
                                           fail_if_unschedulable=handle.get('fail_if_unschedulable', False))
        pilot.job = handle['job']
        self._watch([pilot])
        return True

    def clear(self, uid: str) -> None:
        """Nothing: the batch system ends all processes of a job."""

    def cancel(self, uid: str) -> bool:
        self.kill(uid)
        return True

    def kill(self, uid: str) -> None:
        pilot = self._pilots.get(uid)
        if pilot is not None:
            self._request({'op': 'cancel', 'url': pilot.url, 'keys': [uid]}, lambda why: None)

    def leave(self) -> None:
        self._pilots.clear()
        self._process.let_go()
        self._process.reap(REAP_TIMEOUT)

    def close(self, timeout: float) -> None:
        with self._over:
            if not self._over.wait_for(lambda: not self._pilots, timeout):
                self.context.loop.call_soon(self._kill_all)
                self._over.wait_for(lambda: not self._pilots, 2 * timeout)
        let_go = threading.Event()
        self.context.loop.call_soon(self._let_go, let_go)
        if not let_go.wait(REAP_TIMEOUT):   # the loop has ended
            self._let_go(let_go)
        self._process.reap(REAP_TIMEOUT)

    def _let_go(self, done: threading.Event) -> None:
        self._process.let_go()
        done.set()

    def _kill_all(self) -> None:
        for uid in list(self._pilots):
            self.kill(uid)

    def _request(self, request: dict[str, Any], failed: Callable[[str], object]) -> None:
        try:
            self._process.send(request)
        except PlatformError as error:
            failed(str(error))

    def _watch(self, pilots: Sequence[_Pilot]) -> None:
        for pilot in pilots:
            self._request({'op': 'watch', 'url': pilot.url, 'jobs': [
                {'key': pilot.uid, 'job': pilot.job, 'sandbox': pilot.sandbox}]}, self._on_given_up)

    # events

    def _on_event(self, event: dict[str, Any]) -> None:
        self._handlers[event['event']](event)

    def _on_submitted(self, event: dict[str, Any]) -> None:
        pilot = self._pilots.get(event['key'])
        if pilot is not None:
            pilot.job = event['job']
            self.context.reports.launched(pilot.uid, {'url': pilot.url, 'job': pilot.job,
                                                      'fail_if_unschedulable': pilot.fail_if_unschedulable})

    def _on_refused(self, event: dict[str, Any]) -> None:
        if self._forget(event['key']) is not None:
            self.context.reports.refused(event['key'], event['reason'])

    def _on_state(self, event: dict[str, Any]) -> None:
        pilot = self._pilots.get(event['key'])
        if pilot is None:
            return
        reports = self.context.reports
        tell = reports.unschedulable if event['unschedulable'] else reports.told
        tell(pilot.uid, _state(pilot, event), _queue(pilot, event))
        if event['unschedulable'] and pilot.fail_if_unschedulable:
            self._give_up(pilot, event)

    def _give_up(self, pilot: _Pilot, event: Mapping[str, Any]) -> None:
        """Report a pilot whose job cannot start as ended, and cancel the job."""
        self.kill(pilot.uid)
        if not pilot.failed:
            pilot.failed = True
            self.context.reports.ended(End(pilot.uid, f'{pilot.uid} on {pilot.url}: {_state(pilot, event)}', '', '',
                                           pilot.sandbox))

    def _on_delayed(self, event: dict[str, Any]) -> None:
        if event['key'] in self._pilots:
            self.context.reports.told(event['key'], event['reason'], {'trouble': event['reason']})

    def _on_ended(self, event: dict[str, Any]) -> None:
        pilot = self._forget(event['key'])
        if pilot is not None and not pilot.failed:
            self.context.reports.ended(_end(pilot, event))

    def _on_checked(self, event: dict[str, Any]) -> None:
        said = event['output'].strip()
        self._located(event['key'], *(('', said) if event['code'] else (said, '')))

    def _on_trouble(self, event: dict[str, Any]) -> None:
        """Fail the open queries of a URL, or all without a URL, and report the error for its pilots."""
        for key, (url, _) in list(self._asked.items()):
            if event['url'] in ('', url):
                self._located(key, '', event['reason'])
        for pilot in self._pilots.values():
            if pilot.url == event['url']:
                self.context.reports.told(pilot.uid, event['reason'], {'trouble': event['reason']})

    def _located(self, key: str, path: str, error: str) -> None:
        if key in self._asked:
            _, done = self._asked.pop(key)
            done(path, error)

    def _on_restart(self) -> None:
        """Watch all known jobs with a new process, after the former one hung or died."""
        for pilot in list(self._pilots.values()):
            if not pilot.job:
                self._on_refused({'key': pilot.uid, 'reason': "the launcher's process died, or hung, while it "
                                  f'was submitted (see {self.context.directory}/{LOG})'})
        self._on_trouble({'url': '', 'reason': "the launcher's process died"})
        self._watch(list(self._pilots.values()))

    def _on_given_up(self, reason: str) -> None:
        for pilot in list(self._pilots.values()):
            if pilot.job:
                self._forget(pilot.uid)
                self.context.reports.ended(End(pilot.uid, f'the job of {pilot.uid} is not watched any more: {reason}',
                                               '', ''))
            else:
                self._on_refused({'key': pilot.uid, 'reason': reason})
        self._on_trouble({'url': '', 'reason': reason})

    def _forget(self, uid: str) -> _Pilot | None:
        with self._over:
            pilot = self._pilots.pop(uid, None)
            self._over.notify_all()
        return pilot


def _job(start: Start, client: Client) -> dict[str, Any]:
    """Return the job in a `submit` request for a pilot."""
    prepared = prepare(start.config, start.platform, client)
    sandbox = str(start.sandbox)
    command = [*prepared.command, *([start.submission] if start.submission else [])]
    return {'key': start.uid, 'sandbox': sandbox, 'files': prepared.files, 'earlier': list(start.earlier),
            'wanted': bool(start.submission or not start.earlier),
            'copies': {name: str(path) for name, path in prepared.copies.items()},
            'request': job_request(start.description, start.platform, sandbox, command,
                                   prepared.environment)._asdict()}


def _state(pilot: _Pilot, event: Mapping[str, Any]) -> str:
    """Return a sentence on the state of a job, with the batch system's message."""
    what = 'cannot start' if event['unschedulable'] else f'is {event["state"]}'
    return f'job {pilot.job} {what}: {event["words"]}'


def _queue(pilot: _Pilot, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known about a job that waits or runs."""
    return {'job': pilot.job, **{name: event[name] for name in ('state', 'words', 'unschedulable', 'start')
                                 if event.get(name)}}


def _end(pilot: _Pilot, event: Mapping[str, Any]) -> End:
    """Return the report on the end of a job, with the bootstrap's message, or else the batch system's."""
    files: Mapping[str, str] = event['files']
    out, err = (files.get(f'agent_0.{name}') or files.get(f'bootstrap_0.{name}', '') for name in ('out', 'err'))
    failure = read_failure(files[FAILED].encode()) if FAILED in files else None
    how = {'CANCELED': 'was cancelled', 'GONE': 'is gone', 'DONE': 'is done'}.get(event['state'], 'failed')
    words = f'job {pilot.job} of {pilot.uid} on {pilot.url} {how}: {event["words"]}'
    announced = event['state'] == 'CANCELED' or bool(_ANNOUNCED.search(event['words']))
    if failure is not None:
        where = failure.file or f'{pilot.sandbox}/bootstrap_0.err'
        return End(pilot.uid, f'{pilot.uid}: {failure.sentence}', out, failure.tail or err, where, words, announced)
    if event['state'] == 'DONE':
        return End(pilot.uid, None, out, err)
    return End(pilot.uid, words, out, err, f'{pilot.sandbox}/bootstrap_0.err', words, announced)


def _expandable(path: str) -> str:
    """Return the path for use in double quotes of a shell, which expands variables but runs no commands."""
    if path == '~' or path.startswith('~/'):
        path = f'$HOME{path[1:]}'
    return path.replace('\\', '\\\\').replace('"', '\\"').replace('`', '\\`').replace('$(', '\\$(')
