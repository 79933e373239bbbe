"""An application for `test_function_output.py` and `test_report_system.py`: an executor whose work fails, or lasts."""

from __future__ import annotations

import sys
import time

import radical.pilot as rp


def fail(number: int) -> None:
    """Raise an error."""
    raise ValueError('bad')


def work(number: int) -> int:
    """Take some time, and print a line."""
    print('at work on', number)
    time.sleep(0.5)
    return number


def main(what: str) -> None:
    """Do what the argument says."""
    with rp.Executor(cores=2, progress=what != 'quiet') as ex:
        if what in ('failing', 'quiet'):
            found = [*(ex.submit(fail, number) for number in range(3)), ex.run('sh', '-c', 'echo reason >&2; exit 3'),
                     ex.run('sh', '-c', 'exit 4', check=False), ex.submit(pow, 2, 2)]
            print('a result')
        elif what == 'endless':
            found = [ex.submit(time.sleep, 600) for _ in range(5)]
            print('running', flush=True)
        else:
            found = [ex.submit(work, number) for number in range(10)]
            print('a line of the program')
        for future in found:
            future.exception()


if __name__ == '__main__':
    main(sys.argv[1])
