"""The settings of a service: what a task description accepts and refuses, and their normal form."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api import constants as c
from rp_api.description.pilot import PilotDescription
from rp_api.description.service import Pattern, parse_pattern, probe_of
from rp_api.description.service import service as normal
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError

FULL = {'name': 'llm', 'port': 0, 'probe': {'http': '/health', 'status': 204, 'interval': 2.0, 'timeout': 3.0},
        'liveness': True, 'restart': {'attempts': 3, 'delay': 0.5, 'factor': 2.0, 'limit': 30.0},
        'info': 'http://{host}:{port}', 'router': {'retry_unsafe': True}}


def a_service(**attributes: Any) -> TaskDescription:
    description = TaskDescription({'executable': 'x', 'mode': c.TASK_SERVICE, **attributes})
    description.verify()
    return description


def test_the_normal_form_is_its_own() -> None:
    assert normal(FULL) == FULL
    assert a_service(service=FULL).service == FULL


@pytest.mark.parametrize(('given', 'expected'), [
    ({}, {}), ({'name': None}, {}), ({'port': '80'}, {'port': 80}),
    ({'restart': {'attempts': 2}}, {'restart': {'attempts': 2, 'delay': 0.5, 'factor': 2.0, 'limit': 30.0}}),
    ({'port': 0, 'router': True}, {'port': 0, 'router': {'retry_unsafe': False}}),
    ({'port': 0, 'router': False}, {'port': 0}),
    ({'probe': {'file': 'up'}}, {'probe': {'file': 'up'}})])
def test_normal_form(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = a_service(service=given).service
    assert found == expected
    assert a_service(service=found).service == found


@pytest.mark.parametrize(('given', 'words'), [
    ([], r'service is \[\], but must be a dict'), ({'prot': 1}, "'prot': did you mean 'port'"),
    ({'name': 'a b'}, "name.*'a b'.*letters"), ({'port': 70000}, 'port.*70000.*port number'),
    ({'probe': {'http': '/', 'file': 'x'}}, "'http' and 'file'.*one of them"),
    ({'probe': {'http': '/a b'}, 'port': 1}, "'http'.*begins with"), ({'probe': {'http': '/'}}, "needs the key 'port'"),
    ({'probe': {'port': True}}, "needs the key 'port'"), ({'router': True}, "router, which needs the key 'port'"),
    ({'info': '{port}'}, "info, which needs the key 'port'"), ({'info': '{user}'}, 'info.*no other fields'),
    ({'info': '{0}'}, 'no other fields'), ({'info': '{'}, 'no other fields'),
    ({'probe': {'port': False}, 'port': 1}, 'False.*must be true'), ({'probe': {'status': 200}}, 'without "http"'),
    ({'probe': {'http': '/', 'status': 99}, 'port': 1}, 'status.*99'),
    ({'probe': {'pattern': 'out:x'}}, "pattern.*'out:x'.*stdout:<regex>"),
    ({'probe': {'pattern': 'file:x'}}, "'file:x'.*file:<path>:<regex>"),
    ({'probe': {'pattern': 'stdout:('}}, 'regular expression is not valid'),
    ({'probe': {'interval': 0}}, 'interval.*above 0'), ({'restart': {'attempts': -1}}, 'attempts.*-1.*not negative'),
    ({'restart': {'factor': 0.5}}, 'factor.*not less than 1'), ({'restart': {'delay': 60}}, 'limit.*delay'),
    ({'liveness': 'maybe'}, "liveness.*'maybe'.*true or false"), ({'router': 3}, 'router.*must be a dict')])
def test_settings_are_refused(given: Any, words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        a_service(service=given)


@pytest.mark.parametrize(('attributes', 'words'), [
    ({'mode': c.TASK_EXECUTABLE, 'service': FULL}, "mode is 'task.executable'.*task.service"),
    ({'raptor_id': 'm'}, 'raptor_id'), ({'info_pattern': 'x'}, 'info_pattern.*stdout:<regex>'),
    ({'executable': ''}, 'executable is not set'), ({'services': ['']}, 'services.*not empty')])
def test_attributes_that_contradict_are_refused(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        a_service(**attributes)


def test_info_patterns_of_other_tasks_are_not_looked_at() -> None:
    TaskDescription({'executable': 'x', 'info_pattern': 'x'}).verify()


def test_services_of_a_pilot_are_checked() -> None:
    with pytest.raises(DescriptionError, match='info_pattern'):
        PilotDescription({'services': [{'executable': 'x', 'info_pattern': 'x'}]}).check()


@pytest.mark.parametrize(('settings', 'info_pattern', 'expected'), [
    ({}, '', {'runs': True}), ({'port': 0}, '', {'port': True}), ({}, 'stdout:x', {'pattern': 'stdout:x'}),
    ({'port': 1}, 'stdout:x', {'pattern': 'stdout:x'}),
    ({'port': 1, 'probe': {'http': '/'}}, 'stdout:x', {'http': '/', 'status': 200})])
def test_default_probe(settings: dict[str, Any], info_pattern: str, expected: dict[str, Any]) -> None:
    assert probe_of(settings, info_pattern) == {'interval': 1.0, 'timeout': 5.0, **expected}
    with_interval = {**settings, 'probe': {**settings.get('probe', {}), 'interval': 9.0}}
    assert probe_of(with_interval, info_pattern) == {'timeout': 5.0, **expected, 'interval': 9.0}


@pytest.mark.parametrize(('text', 'line', 'expected'), [
    ('stdout:up', 'is up', 'up'), ('stdout:up', 'down', None), ('stdout:at (.*):([0-9]+)', 'at n1:80', '80'),
    ('stderr:url=(.*)', 'url=http://x:1', 'http://x:1'), ('file:a/b:(x)?y', 'y', '')])
def test_patterns(text: str, line: str, expected: str | None) -> None:
    assert parse_pattern(text, 'x').find(line) == expected


def test_the_path_in_a_pattern_ends_at_the_first_colon() -> None:
    assert parse_pattern('file:/tmp/x:a:b', 'x') == Pattern('file', '/tmp/x', 'a:b')
