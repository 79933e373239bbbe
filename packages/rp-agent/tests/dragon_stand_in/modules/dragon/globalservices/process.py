import time

from dragon.native.process import STARTED, poll


def multi_join(identifiers, timeout=None, join_all=False):
    deadline = time.monotonic() + timeout
    while True:
        ended = [(number, STARTED[number].returncode) for number in identifiers if poll(STARTED[number]) is not None]
        if ended or time.monotonic() >= deadline:
            return ended or None, {}
        time.sleep(0.005)
