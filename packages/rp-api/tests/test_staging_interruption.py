"""Transfers are interrupted when their task is cancelled, and when the process ends."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from rp_api.staging.interruption import check_interruption, interrupted, interruptible

TRANSFER = '''
import threading, time
from rp_api.staging.interruption import interrupted, transferring

def work():
    with transferring():
        begun.set()
        while not interrupted():
            time.sleep(0.01)
        time.sleep(0.1)
        print('stopped', flush=True)

begun = threading.Event()
threading.Thread(target=work, daemon=True).start()
begun.wait()
'''


def test_only_work_that_is_cancelled_stops() -> None:
    assert not interrupted()
    seen: list[bool] = []
    with interruptible(lambda: True):
        assert interrupted()
        thread = threading.Thread(target=lambda: seen.append(interrupted()))
        thread.start()
        thread.join()
        with pytest.raises(OSError, match='The transfer was interrupted') as caught:
            check_interruption('sftp://host/a')
    assert (caught.value.filename, seen) == ('sftp://host/a', [False])
    check_interruption('sftp://host/a')


def test_the_end_of_the_process_lets_transfers_stop() -> None:
    done = subprocess.run([sys.executable, '-c', TRANSFER], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ('stopped\n', '')
