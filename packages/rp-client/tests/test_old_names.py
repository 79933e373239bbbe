"""Names of version 0: each gives what has the new name, and says what that is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import radical.pilot as rp
from rp_client.handles.session import Session
from rp_client.handles.task_manager import TaskManager
from rp_client.old_names import METHODS, NAMES, OldMethods


@pytest.mark.parametrize('old', NAMES)
def test_old_names_of_the_module(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf'^radical\.pilot\.{old} is deprecated, use {NAMES[old]}$') as warned:
        found = getattr(rp, old)
    assert found is getattr(rp, NAMES[old])
    assert [warning.filename for warning in warned] == [__file__]
    assert old not in dir(rp)


def test_old_names_can_be_imported() -> None:
    code = 'from radical.pilot import UnitManager, UMGR_SCHEDULING; print(UnitManager.__name__, UMGR_SCHEDULING)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'TaskManager TMGR_SCHEDULING\n'
    assert '<string>:1: DeprecationWarning: radical.pilot.UnitManager is deprecated, use TaskManager' in done.stderr


class Manager(OldMethods):
    """A class with one of the methods that were renamed."""

    def submit_tasks(self, *args: Any) -> tuple[Any, ...]:
        return args


def test_old_names_of_methods() -> None:
    manager: Any = Manager()
    with pytest.warns(DeprecationWarning, match=r'^Manager\.submit_units is deprecated, use submit_tasks$') as warned:
        assert manager.submit_units(1, 2) == (1, 2)
    assert [warning.filename for warning in warned] == [__file__]
    for name in ('submit_unit', 'wait_units', 'get_unit_managers', '_private'):
        with pytest.raises(AttributeError, match=f"'Manager' object has no attribute '{name}'"):
            getattr(manager, name)


def test_each_old_method_is_one_of_a_class_that_has_old_names() -> None:
    assert issubclass(Session, OldMethods)
    assert issubclass(TaskManager, OldMethods)
    assert [new for new in METHODS.values() if hasattr(Session, new) is hasattr(TaskManager, new)] == []
