"""Processes through Dask: two worker processes of one thread each."""

import sys

from distributed import Client, LocalCluster
from process_task import FUNCTIONS, measure


def main() -> None:
    function = FUNCTIONS[sys.argv[1]]
    with (LocalCluster(n_workers=2, threads_per_worker=1, processes=True, host='127.0.0.1',
                       dashboard_address=None) as cluster,
          Client(cluster) as client):
        measure(lambda directory, count: client.gather(
            client.map(function, [directory] * count, range(count), pure=False)))


if __name__ == '__main__':
    main()
