"""Times and sizes, as users write them, in all places that take some."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

import pytest

from rp_api import units
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.platforms.definition import ResourceConfig
from rp_api.record import CastError


@pytest.mark.parametrize(('value', 'seconds'), [
    (0, 0), (5, 5), (1.5, 1.5), ('7', 7), ('90s', 90), ('90m', 5400), ('90min', 5400), ('1h', 3600), ('1h30m', 5400),
    ('1d12h', 129600), ('1.5 h', 5400), (' 1h 5s ', 3605), ('1:30:00', 5400), ('100:00:01', 360001),
    ('2-12:00:00', 216000), (timedelta(minutes=2), 120)])
def test_seconds(value: Any, seconds: float) -> None:
    assert units.seconds(value) == seconds
    assert units.limit(value) == seconds


@pytest.mark.parametrize(('value', 'minutes'), [
    (10, 10), ('10', 10), (0.5, 1), ('90m', 90), ('1h', 60), ('1h1s', 61), ('1:30:00', 90), (timedelta(hours=2), 120),
    (timedelta(seconds=1), 1), (60.0, 60)])
def test_minutes(value: Any, minutes: int) -> None:
    assert units.minutes(value) == minutes


@pytest.mark.parametrize('value', ['', 'long', '1:30', '1:60:00', '1h-1m', '5 parsecs', 'h', '9' * 400 + 'h',
                                   '9' * 400 + ':00:00', None, [], float('nan'), float('inf'), {}])
def test_no_time(value: Any) -> None:
    with pytest.raises(CastError, match='a number of minutes, a timedelta, or text such as'):
        units.minutes(value)


def test_no_limit() -> None:
    assert units.limit(None) is None
    with pytest.raises(DescriptionError, match=r"wait is 'long', it must be a number of seconds.*or None for no limit"):
        units.limit('long', 'wait')
    with pytest.raises(TypeError, match='timeout is True'):
        units.limit(True)


@pytest.mark.parametrize(('value', 'megabytes'), [
    (0, 0), (512, 512), (1.2, 2), ('512', 512), ('512MB', 512), ('512MiB', 512), ('4GB', 4096), ('4gib', 4096),
    ('1.5G', 1536), ('1T', 1 << 20), ('1 kB', 1), ('1048577B', 2)])
def test_megabytes(value: Any, megabytes: int) -> None:
    assert units.megabytes(value) == megabytes


@pytest.mark.parametrize('value', [-1, '-1MB', 'GB', '4 PB', '4GBit', '9' * 400 + 'GB', None, [], float('inf')])
def test_no_size(value: Any) -> None:
    with pytest.raises(CastError, match="a number of MB, at least 0, or text such as '4GB' or '512MiB'"):
        units.megabytes(value)


def test_bytes() -> None:
    assert [units.byte_count(each) for each in (7, '7', '7B', '2K', '2KiB', '1.5MB')] == [7, 7, 7, 2048, 2048, 3 << 19]


def test_option() -> None:
    take = units.option(units.seconds)
    assert take('1m') == 60
    for text, wrong in (('soon', "'soon' is not a number of seconds"), ('-1', "'-1' is less than 0")):
        with pytest.raises(ArgumentTypeError, match=wrong):
            take(text)


def test_attributes() -> None:
    task = TaskDescription(
        executable='x', timeout='1h', startup_timeout=timedelta(minutes=1), retries=1, retry_delay='1:00:00',
        mem_per_rank='4GB', lfs_per_rank='512MiB', retry_with={'timeout': '2h', 'mem_per_rank': '8GB'})
    task.verify()
    service = TaskDescription(executable='x', mode='task.service', service={
        'restart': {'attempts': 1, 'delay': '2s', 'limit': '1m'}, 'probe': {'file': 'ready', 'interval': '5s'}})
    service.verify()
    assert (task.timeout, task.startup_timeout, task.retry_delay) == (3600.0, 60.0, 3600.0)
    assert (task.mem_per_rank, task.lfs_per_rank) == (4096, 512)
    assert task.retry_with == {'timeout': 7200.0, 'mem_per_rank': 8192}
    assert service.service['restart'] == {'attempts': 1, 'delay': 2.0, 'factor': 2.0, 'limit': 60.0}
    assert service.service['probe']['interval'] == 5.0
    pilot = PilotDescription(resource='local.localhost', runtime='1h30m', memory='64GB',
                             partitions=[{'cores': 2, 'memory': '2GB'}, {'cores': 2, 'memory': 1024}])
    pilot.verify()
    assert (pilot.runtime, pilot.memory) == (90, 65536)
    assert pilot.partitions == [{'cores': 2, 'memory': 2048}, {'cores': 2, 'memory': 1024}]
    assert ResourceConfig(mem_per_node='256GB', raptor={'hb_delay': '5s'}).mem_per_node == 262144


@pytest.mark.parametrize(('name', 'value'), [('timeout', 'soon'), ('mem_per_rank', '4 apples'), ('timeout', '1:30'),
                                             ('mem_per_rank', -1), ('retry_with', {'timeout': 'soon'})])
def test_attributes_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(DescriptionError, match=rf'TaskDescription\.{name} must be a'):
        TaskDescription({'executable': 'x', 'retries': 1, name: value}).verify()
