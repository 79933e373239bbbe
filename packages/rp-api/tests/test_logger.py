"""Loggers that load `logging` with the first message; seen in a process that has not loaded it yet."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from rp_api.logger import logger, set_up_by

def set_up():
    import logging
    logging.basicConfig(stream=sys.stdout, format='%(name)s: %(message)s')

before = 'logging' in sys.modules
set_up_by(set_up)
print(before or 'logging' not in sys.modules)
logger('one').warning('first')
logger('two').warning('second')
"""


def test_logging_is_set_up_with_the_first_message() -> None:
    ran = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ['True', 'one: first', 'two: second']
