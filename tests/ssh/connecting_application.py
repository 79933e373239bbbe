"""An application of its own for tests: `python connecting_application.py BASE`.

Its pilot is on a host that it reaches by ssh alone, where a server listens on the loopback. It prints as JSON the
information on the server, the address that it used, that of a second connection, and the process that answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.request import urlopen

import radical.pilot as rp

STUB = str(Path(__file__).parents[1] / 'system' / 'service_stub.py')


def main() -> None:
    """Run it."""
    with rp.Session(cfg={'base': sys.argv[1]}) as session:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'test.machine', 'cores': 2, 'runtime': 10})))
        server = tmgr.submit_tasks(rp.TaskDescription({
            'mode': rp.TASK_SERVICE, 'executable': sys.executable, 'arguments': [STUB, '0'], 'startup_timeout': 30,
            'service': {'port': 0, 'info': 'http://127.0.0.1:{port}/', 'probe': {'file': 'ready'}}}))
        url = server.connect(40)
        with urlopen(url, timeout=20) as answer:
            pid = int(answer.read())
        told = {'info': server.info, 'url': url, 'pid': pid, 'again': server.connect()}
    print(json.dumps(told))


if __name__ == '__main__':
    main()
