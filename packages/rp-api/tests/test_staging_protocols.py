"""Staging protocols of other distributions: described, resolved and carried out like our own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api.errors import DescriptionError, StagingError
from rp_api.staging import Sandboxes, acts_on_client, expand, perform, protocol, resolve

PLUGIN = '''
import os
from rp_api.errors import DescriptionError
from rp_api.staging.protocol import Protocol


class Vault(Protocol):
    schemes = frozenset({'vault'})
    on_client = True

    def check(self, source, target):
        if not source.startswith('vault://'):
            raise DescriptionError(f'source {source!r} is not in the vault')

    def stage(self, source, target, parents):
        with open(os.environ['VAULT'] + source[len('vault:/'):]) as file, open(target, 'w') as copy:
            copy.write(file.read())
        return target
'''


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of files, and a protocol that takes files from it."""
    metadata = tmp_path / 'site' / 'vault-1.0.dist-info'
    metadata.mkdir(parents=True)
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: vault\nVersion: 1.0\n')
    (metadata / 'entry_points.txt').write_text('[radical_pilot.staging_protocols]\nVault = vault_protocol:Vault\n')
    (tmp_path / 'site' / 'vault_protocol.py').write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path / 'site'))
    monkeypatch.setenv('VAULT', str(tmp_path / 'vault'))
    (tmp_path / 'vault').mkdir()
    _forget()
    yield tmp_path / 'vault'
    sys.modules.pop('vault_protocol', None)
    _forget()


def _forget() -> None:
    for cached in (protocol._installed, protocol._transport, protocol.protocol):
        cached.cache_clear()


def test_it_is_carried_out(vault: Path, tmp_path: Path) -> None:
    (vault / 'a').write_text('gold')
    (directive,) = expand({'source': 'vault://a', 'action': 'vault', 'target': 'b'})
    assert (directive['action'], acts_on_client('Vault')) == ('Vault', True)
    source = resolve(directive['source'], 'client', Sandboxes(client='/'))
    assert source == 'vault://a'
    assert perform(directive, source, str(tmp_path / 'b')) == str(tmp_path / 'b')
    assert (tmp_path / 'b').read_text() == 'gold'


def test_the_target_is_by_default_the_last_part(vault: Path) -> None:
    assert expand({'source': 'vault://x/a?version=2', 'action': 'Vault'})[0]['target'] == 'a'


def test_errors_are_those_of_staging(vault: Path, tmp_path: Path) -> None:
    (directive,) = expand({'source': 'vault://none', 'action': 'Vault', 'target': 'b'})
    with pytest.raises(StagingError, match=os.strerror(2)):
        perform(directive, directive['source'], str(tmp_path / 'b'))


def test_descriptions_are_checked(vault: Path) -> None:
    with pytest.raises(DescriptionError, match="'vault://a' can only be fetched with action Vault, not Transfer"):
        expand('vault://a > b')
    with pytest.raises(DescriptionError, match="source 'a' is not in the vault"):
        expand({'source': 'a', 'action': 'Vault'})
    with pytest.raises(DescriptionError, match=r"action 'Vaul' is not one of Copy, .*Download, Vault"):
        expand({'source': 'a', 'action': 'Vaul'})


def test_without_the_protocol_the_scheme_is_unknown() -> None:
    with pytest.raises(DescriptionError, match="unknown scheme 'vault'"):
        resolve('vault://a', 'client', Sandboxes(client='/'))
