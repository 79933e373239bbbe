"""Hosts for tests that are reached by ssh: this machine at a port of its own, or network namespaces as separate hosts.

Hosts share file system and processes. A namespace has its own network with an address and a loopback that nobody else
has, and its own host name, shared memory and boot id (`rp_api.system.host`), so that what works only because client and
agent are on one host does not work there.
`environ` has a PATH whose `ssh`, `scp` and `sftp` use the keys and the configuration of these hosts and nothing of the
user's.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from clusters import SYSTEM_PATH, Cluster, own_directory, require, require_root
from ports import free_ports

SERVER = '''\
Port {port}
ListenAddress {address}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/id.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100:30:200
MaxSessions 100
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
'''

CLIENT = '''\
Host {name}
  HostName {address}
  Port {port}
  IdentityFile {directory}/id
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
'''

# `ip netns exec` would hide the control groups, without which Slurm does not start; $0 is the directory of the hosts
ENTER = ('unshare', '--uts', '--mount', 'sh', '-c', '''set -e
mount --bind "$0/hosts" /etc/hosts
mount --bind "$0/$1.boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$0/$1.shm" /dev/shm
hostname "$1"
shift
exec "$@"''')


class SshHosts(Cluster):
    """Hosts that accept the key of the test; programs reach them with `environ`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {'PATH': f'{directory}/bin:{SYSTEM_PATH}'})
        (directory / 'bin').mkdir()
        for program in ('ssh', 'scp', 'sftp'):
            path = directory / 'bin' / program
            path.write_text(f'#!/bin/sh\nexec {shutil.which(program)} -F {directory}/ssh_config "$@"\n')
            path.chmod(0o755)
        for name in ('host_key', 'id'):
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', f'{directory}/{name}'], check=True)
        with suppress(PermissionError):   # without it, sshd does not start for root
            Path('/run/sshd').mkdir(exist_ok=True)

    def serve(self, name: str, address: str, port: int, prefix: tuple[str, ...] = (),
              environ: Mapping[str, str] | None = None) -> None:
        """Start a server that is called `name`; sessions have `environ` besides their own."""
        marked = {'RP_TEST_HOSTS': str(self.directory)} | dict(environ or {})   # by which sessions are found in the end
        text = SERVER.format(port=port, address=address, directory=self.directory)
        text += 'SetEnv ' + ' '.join(f'"{key}={value}"' for key, value in marked.items()) + '\n'
        configuration = self.directory / f'sshd_config.{name}'
        configuration.write_text(text)
        self.alias(name, address, port)
        self.daemon(*prefix, shutil.which('sshd', path=SYSTEM_PATH) or 'sshd', '-D', '-e', '-f', str(configuration))

    def alias(self, name: str, address: str, port: int = 22, *options: str) -> None:
        """Give a server another name in the configuration of `ssh`, with options such as `ProxyJump other`."""
        with open(self.directory / 'ssh_config', 'a') as file:
            file.write(CLIENT.format(name=name, address=address, port=port, directory=self.directory))
            file.writelines(f'  {option}\n' for option in options)

    def ssh(self, name: str, *command: str, check: bool = True) -> str:
        """What a command on a host writes."""
        return self.run('ssh', name, *command, check=check)

    def _until_answer(self, answer: str, name: str, *command: str) -> None:
        self.wait(lambda: self.run(*command, check=False) == f'{answer}\n', f'ssh {name}')

    def reached(self, *names: str) -> None:
        """Return when all of these hosts let us in."""
        for name in names:
            self._until_answer('in', name, 'ssh', name, 'echo', 'in')


class Namespaces(SshHosts):
    """Hosts h1, h2 ... of their own networks, which reach each other."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory)
        self.names = [f'h{index}' for index in range(1, count + 1)]
        self._tag = f'rp{os.getpid():x}x{secrets.token_hex(1)}'   # with a host's name, no longer than 15 letters
        self._net = f'10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}'

    def address(self, name: str) -> str:
        """The address of a host."""
        return f'{self._net}.{name[1:]}'

    def prefix(self, name: str) -> tuple[str, ...]:
        """What to put before a command so that it runs on that host."""
        return ('nsenter', f'--net=/run/netns/{self._tag}{name}', *ENTER, str(self.directory), name)

    def shared_memory(self, name: str) -> Path:
        """The directory that is `/dev/shm` on that host."""
        return self.directory / f'{name}.shm'

    def kill(self, name: str) -> None:
        """End all that runs on a host."""
        self._kill(f'{self._tag}{name}')

    def open(self, environ: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Let ssh in to all hosts; `environ` has what its sessions find in their environment, by host."""
        for name in self.names:
            self.serve(name, self.address(name), 22, self.prefix(name), (environ or {}).get(name))
        for name in self.names:   # from another host, as nothing else is connected to them
            self._until_answer(name, name, *self.prefix(self.names[0]), 'ssh', name, 'hostname')

    def stop(self) -> None:
        """End all that runs on the hosts, and the hosts."""
        super().stop()
        for name in self.names:
            self._remove(f'{self._tag}{name}')
            self.run('umount', str(self.shared_memory(name)), check=False)
        self.run('ip', 'link', 'del', self._tag, check=False)

    def clear(self) -> None:
        """Remove what runs have left that were killed."""
        for line in self.run('ip', 'netns', 'list').splitlines():
            if _is_left(line.split()[0]):
                self._remove(line.split()[0])
        for line in Path('/proc/self/mounts').read_text().splitlines():
            if _is_left(line.split()[0]):
                self.run('umount', line.split()[1], check=False)
        for link in json.loads(self.run('ip', '-json', 'link', 'show', 'type', 'bridge') or '[]'):
            if _is_left(link.get('ifname', '')):
                self.run('ip', 'link', 'del', link['ifname'], check=False)

    def _remove(self, space: str) -> None:
        self._kill(space)
        self.run('ip', 'netns', 'del', space, check=False)

    def _kill(self, space: str) -> None:
        for pid in self.run('ip', 'netns', 'pids', space, check=False).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def link(self) -> None:
        """Make the hosts and the network: a bridge without an address, as this machine itself is not in that network.
        """
        self.run('ip', 'link', 'add', self._tag, 'type', 'bridge')
        self.run('ip', 'link', 'set', self._tag, 'up')
        known = ''.join(f'{self.address(name)} {name}\n' for name in self.names)
        (self.directory / 'hosts').write_text(f'127.0.0.1 localhost\n{known}')
        for name in self.names:
            space, wire = f'{self._tag}{name}', f'{self._tag}{name}v'
            (self.directory / f'{name}.boot_id').write_text(f'{uuid.uuid4()}\n')
            self.shared_memory(name).mkdir()
            self.run('mount', '-t', 'tmpfs', space, str(self.shared_memory(name)))
            self.run('ip', 'netns', 'add', space)
            self.run('ip', 'link', 'add', wire, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', space)
            self.run('ip', 'link', 'set', wire, 'master', self._tag, 'up')
            self.run('ip', '-n', space, 'addr', 'add', f'{self.address(name)}/24', 'dev', 'eth0')
            for device in ('eth0', 'lo'):
                self.run('ip', '-n', space, 'link', 'set', device, 'up')


def _is_left(name: str) -> bool:
    """Whether this is a name of ours, and the process that has made it is gone."""
    owner = re.match('rp([0-9a-f]+)x[0-9a-f]{2}', name)
    return owner is not None and not Path('/proc', str(int(owner[1], 16))).exists()


@contextmanager
def ssh_server() -> Iterator[SshHosts]:
    """This machine, reached by ssh under the name `localhost`."""
    require('sshd', 'ssh', 'ssh-keygen')
    with own_directory('ssh.') as directory:
        hosts = SshHosts(directory)
        try:
            hosts.serve('localhost', '127.0.0.1', free_ports(1)[0])
            hosts.reached('localhost')
            yield hosts
        finally:
            hosts.stop()


@contextmanager
def namespaces(count: int) -> Iterator[Namespaces]:
    """So many hosts of their own networks, to which `open` lets ssh in."""
    require('sshd', 'ssh', 'ssh-keygen', 'ip', 'nsenter', 'unshare')
    require_root('make network namespaces')
    with own_directory('hosts.') as directory:
        hosts = Namespaces(directory, count)
        try:
            hosts.clear()
            hosts.link()
            yield hosts
        finally:
            hosts.stop()
