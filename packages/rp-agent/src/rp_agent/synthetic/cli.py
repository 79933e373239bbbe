"""The program `rp-synthetic`: a synthetic task of known size, for benchmarks and experiments."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence

from rp_agent.synthetic.work import Amount, NoGpu, do
from rp_api.units import byte_count, option, seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the work that the arguments describe, print one line of JSON with the result, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.flops and (options.sleep or options.gpus):
        parser.error('--flops cannot be combined with --sleep or --gpus')
    if bool(options.read) != bool(options.source):
        parser.error('--read and --source must be given together')
    wanted = vars(options)
    exit_code = wanted.pop('exit_code')
    try:
        done = do(Amount(**wanted))
    except (ImportError, MemoryError, NoGpu, OSError) as error:
        print(f'rp-synthetic: {str(error) or "not enough memory"}', file=sys.stderr)
        return 1
    print(json.dumps(done), flush=True)
    return int(exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='rp-synthetic', description='Consume known amounts of resources.')
    add = parser.add_argument
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument('--seconds', type=option(seconds), default=0.0, metavar='TIME', help='time to compute: '
                          'seconds, or such as 2m')
    how_long.add_argument('--flops', type=_number, default=0.0, metavar='N',
                          help='floating-point operations, divided among the threads (1e9)')
    add('--sleep', action='store_true', help='sleep for --seconds and use no core')
    add('--threads', type=_whole(1), default=1, metavar='N', help='number of computing threads (default: 1)')
    add('--gpus', type=_whole(0), default=0, metavar='N', help='number of NVIDIA GPUs to keep busy for --seconds')
    add('--memory', type=option(byte_count), default=0, metavar='BYTES', help='memory in use during the '
        'computation, such as 64MB or 2GB')
    add('--read', type=option(byte_count), default=0, metavar='BYTES',
        help='bytes to read from --source, repeatedly if needed')
    add('--source', default='', metavar='FILE', help='file for --read')
    add('--write', type=option(byte_count), default=0, metavar='BYTES',
        help='bytes to write to a temporary file at the end')
    add('--directory', default='.', metavar='DIR', help='directory of that file (default: the working directory)')
    add('--mpi', action='store_true', help='do the work on all ranks of an MPI program, synchronised (needs mpi4py)')
    add('--exit-code', type=_whole(0), default=0, metavar='N', help='exit code of the program (default: 0)')
    return parser


def _number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f'{text} must be a number of at least 0')
    return value


def _whole(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'{text} must be a whole number of at least {least}')
        return int(text)
    return whole


if __name__ == '__main__':
    sys.exit(main())
