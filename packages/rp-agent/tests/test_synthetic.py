"""The synthetic task program: it does what it is asked for, and says what it cannot do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rp_agent.synthetic.cli import main
from rp_agent.synthetic.compute import OPERATIONS, compute, compute_until

PROGRAM = [sys.executable, '-m', 'rp_agent.synthetic.cli']
STAND_IN = Path(__file__).with_name('cuda_stand_in.c')


def done(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What the program says that it did."""
    assert main(arguments) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the program says about wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_seconds_are_computed(capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.thread_time()
    said = done(capsys, '--seconds', '0.05')
    assert said['seconds'] >= 0.05
    assert said['flops'] > 0
    assert time.thread_time() > begin


def test_flops_are_those_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert done(capsys, '--flops', '1e6')['flops'] == 1e6
    assert done(capsys, '--flops', '1')['flops'] == OPERATIONS   # no less than a step
    assert done(capsys, '--flops', '1e6', '--threads', '4')['flops'] == 1e6
    assert compute(0) == 0


def test_several_threads_compute() -> None:
    end = time.monotonic() + 0.1
    counts: list[float] = []
    threads = [threading.Thread(target=lambda: counts.append(compute_until(end))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 2
    assert all(count > 0 for count in counts)


def test_sleeping_uses_no_core(capsys: pytest.CaptureFixture[str]) -> None:
    said = done(capsys, '--seconds', '0.02', '--sleep')
    assert said['seconds'] >= 0.02
    assert said['flops'] == 0


def test_memory_is_used() -> None:
    code = ('from rp_agent.synthetic.cli import Amount, do; print(do(Amount(memory=64 << 20))["memory"]); '
            'print(open("/proc/self/status").read())')
    told = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True).stdout
    memory, most = told.split()[0], told.partition('VmHWM:')[2].split()[0]
    assert int(memory) == 64 << 20
    assert int(most) >= 64 << 10   # KiB


def test_files_are_read_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / 'source'
    source.write_bytes(b'x' * 1000)
    said = done(capsys, '--read', '2500', '--source', str(source), '--write', '3M', '--directory', str(tmp_path))
    assert (said['read'], said['written']) == (2500, 3 << 20)
    assert list(tmp_path.iterdir()) == [source]


def test_kernel_counts_what_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / 'source').write_bytes(b'x' * 1000)
    code = ('from rp_agent.synthetic.cli import Amount, do; print(do(Amount(read=5_000_000, source="source", '
            'write=5_000_000))["written"]); print(open("/proc/self/io").read())')
    told = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    counted = {name.rstrip(':'): int(value) for name, value in (line.split() for line in told.splitlines()[1:] if line)}
    assert counted['rchar'] >= 5_000_000
    assert counted['wchar'] >= 5_000_000


def test_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['--exit-code', '7']) == 7
    assert json.loads(capsys.readouterr().out)['ranks'] == 1


@pytest.mark.parametrize(('arguments', 'sentence'), [
    (['--seconds', '-1'], "'-1' is less than 0"),
    (['--seconds', 'nan'], "'nan' is not a number of seconds"),
    (['--seconds', '1', '--flops', '1'], 'not allowed with'),
    (['--flops', '1e9', '--sleep'], '--flops cannot be combined'),
    (['--threads', '0'], '0 must be a whole number of at least 1'),
    (['--memory', '3X'], "'3X' is not a number of bytes"),
    (['--read', '1M'], '--read and --source must be given together'),
])
def test_what_is_refused(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in refused(capsys, *arguments)


def test_what_cannot_be_done(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / 'empty').touch()
    for arguments, sentence in ((['--memory', '100000T'], 'not enough memory'),
                                (['--read', '1', '--source', str(tmp_path / 'empty')], 'is empty'),
                                (['--read', '1', '--source', str(tmp_path / 'missing')], 'No such file'),
                                (['--write', '1', '--directory', str(tmp_path / 'missing')], 'No such file')):
        assert main(arguments) == 1
        told = capsys.readouterr().err
        assert told.startswith('rp-synthetic: ')
        assert sentence in told


@pytest.mark.skipif('CI' not in os.environ and not shutil.which('cc'), reason='no C compiler')
def test_without_a_gpu(tmp_path: Path) -> None:
    told = run_with_gpus(tmp_path, 1, gpus=0)
    assert told.returncode == 1
    assert told.stderr.startswith('rp-synthetic: 1 GPUs are requested, but this process can use 0')


def test_without_a_driver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_agent.synthetic.cli.LIBRARY', 'libcuda-which-is-nowhere.so')
    assert main(['--gpus', '1', '--seconds', '0.01']) == 1
    assert 'this host has no NVIDIA driver' in capsys.readouterr().err


@pytest.mark.skipif('CI' not in os.environ and not shutil.which('cc'), reason='no C compiler')
def test_gpus_are_filled_until_the_end(tmp_path: Path) -> None:
    told = run_with_gpus(tmp_path, 2, gpus=2)
    assert told.returncode == 0, told.stderr
    said = json.loads(told.stdout)
    assert said['gpus'] == 2
    assert said['gpu_bytes'] > 0
    assert told.stderr.endswith('synchronised=1\n')


@pytest.mark.skipif('CI' not in os.environ and not shutil.which('cc'), reason='no C compiler')
def test_gpu_without_memory(tmp_path: Path) -> None:
    told = run_with_gpus(tmp_path, 1, gpus=1, full=True)
    assert told.returncode == 1
    assert 'cuMemAlloc_v2 failed: out of memory' in told.stderr


def run_with_gpus(work: Path, wanted: int, gpus: int, full: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the program where a stand-in for the driver knows so many GPUs."""
    subprocess.run(['cc', '-shared', '-fPIC', '-o', work / 'libcuda.so.1', STAND_IN], check=True)
    environ = os.environ | {'LD_LIBRARY_PATH': str(work), 'STAND_IN_GPUS': str(gpus)}
    if full:
        environ['STAND_IN_FULL'] = '1'
    return subprocess.run([*PROGRAM, '--gpus', str(wanted), '--seconds', '0.01'], env=environ, capture_output=True,
                          text=True, timeout=50)


def test_without_mpi4py(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'mpi4py', None)
    assert main(['--mpi']) == 1
    assert 'mpi4py' in capsys.readouterr().err


@pytest.mark.skipif('CI' not in os.environ and not shutil.which('mpiexec', path=str(Path(sys.executable).parent)),
                    reason='no MPI beside Python')
def test_ranks_work_together() -> None:
    launcher = str(Path(sys.executable).parent / 'mpiexec')
    told = subprocess.run([launcher, '-n', '2', *PROGRAM, '--mpi', '--flops', '1e6'], check=True, capture_output=True,
                          text=True, timeout=50).stdout
    decoder, said = json.JSONDecoder(), []
    while told := told.lstrip():
        value, end = decoder.raw_decode(told)
        said.append(value)
        told = told[end:]
    assert sorted((each['rank'], each['ranks'], each['flops']) for each in said) == [(0, 2, 1e6), (1, 2, 1e6)]
