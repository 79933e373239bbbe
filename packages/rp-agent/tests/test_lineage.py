"""What a process is to its parent, and to orphans, with real ones."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from rp_api.system import processes


def test_become_subreaper() -> None:
    program = '''if True:
        import os, subprocess
        from rp_agent.lineage import become_subreaper
        from rp_api.system.processes import read_process
        become_subreaper()
        command = ['/bin/sh', '-c', 'sleep 1000 >/dev/null 2>&1 & echo $!']
        pid = int(subprocess.run(command, capture_output=True).stdout)
        print(read_process(pid).parent == os.getpid())
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    '''
    ran = subprocess.run([sys.executable, '-c', program], check=True, timeout=30, capture_output=True, text=True)
    assert ran.stdout == 'True\n'


@pytest.mark.parametrize('gone', [False, True])
def test_die_with_parent(gone: bool) -> None:
    """Whether the parent ends later, or has ended before its child could ask for it."""
    child = f'''if True:
        import os, time
        from rp_agent.lineage import die_with_parent
        die_with_parent({'1 + os.getppid()' if gone else 'os.getppid()'})
        print('asked', flush=True)
        time.sleep(1000)
    '''
    parent = f'''if True:
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, '-c', {child!r}], stderr=subprocess.DEVNULL)
        print(child.pid, flush=True)
        time.sleep(1000)
    '''
    with subprocess.Popen([sys.executable, '-c', parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pidfd = processes.pidfd_open(int(process.stdout.readline()))
        assert pidfd is not None
        try:
            if not gone:
                assert process.stdout.readline() == 'asked\n'
                process.kill()
            assert select.select([pidfd], [], [], 30)[0]
        finally:
            os.close(pidfd)
            process.kill()
