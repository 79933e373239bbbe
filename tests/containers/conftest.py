"""An image, the container tools, and pilots for the tests of this directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import processes_with, wait_until

PODMAN = """#!/bin/sh
# crun knows no host with the control groups of both versions, but here it needs none
exec unshare --mount sh -c 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec /usr/bin/podman "$@"' \
podman "$@"
"""

CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=16384:16384"]
[engine]
runtime = "crun"
"""

STORAGE_CONF = """[storage]
driver = "overlay"
graphroot = "{base}/graph"
runroot = "{base}/run"
"""


@pytest.fixture(scope='package')
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small root file system: busybox, and empty directories where the node's libraries can be mounted."""
    image = tmp_path_factory.mktemp('container') / 'image'
    for name in ('bin', 'dev', 'etc', 'proc', 'sys', 'tmp', 'run', 'usr/share/openmpi'):
        (image / name).mkdir(parents=True)
    busybox = shutil.which('busybox')
    assert busybox
    shutil.copy(busybox, image / 'bin' / 'busybox')
    libraries = subprocess.run(['ldd', busybox], capture_output=True, text=True).stdout   # none if it is static
    for path in re.findall(r'/\S+', libraries):
        target = Path(f'{image}/usr{path.removeprefix("/usr")}')
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ('sh', 'cat', 'sleep', 'env', 'pwd', 'true', 'ls'):
        (image / 'bin' / name).symlink_to('busybox')
    for name in ('lib', 'lib64'):
        (image / name).symlink_to(f'usr/{name}')
    for name in ('passwd', 'group', 'hosts', 'resolv.conf'):
        (image / 'etc' / name).touch()
    (image / 'etc' / 'of-the-image').write_text('of the image\n')
    return image


@pytest.fixture(scope='package', autouse=True)
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Podman with files of its own, and without what only a host that is not a container itself allows."""
    missing = [name for name in ('podman', 'crun', 'catatonit', 'ch-run', 'busybox') if not shutil.which(name)]
    if missing:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'not installed: {", ".join(missing)}')
    base = tmp_path_factory.mktemp('podman')
    with pytest.MonkeyPatch.context() as patch:
        (base / 'bin').mkdir()
        program = base / 'bin' / 'podman'
        program.write_text(PODMAN)
        program.chmod(0o755)
        for name, text in (('CONTAINERS_CONF', CONTAINERS_CONF), ('CONTAINERS_STORAGE_CONF', STORAGE_CONF)):
            path = base / name.lower()
            path.write_text(text.format(base=base) if 'storage' in text else text)
            patch.setenv(name, str(path))
        patch.setenv('PATH', f'{base}/bin:{os.environ["PATH"]}')
        patch.delenv('USER', raising=False)   # as in some batch jobs
        yield base
        wait_until(lambda: not processes_with(str(base)), what='no process of Podman is left')
        # the record of a container may stay if Podman is killed before the container has started, or with it
        assert set(records().values()) <= {'created', 'exited'}, 'containers are left'


def records() -> dict[str, str]:
    """The states of all containers of Podman, by id."""
    listed = subprocess.run(['podman', 'ps', '--all', '--format', '{{.ID}} {{.State}}'], capture_output=True, text=True,
                            check=True).stdout
    return {number: state.split(' ')[0].lower() for number, _, state in (line.partition(' ') for line in
                                                                         listed.splitlines())}
