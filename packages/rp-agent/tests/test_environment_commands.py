"""Command lines that build environments of each type, and the scripts that activate them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rp_agent.environments import commands
from rp_agent.environments.builder import activation_script, listing, shared
from rp_agent.environments.sources import BuildError, dependencies, digests
from rp_agent.launch_method.base import LaunchMethod
from rp_agent.launch_method.find import find
from rp_api.description.environment import EnvSpec, normal_form

PIP = 'python -m pip install --no-input --disable-pip-version-check'


def spec(**values: Any) -> EnvSpec:
    return normal_form('e', values)


@pytest.mark.parametrize(('values', 'programs', 'lines'), [
    ({}, ['python3'], ['python3 -m venv --without-pip /p/e']),
    ({'version': '3.12', 'setup': ['numpy>1', "-r 'a b'"]}, ['python3.12'],
     ['python3.12 -m venv /p/e', '. /p/e/bin/activate', f"{PIP} 'numpy>1' -r 'a b'"]),
    ({'type': 'virtualenv', 'version': '3.11', 'setup': ['.']}, ['python3.11'],
     ['if command -v virtualenv > /dev/null; then virtualenv -p python3.11 /p/e; else python3.11 -m venv /p/e; fi',
      '. /p/e/bin/activate', f'{PIP} .']),
    ({'type': 'uv', 'version': '3.12', 'setup': ['numpy', 'pyproject.toml']}, ['uv'],
     ['uv venv --no-progress --python 3.12 /p/e',
      'uv pip install --no-progress --python /p/e/bin/python numpy -r pyproject.toml']),
    ({'type': 'uv'}, ['uv'], ['uv venv --no-progress /p/e']),
    ({'type': 'conda', 'version': '3.12', 'setup': ['numpy']}, ['conda'],
     ['conda create --yes --prefix /p/e python=3.12 pip', 'eval "$(conda shell.posix hook)"', 'conda activate /p/e',
      f'{PIP} numpy']),
    ({'type': 'anaconda'}, ['conda'], ['conda create --yes --prefix /p/e python pip']),
    ({'type': 'mamba', 'setup': ['numpy']}, ['mamba'],
     ['mamba create --yes --prefix /p/e python pip', 'eval "$(mamba shell hook --shell posix)"', 'mamba activate /p/e',
      f'{PIP} numpy'])])
def test_build(values: dict[str, Any], programs: list[str], lines: list[str]) -> None:
    found = spec(**values)
    assert list(commands.needed(found)) == programs
    assert commands.build(found, '/p/e', commands.requirements_words(found, {})) == lines


@pytest.mark.parametrize(('kind', 'lines'), [
    ('venv', [". '/a b'/bin/activate"]), ('virtualenv', [". '/a b'/bin/activate"]), ('uv', [". '/a b'/bin/activate"]),
    ('conda', ['eval "$(conda shell.posix hook)"', "conda activate '/a b'"]),
    ('anaconda', ['eval "$(conda shell.posix hook)"', "conda activate '/a b'"]),
    ('mamba', ['eval "$(mamba shell hook --shell posix)"', "mamba activate '/a b'"]), ('shell', [])])
def test_activation(kind: str, lines: list[str]) -> None:
    assert commands.activation(spec(type=kind), '/a b') == lines


def test_the_dependencies_of_a_project_replace_its_pyproject(tmp_path: Path) -> None:
    project = tmp_path / 'pyproject.toml'
    project.write_text('[project]\nname = "x"\ndependencies = ["numpy>1", "scipy"]\n')
    found = dependencies(str(project))
    assert commands.requirements_words(spec(setup=['pyproject.toml', 'dask']), {'pyproject.toml': found}) == [
        'numpy>1', 'scipy', 'dask']


@pytest.mark.parametrize(('text', 'words'), [
    ('[tool.x]\n', 'no table "project"'), ('[project\n', 'cannot be read'),
    ('[project]\ndynamic = ["dependencies"]\n', 'dynamic.*directory of the project')])
def test_a_project_without_a_list_of_dependencies_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / 'pyproject.toml').write_text(text)
    with pytest.raises(BuildError, match=words):
        dependencies(str(tmp_path / 'pyproject.toml'))


def test_digests_cover_what_requirements_files_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'r').mkdir()
    (tmp_path / 'p').mkdir()
    texts = {'r/a.txt': '# all\n-r b.txt  # more\n--constraint=c.txt\n-r https://x/y.txt\n-r ${Z}/z.txt\n',
             'r/b.txt': 'tiny\n-rd.txt\n./p\n', 'r/c.txt': 'tiny==1\n', 'r/d.txt': '-r \\\na.txt\n', 'p/m.py': ''}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for entry in ('-r r/a.txt', '-r ./r/a.txt', '--requirement=r/a.txt', '-rr/a.txt'):
        wanted = spec(setup=[entry])
        known = digests(wanted)
        for name, text in texts.items():
            (tmp_path / name).write_text(f'{text}#\n')
            assert digests(wanted) != known, name
            (tmp_path / name).write_text(text)
            assert digests(wanted) == known
    (tmp_path / 'r' / 'd.txt').unlink()
    with pytest.raises(BuildError, match=r'd\.txt'):
        digests(spec(setup=['-r r/a.txt']))


def test_digests_cover_files_and_the_sources_in_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'project' / 'build').mkdir(parents=True)
    source = tmp_path / 'project' / 'module.py'
    source.write_text('a = 1\n')
    wanted = spec(setup=['./project', '-r r.txt', 'numpy'])
    with pytest.raises(BuildError, match=r"'r\.txt'.*No such file"):
        digests(wanted)
    (tmp_path / 'r.txt').write_text('numpy\n')
    before = digests(wanted)
    assert set(before) == {'./project', 'r.txt'}
    (tmp_path / 'project' / 'build' / 'left').touch()
    assert digests(wanted) == before
    source.write_text('a = 2\n')
    assert digests(wanted)['./project'] != before['./project']
    assert digests(wanted)['r.txt'] == before['r.txt']


BEFORE = {'PATH': '/bin:/usr/bin', 'HOME': '/h', 'LD_LIBRARY_PATH': '/l', 'GONE': '1', 'SHLVL': '1', 'CPATH': 'x'}
AFTER = {'PATH': '/e/bin:/bin:/usr/bin', 'HOME': '/h', 'LD_LIBRARY_PATH': '/l:/e/lib', 'SHLVL': '2', 'CPATH': 'y',
         'VIRTUAL_ENV': "/it's", 'RP_TASK_ID': 'x', 'CUDA_VISIBLE_DEVICES': '3', 'ROCR_VISIBLE_DEVICES': '3',
         'SLURM_JOB_ID': '4', 'PMIX_RANK': '0', 'PWD': '/x', 'BASH_FUNC_module%%': '() { :; }'}


def difference() -> str:
    reserved = [*LaunchMethod.RESERVED, *find('SRUN').RESERVED]
    return activation_script(shared(BEFORE, reserved), shared(AFTER, reserved))


def test_activation_script_has_the_difference() -> None:
    assert difference().splitlines() == [
        'export CPATH=y', 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}"/e/lib',
        'export PATH=/e/bin"${PATH:+:$PATH}"', "export VIRTUAL_ENV='/it'\"'\"'s'", 'unset GONE']


def test_the_listing_is_that_of_env() -> None:
    assert listing({'B': "it's", 'A': '1'}) == "A=1\nB=it's\n"


@pytest.mark.parametrize('shell', ['bash', 'dash'])
def test_activation_keeps_what_a_launcher_has_added(tmp_path: Path, shell: str) -> None:
    script = tmp_path / 'activate.sh'
    script.write_text(difference())
    done = subprocess.run([f'/bin/{shell}', '-c', f'. {script}; echo "$PATH $LD_LIBRARY_PATH $CPATH ${{GONE-none}}"'],
                          env={'PATH': '/launcher:/bin:/usr/bin', 'GONE': '1'}, text=True, capture_output=True,
                          check=True, timeout=20)
    assert done.stdout.split() == ['/e/bin:/launcher:/bin:/usr/bin', '/e/lib', 'y', 'none']
