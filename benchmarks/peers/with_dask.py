"""Processes through Dask: two worker processes of one thread each."""

import sys
from typing import Any

from distributed import Client, LocalCluster
from process_task import FUNCTIONS, measure


def main() -> None:
    function = FUNCTIONS[sys.argv[1]]
    with (LocalCluster(n_workers=2, threads_per_worker=1, processes=True, host='127.0.0.1',
                       dashboard_address=None) as cluster,
          Client(cluster) as client):
        if sys.argv[1] == 'chain':
            measure(lambda directory, count: client.gather(chain(client, directory, count)))
        else:
            measure(lambda directory, count: client.gather(
                client.map(function, [directory] * count, range(count), pure=False)))


def chain(client: Client, directory: str, count: int) -> list[Any]:
    """Submit tasks each of which has the one before as an argument."""
    futures: list[Any] = [None]
    for number in range(count):
        futures.append(client.submit(FUNCTIONS['chain'], directory, number, futures[-1], pure=False))
    return futures[1:]


if __name__ == '__main__':
    main()
