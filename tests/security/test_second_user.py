"""Another local user prepares what a session will use, or attacks one that is there: nothing is run, read or changed.

Both are ordinary users. What an attack would have the victim execute writes a file, whose owner gives it away.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ordinary_users import Machine, User, machine

from rp_client import __version__
from rp_client.bootstrap.prepare import stage_0

HERE = Path(__file__).parent

STICKY, OPEN = 0o1777, 0o777
both = pytest.mark.parametrize('mode', [STICKY, OPEN], ids=['sticky', 'open'])


class Case(NamedTuple):
    """The two users, what they have in common, and where the proof of a break-in would be."""

    on: Machine
    victim: User
    intruder: User
    shared: Path
    proof: Path
    precious: Path

    def opens(self, **settings: Any) -> dict[str, Any]:
        """What the victim's application has seen that opens a session and runs a task."""
        environ, who = settings.pop('environ', {}), settings.pop('who', self.victim)
        with_pilot = {'pilot': {'sandbox': str(self.victim.home)}} | settings
        code, said = who.run(self.on.python, self.on.place / 'victim.py', json.dumps(with_pilot), cwd=self.shared,
                             **environ)
        assert code == 0, said
        return facts(said)

    def prepares(self, uid: str, base: Path | None = None) -> Path:
        """Have a session prepared by the intruder, with a hub in it that others can reach; its directory."""
        code, said = self.intruder.run(self.on.python, self.on.place / 'intruder.py', base or self.shared, uid,
                                       self.proof, cwd=self.intruder.home)
        assert (code, said) == (0, 'prepared\n')
        return (base or self.shared) / uid

    def makes(self, *steps: str) -> None:
        """Have the intruder run shell commands in the shared directory."""
        code, said = self.intruder.run('/bin/sh', '-euc', '\n'.join(steps), cwd=self.shared)
        assert code == 0, said

    def cannot(self, **attempts: Iterable[Any]) -> None:
        """Fail if the intruder can do one of these things, see `attempts.py`, to one of these paths or processes."""
        wanted = [[what.replace('_', ' '), each if isinstance(each, int) else str(each)]
                  for what, those in attempts.items() for each in those]
        assert wanted
        code, said = self.intruder.run(self.on.python, self.on.place / 'attempts.py', cwd=self.shared,
                                       stdin=json.dumps(wanted))
        assert (code, json.loads(said)) == (0, [])


def facts(said: str) -> dict[str, Any]:
    """What a program has told in its last line."""
    found: dict[str, Any] = json.loads(said.strip().rpartition('\n')[2])
    return found


def belongs_to(user: User) -> str:
    """How an error names the owner."""
    return rf'belongs to user {user.uid} \({user.name}\)'


@pytest.fixture(scope='module')
def users() -> Iterator[tuple[Machine, User, User]]:
    with machine(compiled=True) as made:
        for program in ('victim.py', 'intruder.py', 'attempts.py'):
            shutil.copy(HERE / program, made.place)
        yield made, made.add_user('alice'), made.add_user('mallory')


@pytest.fixture
def mode() -> int:
    return STICKY


@pytest.fixture
def case(users: tuple[Machine, User, User], mode: int, tmp_path: Path) -> Iterator[Case]:
    """A shared directory of that mode; at the end, the victim has lost nothing and runs nothing."""
    on, victim, intruder = users
    found = Case(on, victim, intruder, on.shared(f'shared.{tmp_path.name}', mode),
                 on.shared(f'proof.{tmp_path.name}', STICKY), victim.home / f'precious.{tmp_path.name}')
    found.precious.write_text('mine')
    os.chown(found.precious, victim.uid, victim.uid)
    yield found
    intruder.kill()
    left = victim.left()
    victim.kill()
    assert left == {}
    assert [path for path in found.proof.iterdir() if path.stat().st_uid == victim.uid] == []
    assert found.precious.read_text() == 'mine'
    assert stat.S_IMODE(victim.home.stat().st_mode) == 0o700


# what is prepared where a session will be

@both
def test_session_with_a_hub_in_it(case: Case) -> None:
    """1: the victim is expected to attach to it, and to execute the tasks that wait there."""
    directory = case.prepares('campaign')
    told = case.opens(session={'uid': 'campaign', 'cfg': {'base': str(case.shared)}})
    assert re.match(f'OwnershipError: {directory} is not ours alone: it {belongs_to(case.intruder)}', told['error'])


@both
def test_empty_directory(case: Case) -> None:
    """2: the victim's files would be made in a directory that the intruder can change."""
    case.makes('mkdir u && chmod 777 u')
    told = case.opens(session={'uid': 'u', 'cfg': {'base': str(case.shared)}})
    assert re.search(f'{case.shared}/u is not ours alone: it {belongs_to(case.intruder)}.* mode 0777', told['error'])
    assert not list((case.shared / 'u').iterdir())


@both
@pytest.mark.parametrize('target', ['one of the intruder', 'one of the victim'])
def test_link_in_place_of_a_directory(case: Case, target: str) -> None:
    """3: the session would be made somewhere else, and what is there would get its mode."""
    place = case.victim.home if target == 'one of the victim' else case.shared / 'mine'
    case.makes('mkdir mine && chmod 777 mine', f'ln -s {place} u')
    before = sorted(os.listdir(place))
    told = case.opens(session={'uid': 'u', 'cfg': {'base': str(case.shared)}})
    assert f'{case.shared}/u is not ours alone: it is a symbolic link of user {case.intruder.uid}' in told['error']
    assert sorted(os.listdir(place)) == before


def test_directory_of_the_victim_that_others_could_write_to(case: Case) -> None:
    """4: a hub, links to the victim's files: whatever the intruder has put there before it was closed."""
    prepared = case.prepares('theirs')
    code, said = case.victim.run('/bin/sh', '-euc', 'mkdir u; chmod 777 u', cwd=case.shared)
    assert (code, said) == (0, '')
    case.makes(f'cp {prepared}/hub.json {prepared}/hub.db* u/', f'ln -s {case.precious} u/hub.log')
    told = case.opens(session={'uid': 'u', 'cfg': {'base': str(case.shared)}})
    assert f'{case.shared}/u is not ours alone: others may write to it (mode 0777, allowed is 0755)' in told['error']


@pytest.mark.parametrize('variables', [{}, {'RADICAL_PILOT_SID_BASE': 'run'}], ids=['plain', 'named'])
@both
def test_uid_that_was_guessed(case: Case, variables: dict[str, str]) -> None:
    """5: a plain `Session()` in a shared directory is a new one, with a new directory, whatever is there."""
    day = int(time.time() // 86400)
    host = socket.gethostname().partition('.')[0]
    form = 'run.%04d' if variables else f'rp.session.{host}.{case.victim.name}.{day:06d}.%04d'
    case.prepares(form % 0)
    case.makes(*(f'cp -r {form % 0} {form % number}' for number in (1, 2)), f'ln -s {case.victim.home} {form % 3}')
    told = case.opens(environ=variables | {'RADICAL_BASE': str(case.on.shared(f'{case.shared.name}.count', STICKY))})
    assert told['attached'] is False
    assert told['managers'] == []
    assert told['tasks'] == [['DONE', f'{case.victim.name}\n']]
    assert told['all'] == 1
    assert re.fullmatch(r'run\.0004' if variables else rf'{re.escape(form % 0)}-[0-9a-f]{{16}}', told['uid'])
    made = Path(told['path']).stat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (case.victim.uid, 0o700)


# what is prepared where a pilot will be

@pytest.mark.parametrize('staged', [False, True], ids=['', 'staging'])
@both
def test_sandbox_of_a_pilot(case: Case, staged: bool) -> None:
    """6: links to the victim's files where files of the pilot will be written, in a directory that the site offers."""
    offered = case.shared / 'radical.pilot.sandbox'
    offered.mkdir()
    offered.chmod(STICKY)
    names = ('agent_0.cfg', 'agent_0.out', 'agent_0.err', 'agent_0.log', 'agent_0.prof', 'input')
    case.makes('cd radical.pilot.sandbox', 'mkdir -p u/pilot.0000', 'chmod 777 u u/pilot.0000',
               *(f'ln -s {case.precious} u/pilot.0000/{name}' for name in names))
    pilot: dict[str, Any] = {'sandbox': str(case.shared)}
    if staged:
        (case.proof / 'input').write_text('x')
        pilot['input_staging'] = [f'{case.proof}/input']
    told = case.opens(session={'uid': 'u', 'cfg': {'base': str(case.victim.home)}}, pilot=pilot)
    assert told['pilot'] == 'FAILED'
    assert re.search(f'{offered}/u is not ours alone: it {belongs_to(case.intruder)}', told['exception'])
    shutil.rmtree(case.victim.home / 'u')


@pytest.mark.parametrize('how', ['mkdir {} && chmod 777 {}', 'mkdir mine && chmod 777 mine && ln -s mine {}'],
                         ids=['directory', 'link'])
@both
def test_directory_of_all_sandboxes(case: Case, how: str) -> None:
    """7: its owner could put another directory in place of the pilot's at any time."""
    case.makes(how.replace('{}', 'radical.pilot.sandbox'))
    told = case.opens(pilot={'sandbox': str(case.shared)})
    assert told['pilot'] == 'FAILED'
    assert re.search(f'{case.shared}/radical.pilot.sandbox is not ours alone: it {belongs_to(case.intruder)}, in a '
                     'directory where every user can make entries', told['exception'])
    assert list((case.shared / 'radical.pilot.sandbox').iterdir()) == []


@pytest.mark.parametrize('owner', ['intruder', 'victim'])
@pytest.mark.parametrize('stage', [0, 3])
def test_sandbox_that_others_can_change_on_the_side_of_the_pilot(case: Case, owner: str, stage: int) -> None:
    """8: it was good when the client saw it, or another host did: the job and the agent look for themselves."""
    path = case.shared / 'sandbox'
    bad = f'echo $(id -un) > {case.proof}/stage.0'
    if owner == 'victim':
        case.victim.run('/bin/sh', '-euc', 'mkdir sandbox; chmod 777 sandbox', cwd=case.shared)
    case.makes('mkdir -p sandbox', 'cd sandbox', f'echo "{bad}" > pilot.sh', f'ln -s {case.precious} agent_0.log',
               f'ln -s {case.precious} bootstrap_0.failed', 'echo {} > agent_0.cfg', 'chmod 777 . || true')
    if stage == 0:
        (path / 'bootstrap_0.sh').write_bytes(stage_0())
        code, said = case.victim.run('/bin/sh', f'{path}/bootstrap_0.sh', cwd=case.victim.home)
        assert code == 10
    else:
        config = case.shared / 'good.cfg'
        config.write_text(json.dumps({'pilot_sandbox': str(path)}))
        config.chmod(0o600)
        os.chown(config, case.victim.uid, case.victim.uid)
        code, said = case.victim.run('rp-agent', config, cwd=case.victim.home)
        assert code == 2
        stolen = case.victim.run('rp-agent', path / 'agent_0.cfg', cwd=case.victim.home)
        assert stolen[0] == 2
        assert re.search(f'agent_0.cfg is not ours alone: it {belongs_to(case.intruder)}', stolen[1])
    words = 'others may write to it' if owner == 'victim' else f'it belongs to user .*{case.intruder.name}'
    assert re.search(f'{path} is not ours alone: {words}', said)


def test_virtual_environment(case: Case) -> None:
    """9: the Python of a pilot, under the name that it has where platforms do not say otherwise."""
    name = f've.site.machine.{__version__}'
    case.makes(f'mkdir -p {name}/bin', f'printf "#!/bin/sh\\nid > {case.proof}/$$\\n" > {name}/bin/python',
               f'chmod -R 777 {name}')
    maker = Path(shutil.copy(HERE.parents[1] / 'packages/rp-client/src/rp_client/bootstrap/virtenv.py',
                             case.on.place / 'bootstrap_0.py'))
    code, said = case.victim.run(case.on.python, '-I', maker, 'update', case.shared / name, 'rp-agent',
                                 '--session', 's', cwd=case.victim.home)
    assert code == 15
    assert f'{case.shared}/{name} is not ours alone: it belongs to user {case.intruder.uid}' in said


def test_stand_alone_hub(case: Case) -> None:
    """10: its directory, and a file that tells the victim's applications of a hub, where all share $RADICAL_BASE."""
    case.makes('mkdir hub && chmod 777 hub')
    code, said = case.victim.run('rp', 'hub', 'start', '--directory', case.shared / 'hub', cwd=case.shared)
    assert code != 0
    assert re.search(f'{case.shared}/hub is not ours alone: it {belongs_to(case.intruder)}', said)
    code, said = case.intruder.run('rp', 'hub', 'start', '--directory', case.intruder.home / 'hub',
                                   cwd=case.shared, RADICAL_BASE=str(case.shared))
    assert code == 0, said
    url = re.search(r'tcp://[\w.]+:\d+', said)
    assert url is not None
    case.makes('chmod -R a+rX .radical', 'chmod a+r .radical/pilot/hubs/*')
    told = case.opens(session={'proxy_url': url[0], 'cfg': {'base': str(case.victim.home)}},
                      environ={'RADICAL_BASE': str(case.shared)})
    assert re.search(rf'hubs/\S+\.json is not ours alone: it {belongs_to(case.intruder)}', told['error'])


def test_socket_of_a_session_that_was_left(case: Case) -> None:
    """11: where the hub had its socket, another one listens when the next application comes."""
    with case.victim.start(case.on.python, case.on.place / 'victim.py', json.dumps({
            'session': {'uid': 'left', 'cfg': {'base': str(case.shared)}, 'orphan_timeout': 0}, 'stay': True,
            'pilot': {'sandbox': str(case.victim.home)}}), cwd=case.shared) as process:
        assert process.stdout is not None
        told = facts(process.stdout.readline())
        case.victim.kill()
    directory = Path(told['reg_addr'].removeprefix('ipc://')).parent
    shutil.rmtree(directory)   # as what cleans up /tmp does
    case.makes(f'mkdir {directory}', f'chmod 777 {directory}')
    told = case.opens(session={'uid': 'left', 'cfg': {'base': str(case.shared)}})
    assert re.search(f'{directory} is not ours alone: it {belongs_to(case.intruder)}', told['error'])


# what is prepared where a session has things that outlive it

ENVIRONMENT = ('mkdir -p {0}/bin && printf "id > {1}/\\$\\$\\n" > {0}/bin/activate && '
               'printf "#!/bin/sh\\nid > {1}/\\$\\$\\n" > {0}/bin/python && chmod -R 777 {0}')


@pytest.mark.parametrize(('steps', 'path', 'bad'), [
    ([ENVIRONMENT], 'e', 'e'),
    ([ENVIRONMENT.replace('{0}', 'mine'), 'ln -s mine e'], 'e', 'e'),
    ([ENVIRONMENT.replace('{0}', 'above/e')], 'above/e', 'above'),
    (['mkdir above && chmod 777 above'], 'above/e', 'above'),
    (['touch e.lock'], 'e', 'e.lock'),
    (['mkdir mine && ln -s mine/lock e.lock'], 'e', 'e.lock')])
def test_environment_at_a_path(case: Case, steps: list[str], path: str, bad: str) -> None:
    """15: what tasks activate, what is built into, and the lock that a builder would wait for."""
    case.makes(*(step.format('e', case.proof) for step in steps))
    told = case.opens(task={'named_env': 'e'},
                      pilot={'sandbox': str(case.victim.home), 'prepare_env': {'e': {'path': str(case.shared / path)}}})
    assert [state for state, _ in told['tasks']] == ['FAILED']
    assert re.search(f'{case.shared}/{bad} is not ours alone: it {belongs_to(case.intruder)}', told['reasons'][0])


def test_lock_that_another_user_could_hold(case: Case) -> None:
    """16: on an environment of the victim, which the intruder may use."""
    pilot = {'sandbox': str(case.victim.home), 'prepare_env': {'e': {'path': str(case.shared / 'e')}}}
    assert case.opens(task={'named_env': 'e'}, pilot=pilot)['tasks'] == [['DONE', f'{case.victim.name}\n']]
    case.cannot(read=[case.shared / 'e.lock'])   # without that, nothing can be locked
    told = case.opens(task={'named_env': 'e'}, pilot=pilot | {'sandbox': str(case.intruder.home)}, who=case.intruder)
    assert told['tasks'][0][0] == 'FAILED'   # where all can make entries; elsewhere it would be used
    assert re.search(f'{case.shared}/e is not ours alone: it {belongs_to(case.victim)}', told['reasons'][0])


def test_environment_of_another_user_where_only_its_owner_makes_entries(case: Case) -> None:
    """17: as a group shares one; nothing waits for a lock of another user."""
    case.makes('mkdir mine')
    path = case.shared / 'mine' / 'e'
    case.shared.chmod(0o755)

    def uses(who: User) -> tuple[str, str]:
        told = case.opens(who=who, session={'cfg': {'base': str(who.home)}}, task={'named_env': 'e'},
                          pilot={'sandbox': str(who.home), 'prepare_env': {'e': {'path': str(path)}}})
        return told['tasks'][0][0], told['reasons'][0]

    assert uses(case.intruder)[0] == 'DONE'
    assert uses(case.victim)[0] == 'DONE'
    case.makes('rm mine/e/.rp.complete')
    state, reason = uses(case.victim)
    assert state == 'FAILED'
    assert f'{path} is locked by user {case.intruder.uid} ({case.intruder.name}), and has no complete' in reason


def test_cache_of_another_user(case: Case) -> None:
    """18: a link to a directory of the victim would change its mode, a directory would give forged results."""
    theirs = case.victim.home / 'open'
    theirs.mkdir(0o755)
    os.chown(theirs, case.victim.uid, case.victim.uid)
    for step in (f'ln -s {theirs} .rp.cache', 'mkdir .rp.cache && chmod 777 .rp.cache'):
        case.makes(step)
        told = case.opens(session={'cfg': {'base': str(case.shared)}}, task={'cache': True})
        assert told['tasks'] == [['DONE', f'{case.victim.name}\n']]   # without a cache, which is a notice
        assert (stat.S_IMODE(theirs.stat().st_mode), list(theirs.iterdir())) == (0o755, [])
        case.makes('ls -A .rp.cache/ | wc -l | grep -qx 0', 'rm -r .rp.cache')


def test_directory_of_large_objects(case: Case) -> None:
    """19: its name in memory can be read, and made on the disk before it is needed."""
    with case.victim.start(case.on.python, '-c', OVERFLOW, case.shared, cwd=case.shared) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        case.makes(f'mkdir {name} && chmod 777 {name}')
        said, _ = process.communicate('go on\n', 60)
    path = Path(said.strip())
    assert path.parent.name != name
    assert path.parent.parent == case.shared
    assert list((case.shared / name).iterdir()) == []


OVERFLOW = """
import os, sys
from rp_api.system import shared_directory
shared_directory.room = lambda directory: 0
made = shared_directory.SharedDirectory(sys.argv[1])
print(os.path.basename(made.path), flush=True)
sys.stdin.readline()
path = made.path_for(1000)
open(path, 'x').close()
print(path)
"""


# a session that is there

class Live(NamedTuple):
    """A session at work, and what the victim's application has told about it."""

    case: Case
    told: dict[str, Any]

    @property
    def directories(self) -> list[Path]:
        """All that belongs to the session."""
        listening = Path(self.told['ipc'].removeprefix('ipc://')).parent
        return [Path(self.told['path']), Path(self.told['pilot_sandbox']), Path(self.told['sandbox']), listening]


@pytest.fixture
def live(case: Case) -> Iterator[Live]:
    """A session in a shared directory, with a pilot and a task; it goes on, and ends in order, when all is over."""
    config = {'base': str(case.shared), 'hub': {'listen': 'tcp://127.0.0.1'}}
    settings = {'session': {'uid': 'live', 'cfg': config}, 'stay': True, 'pilot': {'sandbox': str(case.shared)}}
    with case.victim.start(case.on.python, case.on.place / 'victim.py', json.dumps(settings),
                           cwd=case.shared) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        told = facts(process.stdout.readline())
        told['ipc'], told['tcp'] = endpoints(Path(told['path']))
        wait_for(Path(told['sandbox'], 'ready').exists)
        yield Live(case, told)
        said, _ = process.communicate('go on\n', 60)
    end = facts(said)
    assert (process.returncode, end['pilot'], end['tasks']) == (0, 'PMGR_ACTIVE', [['DONE', f'{case.victim.name}\n']])


def endpoints(directory: Path) -> list[str]:
    """Where the hub of the session listens."""
    found: list[str] = json.loads((directory / 'hub.json').read_text())['endpoints']
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@both
def test_nothing_of_a_session_can_be_read_or_replaced(live: Live) -> None:
    """12: keys, descriptions, outputs, variables of tasks; links and directories in the place of ours."""
    case = live.case
    inside = [path for directory in live.directories for path in directory.rglob('*')]
    for wanted in ('hub.json', 'hub.db', 'agent_0.cfg', 'secret.txt', 's'):
        assert [path for path in inside if path.name == wanted]
    for path in (*live.directories, *inside):
        assert path.lstat().st_uid == case.victim.uid, path
    case.cannot(read=inside, append=inside, list=live.directories, enter=live.directories, make=live.directories,
                open_to_all=[*live.directories, *inside])
    top = [case.shared / 'live', case.shared / 'radical.pilot.sandbox', live.directories[-1]]
    if stat.S_IMODE(case.shared.stat().st_mode) == OPEN:   # what that means is in docs/operate/security.md
        top = top[-1:]
    case.cannot(move=top, remove=top, replace=top)


def test_processes_of_a_session_cannot_be_touched(live: Live) -> None:
    """13: signals, ptrace, memory, environment; command lines show no secret."""
    case = live.case
    processes = case.victim.processes()
    assert len(processes) >= 4   # application, hub, agent, task
    own = [f'/proc/{pid}' for pid in processes]
    case.cannot(kill=processes, trace=processes, list=[f'{path}/{name}' for path in own for name in ('fd', 'cwd/')],
                read=[f'{path}/{name}' for path in own for name in ('environ', 'mem', 'maps', 'exe')])
    for secret in ('hunter2', *keys_of(live)):
        assert not [line for line in processes.values() if secret in line]


def test_sockets_of_a_session_let_nobody_in(live: Live) -> None:
    """14: with keys of one's own, and with none."""
    case = live.case
    program = case.on.place / 'speak.py'
    program.write_text(SPEAK)
    code, said = case.intruder.run(case.on.python, program, live.told['ipc'], live.told['tcp'],
                                   json.loads((Path(live.told['path']) / 'hub.json').read_text())['public'],
                                   cwd=case.shared)
    assert (code, facts(said)) == (0, {'answers': 0, 'connected': [False, True]})
    wait_for(lambda: 'refused a peer' in (Path(live.told['path']) / 'hub.log').read_text())


SPEAK = """
import json, socket, sys
import zmq
context, answers, connected = zmq.Context(), 0, []
for address in sys.argv[1:3]:
    kind, _, rest = address.partition('://')
    try:
        with socket.socket(socket.AF_UNIX if kind == 'ipc' else socket.AF_INET) as plain:
            plain.connect(rest if kind == 'ipc' else (rest.rpartition(':')[0], int(rest.rpartition(':')[2])))
        connected.append(True)
    except PermissionError:
        connected.append(False)
    for curve in (False, True):
        with context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            if curve:
                dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
                dealer.curve_serverkey = sys.argv[3].encode()
            dealer.connect(address)
            dealer.send(b'hello')
            answers += dealer.poll(250)
context.destroy(0)
print(json.dumps({'answers': answers, 'connected': connected}))
"""


def keys_of(live: Live) -> list[str]:
    """The secret keys of the session."""
    config = json.loads((Path(live.told['path']) / 'hub.json').read_text())
    return [config['secret'], *config['secrets'].values()]
