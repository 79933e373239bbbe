"""Measures the router of services: its latency and throughput against direct requests, and tasks while instances die.

`python benchmarks/services.py [--tasks N]`. The stub server, the router and the client share the cores of this machine.
Direct and routed requests alternate in short rounds, and the medians of the rounds are reported.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import radical.pilot as rp
from rp_agent.services.registry import Registry, ServiceInstance
from rp_agent.services.router import Routers
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers

REQUEST = b'GET / HTTP/1.1\r\nHost: stub\r\n\r\n'
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n'

STUB = f'''
import select, socket
server = socket.create_server(('127.0.0.1', 0), backlog=256)
print(server.getsockname()[1], flush=True)
poll, open_ = select.epoll(), {{}}
poll.register(server, select.EPOLLIN)
while True:
    for fd, _ in poll.poll():
        if fd == server.fileno():
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            open_[connection.fileno()] = connection
            poll.register(connection, select.EPOLLIN)
            continue
        try:
            data = open_[fd].recv(65536)
            open_[fd].sendall({ANSWER!r} * data.count(b'\\r\\n\\r\\n'))
        except ConnectionError:
            data = b''
        if not data:
            poll.unregister(fd)
            open_.pop(fd).close()
'''

SERVICE = '''
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.02 * (self.path == '/work'))
        text = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass

ThreadingHTTPServer(('127.0.0.1', int(os.environ['RP_SERVICE_PORT'])), Handler).serve_forever()
'''

USER = r'''place=${RP_INFO_STUB#http://}
exec 3<>"/dev/tcp/${place%:*}/${place#*:}" && printf 'GET /work HTTP/1.0\r\nHost: stub\r\n\r\n' >&3 && cat <&3
'''


@contextmanager
def routed() -> Iterator[tuple[int, int]]:
    """Run a stub server and a router, and yield their ports."""
    stub = subprocess.Popen([sys.executable, '-c', STUB], stdout=subprocess.PIPE)
    assert stub.stdout is not None
    port = int(stub.stdout.readline())
    loop, registry = Loop(), Registry()
    registry.put(ServiceInstance('stub', 'stub', '127.0.0.1', port))
    helpers = Helpers(loop)
    routers = Routers(loop, registry, helpers.run, '127.0.0.1', lambda name, reason: print(reason))
    address = routers.open('stub', retry_unsafe=False)
    thread = threading.Thread(target=loop.run)   # idle during the measurement
    thread.start()
    try:
        yield port, address.port
    finally:
        loop.stop()
        thread.join()
        routers.close()
        helpers.close(1.0)
        loop.close()
        stub.kill()
        stub.wait()
        stub.stdout.close()


def load(port: int, connections: int, seconds: float, rate: float = 0.0) -> tuple[float, list[float]]:
    """Send requests on that many connections, and return the requests per second and the latencies in seconds.

    Each connection sends a request when its last one is answered, or at a common rate.
    """
    poll, sockets, since = select.epoll(), {}, {}
    for _ in range(connections):
        made = socket.create_connection(('127.0.0.1', port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[made.fileno()] = made
        poll.register(made, select.EPOLLIN)
    idle, latencies = list(sockets), []
    start = now = time.perf_counter()
    sent = 0
    while now < start + seconds:
        while idle and (not rate or sent < (now - start) * rate):
            fd = idle.pop()
            since[fd] = time.perf_counter()
            sockets[fd].sendall(REQUEST)
            sent += 1
        for fd, _ in poll.poll(0.001 if rate else 1.0):
            sockets[fd].recv(65536)
            latencies.append(time.perf_counter() - since[fd])
            idle.append(fd)
        now = time.perf_counter()
    for made in sockets.values():
        made.close()
    poll.close()
    return len(latencies) / seconds, latencies


def measure(rounds: int, seconds: float) -> None:
    """Print latencies at 1,000 requests a second, of one request at a time, and the throughput."""
    with routed() as ports:
        for port in ports:
            load(port, 4, 1.0)   # warm
        for text, connections, rate in (('one at a time', 1, 0.0), ('1,000 requests/s', 16, 1000.0),
                                        ('as many as possible', 32, 0.0)):
            results: list[list[tuple[float, list[float]]]] = [[], []]
            for _ in range(rounds):
                for which, port in enumerate(ports):
                    results[which].append(load(port, connections, seconds, rate))
            medians = [[1000 * statistics.median(latencies) for _, latencies in each] for each in results]
            rates = [statistics.median(done for done, _ in each) for each in results]
            direct, through = map(statistics.median, medians)
            print(f'{text}: direct {rates[0]:,.0f}/s, median {direct:.3f} ms; routed {rates[1]:,.0f}/s '
                  f'(x {rates[1] / rates[0]:.2f}), median {through:.3f} ms: the router adds {through - direct:.3f} ms')


def tasks_while_instances_die(count: int, base: Path, pause: float) -> None:
    """Print how many of `count` tasks fail while the instances of their service are killed at random."""
    (base / 'stub.py').write_text(SERVICE)
    (base / 'user.sh').write_text(USER)
    restart = {'attempts': 10**6, 'delay': 0.01, 'factor': 1.0, 'limit': 0.01}
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(
            {'resource': 'local.exact', 'cores': 8, 'runtime': 30, 'sandbox': str(base)})))
        services = tmgr.submit_tasks([rp.TaskDescription({
            'mode': rp.TASK_SERVICE, 'executable': sys.executable, 'arguments': [f'{base}/stub.py'],
            'service': {'name': 'stub', 'port': 0, 'probe': {'port': True, 'interval': 0.05}, 'liveness': False,
                        'info': 'http://{host}:{port}', 'router': True, 'restart': restart}}) for _ in range(3)])
        url = services[0].wait_info(60)
        start, killed = time.perf_counter(), 0
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'bash', 'arguments': [f'{base}/user.sh'],
                                                       'services': ['stub']}) for _ in range(count)])
        while not all(task.state in rp.FINAL for task in tasks):
            with suppress(OSError, ValueError):
                os.kill(_pid(url), signal.SIGKILL)
                killed += 1
            time.sleep(pause)
        failed = [task for task in tasks if task.state != rp.DONE or ' 200 OK' not in task.stdout]
        print(f'{count} tasks in {time.perf_counter() - start:.1f} s, {killed} instances killed meanwhile: '
              f'{len(failed)} failed', *[(task.uid, task.stdout, task.exception_detail) for task in failed[:3]])


def _pid(url: str) -> int:
    """Return the process of the instance that answers next."""
    host, _, port = url.removeprefix('http://').partition(':')
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b'GET / HTTP/1.0\r\nHost: stub\r\n\r\n')
        answer = b''
        while part := connection.recv(4096):
            answer += part
    return int(answer.rpartition(b'\r\n')[2])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tasks', type=int, default=1000, help='tasks that send a request; 0: none')
    parser.add_argument('--pause', type=float, default=0.5, help='seconds between two kills')
    parser.add_argument('--rounds', type=int, default=5, help='rounds of direct and routed requests; 0: none')
    parser.add_argument('--seconds', type=float, default=2.0, help='length of a round')
    options = parser.parse_args()
    if options.rounds:
        measure(options.rounds, options.seconds)
    if options.tasks:
        with tempfile.TemporaryDirectory(prefix='services.') as base:
            tasks_while_instances_die(options.tasks, Path(base), options.pause)


if __name__ == '__main__':
    main()
