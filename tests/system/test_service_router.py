"""Services behind a router: tasks, and the application, send requests while instances are killed."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Run, wait_until
from test_services import TIMEOUT, ask, end, stub, told, user

import radical.pilot as rp

pytestmark = pytest.mark.skipif('CI' not in os.environ and not shutil.which(
    'haproxy', path=f'{os.environ.get("PATH")}:/usr/local/sbin:/usr/sbin'), reason='needs HAProxy')

TASKS = 100
REQUEST = r'''
place=${RP_INFO_WEB#http://}
exec 3<>"/dev/tcp/${place%:*}/${place#*:}" && printf 'GET /slow HTTP/1.0\r\nHost: web\r\n\r\n' >&3 && cat <&3
'''
ALWAYS = {'attempts': 10000, 'delay': 0.01, 'factor': 1.0, 'limit': 0.01}


def routed(name: str, **service: Any) -> rp.TaskDescription:
    return stub(service={'name': name, 'info': 'http://{host}:{port}', 'router': True} | service)


@pytest.mark.long
@pytest.mark.fault
def test_tasks_send_requests_while_instances_are_killed(shared: Run, tmp_path: Path) -> None:
    (tmp_path / 'request.sh').write_text(REQUEST)
    services = shared.tmgr.submit_tasks([routed('web', restart=ALWAYS, liveness=False) for _ in range(3)])
    url = services[0].wait_info(TIMEOUT)
    tasks = shared.tmgr.submit_tasks([rp.TaskDescription({
        'executable': 'bash', 'arguments': [f'{tmp_path}/request.sh'], 'services': ['web']}) for _ in range(TASKS)])
    killed = set()
    while not all(task.state in rp.FINAL for task in tasks):
        pid = ask(url)
        killed.add(pid)
        with suppress(ProcessLookupError):   # it was killed after it has answered
            os.kill(pid, signal.SIGKILL)
    assert [(task.state, task.exception_detail) for task in tasks if task.state != rp.DONE] == []
    answers = [task.stdout for task in tasks]
    assert [text for text in answers if not text.startswith(('HTTP/1.0 200', 'HTTP/1.1 200'))] == []
    assert len(killed) > 3
    end(*services)


def test_users_get_the_address_of_the_router(shared: Run) -> None:
    services = shared.tmgr.submit_tasks([routed('pair') for _ in range(2)])
    url, other = (service.wait_info(TIMEOUT) for service in services)
    assert url == other == told(shared.tmgr.submit_tasks(user('pair')))['PAIR']
    assert urlsplit(url).hostname == '127.0.0.1'
    wait_until(lambda: ask(url) != ask(url))   # both instances
    end(*services)
    with pytest.raises(OSError, match=r'refused|reset'):
        ask(url)
