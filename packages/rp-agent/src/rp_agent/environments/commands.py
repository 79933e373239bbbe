"""Shell lines that build and activate environments, by type, for any POSIX shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_ADVICE = 'load a module that has it in pre_exec, or put it on the PATH of the job'
_ADVICE_PYTHON = f'{_ADVICE}, or set the type {UV!r} or {CONDA!r}, which install it'


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
    dump = '"$rp_env" -0 > {} || rp_failed "env has failed"'
    lines = [f'rp_reason={quote(reason)}', _PREPARATION, dump.format(quote(before)), *_steps(spec['pre_exec'])]
    if requirements is not None:
        lines += [f'rp_need {program} {quote(advice)}' for program, advice in needed(spec).items()]
        lines += _steps(build(spec, path, requirements))
        lines.append(f'test -O {quote(path)} || rp_failed {quote(f"another user has made {path} meanwhile")}')
    return '\n'.join([*lines, *_steps(activation(spec, path)), dump.format(quote(after))]) + '\n'


def requirements_words(spec: EnvSpec, dependencies: Mapping[str, list[str]]) -> list[str]:
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


def needed(spec: EnvSpec) -> dict[str, str]:
    """Return the programs that build an environment, each with the advice for users who do not have it."""
    kind = spec['type']
    if kind in (UV, MAMBA):
        return {kind: _ADVICE}
    if kind in (CONDA, ANACONDA):
        return {CONDA: _ADVICE}
    return {_python(spec): _ADVICE_PYTHON}


def build(spec: EnvSpec, path: str, requirements: Sequence[str]) -> list[str]:
    """Return the lines that build an environment in a directory that does not exist, and install packages."""
    kind, version = spec['type'], spec['version']
    if kind == UV:
        python = ['--python', version] if version else []
        install = ['uv', 'pip', 'install', '--no-progress', '--python', f'{path}/bin/python', *requirements]
        return [join(['uv', 'venv', '--no-progress', *python, path]), *([join(install)] if requirements else [])]
    # pip must be that of the environment
    install_here = [*activation(spec, path), join([*_PIP, *requirements])] if requirements else []
    if kind in (CONDA, ANACONDA, MAMBA):
        python = [f'python={version}' if version else 'python', 'pip']
        make = [MAMBA if kind == MAMBA else CONDA, 'create', '--yes', '--prefix', path, *python]
    else:   # the installation of pip takes most of the time
        make = [_python(spec), '-m', 'venv', *([] if requirements else ['--without-pip']), path]
    made = join(make)
    if kind == VIRTUALENV:   # many machines do not have it, and applications of version 1 got a venv
        virtualenv = join(['virtualenv', '-p', _python(spec), path])
        made = f'if command -v virtualenv > /dev/null; then {virtualenv}; else {made}; fi'
    return [made, *install_here]


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


def _python(spec: EnvSpec) -> str:
    return f'python{spec["version"] or 3}'


def _steps(lines: Sequence[str]) -> list[str]:
    """Return the lines so that each is logged, and that the script ends when one of them fails."""
    # a line is on a line of its own, as it may end with a comment; the colon makes a bare comment a valid command
    return [f"printf '+ %s\\n' {quote(line)}\n{{ :\n{line}\n}} || "
            f'rp_failed "exit code $? of: "{quote(line)}' for line in lines]
