"""Probes of services: what a look sees at real files, ports and servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rp_agent.services.instance import free_port
from rp_agent.services.probes import Lines, Seen, Target, look_of, put_aside, signs
from rp_api.description.service import probe_of


def target(sandbox: Path, port: int = 0) -> Target:
    return Target('127.0.0.1', port, str(sandbox), f'{sandbox}/t.out', f'{sandbox}/t.err')


def look(sandbox: Path, at: int = 0, /, **probe: Any) -> Seen:
    return look_of(probe_of({'probe': probe}, ''), target(sandbox, at))()


@contextmanager
def answering(status: int) -> Iterator[int]:
    """An HTTP server that answers all requests for /health with this status."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == '/health' else 404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(('127.0.0.1', 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listening(answer: bytes | None = None) -> Iterator[int]:
    """A socket that listens, and answers one connection if there is an answer."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer or b'')

        thread = threading.Thread(target=serve, daemon=True) if answer is not None else None
        if thread:
            thread.start()
        yield server.getsockname()[1]
        if thread:
            thread.join()


def test_http_with_the_expected_status(tmp_path: Path) -> None:
    with answering(204) as port:
        assert look(tmp_path, port, http='/health', status=204).good
        seen = look(tmp_path, port, http='/health')
        assert seen == Seen(False, f'GET http://127.0.0.1:{port}/health: the status is 204, not 200')
        assert 'the status is 404' in look(tmp_path, port, http='/other').text


@pytest.mark.parametrize(('answer', 'words'), [(b'', 'is not HTTP: '), (b'SSH-2.0\r\n', 'is not HTTP: SSH-2.0'),
                                               (b'HTTP/1.1\r\n', 'is not HTTP')])
def test_an_answer_that_is_not_http(tmp_path: Path, answer: bytes, words: str) -> None:
    with listening(answer) as port:
        seen = look(tmp_path, port, http='/')
    assert not seen.good
    assert words in seen.text


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with listening() as port:
        assert look(tmp_path, port, port=True).good
        seen = look(tmp_path, port, http='/', timeout=0.05)
    assert seen == Seen(False, f'GET http://127.0.0.1:{port}/: no answer in time')


@pytest.mark.parametrize('probe', [{'port': True}, {'http': '/'}])
def test_a_port_that_is_not_open(tmp_path: Path, probe: dict[str, Any]) -> None:
    seen = look(tmp_path, free_port(()), **probe)
    assert not seen.good
    assert 'Connection refused' in seen.text


def test_files_and_what_earlier_runs_have_left_of_them(tmp_path: Path) -> None:
    probe = {'file': 'ready'}
    assert look(tmp_path, **probe) == Seen(False, f'there is no file {tmp_path}/ready')
    (tmp_path / 'ready').touch()
    assert look(tmp_path, **probe) == Seen(True, '')
    put_aside(signs(probe, target(tmp_path)))
    put_aside(signs(probe, target(tmp_path)))
    assert not look(tmp_path, **probe).good
    assert [path.name for path in tmp_path.iterdir()] == ['ready.previous']


@pytest.mark.parametrize(('pattern', 'name'), [('stdout:up (.*)', 't.out'), ('stderr:up (.*)', 't.err'),
                                               ('file:log:up (.*)', 'log')])
def test_patterns_in_outputs_and_files(tmp_path: Path, pattern: str, name: str) -> None:
    path = tmp_path / name
    seeing = look_of(probe_of({}, pattern), target(tmp_path))
    assert seeing() == Seen(False, f'no line of {path} matches')
    path.write_text('begins\nup 8')
    assert not seeing().good   # the line may go on
    with path.open('a') as file:
        file.write('0\nmore')
    assert seeing() == Seen(True, '80')
    assert signs({'pattern': pattern}, target(tmp_path)) == [str(path)]


def test_a_last_line_without_an_end_counts_when_it_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / 'out'
    path.write_text('up 80')
    lines = Lines(str(path), lambda line: line if line.startswith('up') else None)
    assert [lines.look().good, lines.look()] == [False, Seen(True, 'up 80')]


def test_a_file_that_is_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / 'out'
    path.write_text('one line that is long\n')
    lines = Lines(str(path), lambda line: line if line.startswith('up') else None)
    assert not lines.look().good
    path.write_text('up\n')
    assert lines.look() == Seen(True, 'up')


def test_without_a_probe_a_process_is_ready_when_it_runs(tmp_path: Path) -> None:
    assert look(tmp_path) == Seen(True, '')


def test_free_ports_are_free_and_not_given_twice() -> None:
    first = free_port(())
    with socket.create_server(('', first)):
        others = {free_port({first}) for _ in range(5)}
        assert free_port((), first) != first
    assert first not in others
    assert free_port((), first) == first
    assert all(10000 <= port < 61000 for port in others)
