"""The types of the keywords of descriptions, for type checkers: a stub that is made from the schemas.

`python packages/rp-api/tests/test_attribute_types.py` writes it again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from rp_api import units
from rp_api.description import task_rules, typed
from rp_api.description.casts import program, uid
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription

STUB = Path(typed.__file__).with_name('attributes.pyi')

START = '''\
"""The keywords of descriptions for type checkers, made from the schemas by `tests/test_attribute_types.py`."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from os import PathLike
from typing import Any, TypeAlias, TypedDict

_Text: TypeAlias = str | float | PathLike[str] | None
_Texts: TypeAlias = Iterable[str | float | PathLike[str]] | _Text
_Number: TypeAlias = float | str | None
_Time: TypeAlias = float | str | timedelta | None
'''

TEXTS = (str, uid, program)


def type_of(kind: Any) -> str:
    """The type that a type checker expects of values that are cast to `kind`."""
    if kind is task_rules.function:
        return 'Callable[..., Any] | _Text'
    if kind in TEXTS:
        return '_Text'
    if kind in (units.seconds, units.minutes):
        return '_Time'
    if kind in (int, float, units.megabytes):
        return '_Number'
    if kind is bool:
        return 'bool | int | str | None'
    if isinstance(kind, list):
        return '_Texts' if kind[0] is str else 'Any'
    return 'Mapping[str, Any] | None' if isinstance(kind, dict) else 'Any'


def text_of(name: str, kind: type[typed.Description]) -> str:
    known = {**kind._schema, **kind._units}
    types = {name: known[kind._aliases.get(name, name)] for name in (*kind._schema, *kind._aliases)}
    return '\n'.join(['', '', f'class {name}(TypedDict, total=False):',
                      *(f'    {attribute}: {type_of(cast)}' for attribute, cast in types.items()), ''])


def stub() -> str:
    return START + text_of('TaskAttributes', TaskDescription) + text_of('PilotAttributes', PilotDescription)


def test_the_stub_has_all_attributes() -> None:
    assert STUB.read_text() == stub(), f'write it again with `python {__file__}`'


def test_type_checkers_know_the_keywords(tmp_path: Path) -> None:
    program = tmp_path / 'application.py'
    program.write_text('''\
from pathlib import Path
from typing import Any
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription

values: dict[str, Any] = {}
TaskDescription({'executable': 'x'}, executable=Path('a'), arguments=['a', 1, Path('b')], environment={'A': 1}, ranks=2)
TaskDescription(**values).ranks = 3
PilotDescription(resource='local.exact', cores=2, sandbox=Path('a'), input_staging=[{'source': Path('b')}])
TaskDescription(executabel='x')
TaskDescription(ranks=[3])
PilotDescription(core=1)
''')
    done = subprocess.run([sys.executable, '-m', 'mypy', '--strict', f'--cache-dir={tmp_path}/cache', str(program)],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    lines = [line.split(': error: ')[0] for line in done.stdout.splitlines() if ': error: ' in line]
    assert lines == [f'application.py:{number}' for number in (10, 11, 12)], done.stdout + done.stderr


if __name__ == '__main__':
    STUB.write_text(stub())
