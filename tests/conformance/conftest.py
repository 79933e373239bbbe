"""A session on each backend, for every module of the suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conformance_support import BACKENDS, Backend, Client, Site, backend, one_site


@pytest.fixture(scope='module', params=BACKENDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A backend that the tests of a module share."""
    with backend(request.param, tmp_path_factory.mktemp('server')) as running:
        yield running


@pytest.fixture
def site(server: Backend, tmp_path: Path) -> Iterator[Site]:
    """A session without a client yet."""
    with one_site(server, tmp_path) as site:
        yield site


@pytest.fixture
def client(site: Site) -> Client:
    """The client of the session, which has made two pilots known."""
    client = site.client()
    client.pilot('p0', 'p1')
    client.until_settled()   # agents come later than their pilots
    return client
