"""Shell lines that build and activate environments, by type, for any POSIX shell."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join, quote

from rp_api.description.environment import ANACONDA, CONDA, MAMBA, UV, VENV, VIRTUALENV, EnvSpec, is_pyproject, words

_PREPARATION = '''\
rp_failed() {
    printf '%s\\n' "$1" > "$rp_reason"
    exit 1
}
rp_need() {
    command -v "$1" > /dev/null || rp_failed "$1 is not on PATH: $2"
}
rp_env=$(command -v env)'''

_PIP = ('python', '-m', 'pip', 'install', '--no-input', '--disable-pip-version-check')

_LOAD = 'load a module that has it in pre_exec, or put it on the PATH of the job'


def script(spec: EnvSpec, path: str, requirements: Sequence[str] | None, before: str, after: str,
           reason: str) -> str:
    """Return the script that activates an environment, and that builds it first unless `requirements` is None.

    It runs in the directory to which relative paths refer.

    Args:
        spec: The specification.
        path: The absolute path of the directory of the environment.
        requirements: The words that tell pip what to install.
        before: The file for the variables before activation, each terminated by NUL.
        after: The file for the variables after activation.
        reason: The file for the reason of a failure.
    """
    lines = [f'rp_reason={quote(reason)}', _PREPARATION, *_steps([*_dump(before), *spec['pre_exec']])]
    if requirements is not None:
        lines += _steps(build(spec, path, requirements))
    lines += _steps([*activation(spec, path), *_dump(after)])
    return '\n'.join(lines) + '\n'


def requirements_words(spec: EnvSpec, dependencies: dict[str, list[str]]) -> list[str]:
    """Return the words that tell pip what to install; `dependencies` has those of each `pyproject.toml`, by entry."""
    found: list[str] = []
    for entry in spec['setup']:
        if not is_pyproject(entry):
            found += words(entry)
        elif spec['type'] == UV:
            found += ['-r', entry]
        else:
            found += dependencies[entry]
    return found


def build(spec: EnvSpec, path: str, requirements: Sequence[str]) -> list[str]:
    """Return the lines that build an environment in a directory that does not exist, and install packages."""
    kind, version = spec['type'], spec['version']
    if kind == UV:
        python = ['--python', version] if version else []
        make = [f'rp_need uv {quote(_LOAD)}', join(['uv', 'venv', '--no-progress', *python, path])]
        install = ['uv', 'pip', 'install', '--no-progress', '--python', f'{path}/bin/python', *requirements]
        return [*make, *([join(install)] if requirements else [])]
    if kind in (CONDA, ANACONDA, MAMBA):
        tool = _conda(kind)
        python = [f'python={version}' if version else 'python', 'pip']
        make = [f'rp_need {tool} {quote(_LOAD)}', join([tool, 'create', '--yes', '--prefix', path, *python])]
    else:
        make = _virtual(spec, path, with_pip=bool(requirements))
    # pip must be that of the environment
    return [*make, *([*activation(spec, path), join([*_PIP, *requirements])] if requirements else [])]


def activation(spec: EnvSpec, path: str) -> list[str]:
    """Return the lines that activate an environment, after its `pre_exec`."""
    kind = spec['type']
    if kind in (VENV, VIRTUALENV, UV):
        return [f'. {quote(path)}/bin/activate']
    if kind in (CONDA, ANACONDA):
        return ['eval "$(conda shell.posix hook)"', f'conda activate {quote(path)}']
    if kind == MAMBA:
        return ['eval "$(mamba shell hook --shell posix)"', f'mamba activate {quote(path)}']
    return []


def _virtual(spec: EnvSpec, path: str, *, with_pip: bool) -> list[str]:
    version = spec['version']
    python = f'python{version}' if version else 'python3'
    advice = f'{_LOAD}, or set the type {UV!r} or {CONDA!r}, which install it'
    make = [f'rp_need {python} {quote(advice)}']
    if spec['type'] == VIRTUALENV:
        return [*make, f'rp_need virtualenv {quote(_LOAD)}', join(['virtualenv', '-p', python, path])]
    # the installation of pip takes most of the time
    return [*make, join([python, '-m', 'venv', *([] if with_pip else ['--without-pip']), path])]


def _conda(kind: str) -> str:
    return MAMBA if kind == MAMBA else CONDA


def _dump(target: str) -> list[str]:
    return [f'"$rp_env" -0 > {quote(target)}']


def _steps(lines: Sequence[str]) -> list[str]:
    """Return the lines so that each is logged, and that the script ends when one of them fails.

    A line is on a line of its own, as it may end with a comment; the colon makes a bare comment a valid command.
    """
    return [f"printf '+ %s\\n' {quote(line)}\n{{ :\n{line}\n}} || "
            f'rp_failed "exit code $? of: "{quote(line)}' for line in lines]
