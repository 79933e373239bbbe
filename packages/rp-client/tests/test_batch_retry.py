"""Jobs that are submitted again because the batch system could not be reached."""

from __future__ import annotations

import os
import queue
from pathlib import Path
from typing import Any

import pytest

from rp_client.launcher.batch import retry
from rp_client.launcher.batch.endpoint import Endpoint
from rp_client.launcher.batch.retry import BACKOFF_S, RETRY_TIMEOUT_S, Postponed

TIMEOUT = 45.0
URL = 'slurm://localhost/'


def test_delays_grow_up_to_a_minute() -> None:
    postponed, now, delays = Postponed(), 100.0, []
    while postponed.add({'key': 'a'}, now):
        assert postponed.next is not None
        assert postponed.due(postponed.next - 0.1) == []
        assert postponed.due(postponed.next) == [{'key': 'a'}]
        delays.append(postponed.next - now)
        now = postponed.next
    assert delays[:6] == [5, 10, 20, 40, 60, 60]
    assert now == 100 + RETRY_TIMEOUT_S   # the last time, at the very end
    assert sum(delays) == RETRY_TIMEOUT_S


def test_jobs_are_independent() -> None:
    postponed = Postponed()
    assert postponed.next is None
    postponed.add({'key': 'a'}, 0.0)
    postponed.add({'key': 'b'}, 1.0)
    assert postponed.due(5.0) == [{'key': 'a'}]
    postponed.remove('a')
    assert ('a' in postponed, 'b' in postponed) == (False, True)
    assert postponed.next == 6.0


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> queue.Queue[dict[str, Any]]:
    """Events of the endpoint; `sbatch` is one that notes its calls and cannot reach anything."""
    program = tmp_path / 'bin' / 'sbatch'
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho >>{tmp_path}/tried\n'
                       'echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{program.parent}:{os.environ["PATH"]}')
    return queue.Queue()


def job(tmp_path: Path, key: str) -> dict[str, Any]:
    box = str(tmp_path / key)
    return {'key': key, 'sandbox': box, 'files': {}, 'request': {
        'name': key, 'command': ['true'], 'directory': box, 'output': f'{box}/out', 'error': f'{box}/err', 'minutes': 1,
        'cores': 1, 'environment': {}}}


def test_in_the_end_it_is_refused(told: queue.Queue[dict[str, Any]], tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, 'RETRY_TIMEOUT_S', 0.2)
    endpoint = Endpoint(URL, told.put)
    try:
        endpoint.request({'op': 'submit', 'url': URL, 'jobs': [job(tmp_path, 'a')]})
        assert told.get(timeout=TIMEOUT)['event'] == 'delayed'
        refused = told.get(timeout=TIMEOUT)
        assert refused['event'] == 'refused'
        assert refused['reason'].startswith('Slurm could not be reached for ')
        assert told.empty()
    finally:
        endpoint.close(TIMEOUT)


def _event(told: queue.Queue[dict[str, Any]], *names: str) -> dict[str, Any]:
    """The next event of one of these names."""
    while (event := told.get(timeout=TIMEOUT))['event'] not in names:
        pass
    return event


def test_a_job_of_a_host_is_found_again(tmp_path: Path) -> None:
    """It is started once, and the application that looks for it watches it."""
    told: queue.Queue[dict[str, Any]] = queue.Queue()
    url = 'fork://localhost/'
    wanted = job(tmp_path, 'a')
    wanted['request']['command'] = ['sh', '-c', 'echo >>ran; until test -e go; do sleep 0.05; done']
    found = []
    for earlier in [], ['x']:
        endpoint = Endpoint(url, told.put)
        try:
            endpoint.request({'op': 'submit', 'url': url, 'jobs': [wanted | {'earlier': earlier}]})
            found.append(_event(told, 'submitted', 'refused'))
            if earlier:
                (tmp_path / 'a' / 'go').touch()
                ended = _event(told, 'ended')
        finally:
            endpoint.close(TIMEOUT)
    assert found[0] == found[1]
    assert found[0]['event'] == 'submitted'
    assert (ended['state'], ended['job']) == ('DONE', found[0]['job'])
    assert (tmp_path / 'a' / 'ran').read_text() == '\n'


def test_a_job_is_looked_for_until_the_batch_system_answers(told: queue.Queue[dict[str, Any]], tmp_path: Path) -> None:
    endpoint = Endpoint(URL, told.put)
    try:
        endpoint.request({'op': 'submit', 'url': URL, 'jobs': [job(tmp_path, 'a') | {'earlier': ['x']}]})
        assert told.get(timeout=TIMEOUT)['event'] == 'delayed'
        assert not (tmp_path / 'tried').exists()
    finally:
        endpoint.close(TIMEOUT)


def test_the_others_are_not_tried_when_one_could_not_be_submitted(told: queue.Queue[dict[str, Any]],
                                                                  tmp_path: Path) -> None:
    endpoint = Endpoint(URL, told.put)
    try:
        endpoint.request({'op': 'submit', 'url': URL, 'jobs': [job(tmp_path, key) for key in 'abc']})
        events = [told.get(timeout=TIMEOUT) for _ in 'abc']
        assert [(event['event'], event['key']) for event in events] == [('delayed', key) for key in 'abc']
        assert (tmp_path / 'tried').read_text() == '\n'
        endpoint.request({'op': 'cancel', 'url': URL, 'keys': ['b']})
        assert told.get(timeout=TIMEOUT) == {'event': 'refused', 'key': 'b',
                                             'reason': 'it was cancelled before it was submitted'}
    finally:
        endpoint.close(TIMEOUT)


def test_a_full_batch_system_is_asked_for_ever() -> None:
    """And if it cannot be reached afterwards, for as long as always."""
    postponed, now = Postponed(), 100.0
    for _ in range(100):
        assert postponed.add({'key': 'a'}, now, full=True)
        assert postponed.next is not None
        assert now < postponed.next <= now + BACKOFF_S[1]
        now = postponed.next
    assert postponed.add({'key': 'a'}, now)
    assert not postponed.add({'key': 'a'}, now + RETRY_TIMEOUT_S)
