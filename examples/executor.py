"""Estimate pi with programs and functions: the shortest way to use a pilot.

Programs throw points into a square, each with a seed of its own; a function counts those of each program in the circle
while others still run, and a last one adds the counts up. Their futures are the dependencies.

    python examples/executor.py [--cores N] [--seeds N]
"""

from __future__ import annotations

import argparse
import sys

import radical.pilot as rp

THROW = """
import random, sys
random.seed(int(sys.argv[1]))
for _ in range(20_000):
    print(random.random(), random.random())
"""


def inside(program: rp.TaskResult) -> tuple[int, int]:
    """The points of a program that are in the circle, and all of them."""
    points = [tuple(map(float, line.split())) for line in program.stdout.splitlines()[-10_000:]]
    return sum(x * x + y * y <= 1 for x, y in points), len(points)


def estimate(counts: list[tuple[int, int]]) -> float:
    """The estimate from all counts."""
    return 4 * sum(count for count, _ in counts) / sum(number for _, number in counts)


def main() -> int:
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--cores', type=int, default=2, help='cores of the pilot')
    parser.add_argument('--seeds', type=int, default=20, help='number of programs')
    options = parser.parse_args()
    with rp.Executor(cores=options.cores) as ex:
        programs = [ex.run(sys.executable, '-c', THROW, seed) for seed in range(options.seeds)]
        counts = [ex.submit(inside, program) for program in programs]
        for done in rp.as_completed(counts):
            print(f'{done.result()[0]} of {done.result()[1]} points are in the circle')
        pi = ex.submit(estimate, counts).result()
    print(f'pi is about {pi:.2f}')
    return 0 if abs(pi - 3.14159) < 0.05 else 1


if __name__ == '__main__':
    sys.exit(main())
