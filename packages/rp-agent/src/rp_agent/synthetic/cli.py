"""The program `rp-synthetic`: a task of a known size, for benchmarks and experiments."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence

from rp_agent.synthetic.work import Amount, NoGpu, do

UNITS = {'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for, and write one line of JSON about it; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.flops and (options.sleep or options.gpus):
        parser.error('--flops is for cores: neither with --sleep nor with --gpus')
    if bool(options.read) != bool(options.source):
        parser.error('--read needs --source FILE, and the other way round')
    wanted = vars(options)
    exit_code = wanted.pop('exit_code')
    try:
        done = do(Amount(**wanted))
    except (ImportError, MemoryError, NoGpu, OSError) as error:
        print(f'rp-synthetic: {str(error) or "there is not so much memory"}', file=sys.stderr)
        return 1
    print(json.dumps(done), flush=True)
    return int(exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='rp-synthetic', description='Do nothing useful, in a known amount.')
    add = parser.add_argument
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument('--seconds', type=_number, default=0.0, metavar='S', help='compute for so long')
    how_long.add_argument('--flops', type=_number, default=0.0, metavar='N',
                          help='compute so many floating-point operations, shared by the threads (1e9)')
    add('--sleep', action='store_true', help='sleep for --seconds and use no core')
    add('--threads', type=_whole(1), default=1, metavar='N', help='that compute (default: 1)')
    add('--gpus', type=_whole(0), default=0, metavar='N', help='to keep busy for --seconds (NVIDIA)')
    add('--memory', type=_bytes, default=0, metavar='BYTES', help='to use meanwhile (64M, 2G)')
    add('--read', type=_bytes, default=0, metavar='BYTES', help='to read first from --source, again and again')
    add('--source', default='', metavar='FILE')
    add('--write', type=_bytes, default=0, metavar='BYTES', help='to write afterwards to a file, which is deleted')
    add('--directory', default='.', metavar='DIR', help='for that file (default: the working directory)')
    add('--mpi', action='store_true', help='all ranks of an MPI program do the same, together (needs mpi4py)')
    add('--exit-code', type=_whole(0), default=0, metavar='N')
    return parser


def _number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f'{text} is no amount: it must be 0 or more')
    return value


def _whole(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'{text} must be a whole number, {least} or more')
        return int(text)
    return whole


def _bytes(text: str) -> int:
    """`1048576`, `1024K`, `1M`."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    return int(_number(number) * unit)


if __name__ == '__main__':
    sys.exit(main())
