"""Helper functions of RADICAL-Pilot 1."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from rp_api.resources import RO, Slot
from rp_api.version_1 import convert_slots_to_new, convert_slots_to_old, create_tar, get_rusage, tail

OLD = {'cores': [0, 3], 'gpus': [1], 'lfs': 5, 'mem': 7, 'node_index': 2, 'node_name': 'c', 'version': 0}


def test_slots_have_both_forms() -> None:
    new, = convert_slots_to_new([OLD])
    assert isinstance(new, Slot)
    assert (new.cores, new.gpus) == ([RO(index=0, occupation=1.0), RO(index=3, occupation=1.0)],
                                     [RO(index=1, occupation=1.0)])
    assert (new.lfs, new.mem, new.node_index, new.node_name, new.version) == (5, 7, 2, 'c', 1)
    assert convert_slots_to_old([new]) == [OLD]
    assert convert_slots_to_old([OLD]) == [OLD]
    assert convert_slots_to_new([new.as_dict()]) == convert_slots_to_new([new]) == [new]


def test_shared_devices_stay_shared() -> None:
    new, = convert_slots_to_new([{'cores': [{'index': 1, 'occupation': 0.5}]}])
    assert new.cores == [RO(index=1, occupation=0.5)]


def test_no_slots_and_bad_slots() -> None:
    assert convert_slots_to_new(None) == convert_slots_to_old([]) == []
    with pytest.raises(TypeError, match=r'Slot\.cores must be a list of indices'):
        convert_slots_to_old([{'cores': 'all'}])


def test_a_logger_is_told() -> None:
    said: list[str] = []
    convert_slots_to_new([OLD, OLD], log=SimpleNamespace(debug=said.append))
    assert said == ['2 slots converted']


def test_ends_of_texts() -> None:
    assert tail('abc') == tail('abc', 3) == 'abc'
    assert tail('abcd', 3) == '[... CONTENT SHORTENED ...]\nbcd'
    assert tail('') == ''


def test_an_archive_of_directories(tmp_path: Path) -> None:
    create_tar(str(tmp_path / 'a.tar'), ['task.000000', 'task.000001/data'])
    with tarfile.open(tmp_path / 'a.tar') as archive:
        assert [(each.name, each.isdir(), each.mode) for each in archive] == [
            ('task.000000', True, 0o755), ('task.000001/data', True, 0o755)]


def test_the_usage_of_this_process_is_one_line() -> None:
    assert [part.split()[0] for part in get_rusage().split(' | ')] == ['real', 'user', 'system', 'mem']
