"""Every error can be caught by the built-in class that says the same thing, and by those of radical.utils."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType

import pytest

from rp_api import errors

PLAIN = [errors.PilotError, errors.DescriptionError, errors.AttributeUnknown, errors.AttributeTypeError,
         errors.StateError, errors.PlatformError, errors.ResourceError, errors.CoordinationError,
         errors.SerializationError, errors.DeserializationError]


class TDError(Exception):
    """As in radical.utils: the message is decorated with the place that raised it."""

    def __init__(self, msg: str | None = None, level: int = 1) -> None:
        super().__init__(f'somewhere - {msg}')


class TDKeyError(TDError, KeyError):
    def __init__(self, msg: str | None = None, level: int = 1) -> None:
        super().__init__(msg, level=level + 1)


class TDTypeError(TDError, TypeError):
    def __init__(self, msg: str | None = None, level: int = 1) -> None:
        super().__init__(msg, level=level + 1)


@pytest.fixture
def radical_utils(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType('radical.utils.typeddict')
    module.TDError, module.TDKeyError, module.TDTypeError = TDError, TDKeyError, TDTypeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'radical.utils.typeddict', module)


@pytest.fixture
def no_radical_utils(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, 'radical.utils.typeddict', raising=False)


@pytest.mark.parametrize('kind', PLAIN)
def test_all_errors_are_pilot_errors_that_say_what_they_were_told(kind: type[errors.PilotError]) -> None:
    error = kind('ranks=0 is too few')
    assert isinstance(error, errors.PilotError)
    assert str(error) == 'ranks=0 is too few'


@pytest.mark.parametrize(('kind', 'built_in'), [
    (errors.DescriptionError, ValueError), (errors.AttributeUnknown, KeyError), (errors.AttributeUnknown, ValueError),
    (errors.AttributeTypeError, TypeError), (errors.AttributeTypeError, ValueError), (errors.StateError, ValueError),
    (errors.StagingError, RuntimeError), (errors.PlatformError, RuntimeError), (errors.ResourceError, ValueError),
    (errors.CoordinationError, RuntimeError)])
def test_errors_are_also_built_in_errors(kind: type[Exception], built_in: type[Exception]) -> None:
    assert issubclass(kind, built_in)


def test_an_unknown_attribute_without_a_message_is_an_empty_text() -> None:
    assert str(errors.AttributeUnknown()) == ''


def test_a_staging_error_says_which_directive_which_file_and_why() -> None:
    error = errors.StagingError('a > b', '/tmp/a', 'no such file')
    assert (error.directive, error.path, error.reason) == ('a > b', '/tmp/a', 'no such file')
    assert str(error) == 'staging directive [a > b] failed on /tmp/a: no such file'


def test_a_deserialization_error_keeps_its_cause() -> None:
    cause = EOFError('short')
    assert errors.DeserializationError('cannot', cause).original_exception is cause
    assert errors.DeserializationError('cannot').original_exception is None


@pytest.mark.parametrize('error', [
    *(kind('a sentence') for kind in PLAIN), errors.StagingError('a > b', '/tmp/a', 'no such file')],
    ids=lambda error: type(error).__name__)
def test_errors_can_be_sent_to_another_process(error: errors.PilotError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


@pytest.mark.usefixtures('no_radical_utils')
def test_without_radical_utils_errors_are_ours_alone() -> None:
    assert type(errors.unknown_attribute('what')) is errors.AttributeUnknown
    assert type(errors.attribute_type_error('what')) is errors.AttributeTypeError


@pytest.mark.usefixtures('radical_utils')
def test_applications_may_catch_the_errors_of_radical_utils() -> None:
    unknown: object = errors.unknown_attribute('there is no attribute "rank"')
    assert isinstance(unknown, TDKeyError)
    assert isinstance(unknown, errors.AttributeUnknown)
    assert str(unknown) == 'there is no attribute "rank"'
    wrong: object = errors.attribute_type_error('ranks is a number')
    assert isinstance(wrong, TDTypeError)
    assert isinstance(wrong, errors.AttributeTypeError)
    assert str(wrong) == 'ranks is a number'
    assert type(wrong).__name__ == 'AttributeTypeError'
    for make in (errors.unknown_attribute, errors.attribute_type_error):
        assert type(make('one')) is type(make('another'))


@pytest.mark.usefixtures('radical_utils')
def test_joined_errors_can_be_copied_and_sent_to_another_process() -> None:
    for error in (errors.unknown_attribute('no such thing'), errors.attribute_type_error('not a number')):
        for found in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(found) == str(error)
            assert isinstance(found, TDError)


@pytest.mark.usefixtures('no_radical_utils')
def test_a_joined_error_arrives_where_radical_utils_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType('radical.utils.typeddict')
    module.TDKeyError = TDKeyError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'radical.utils.typeddict', module)
    sent = pickle.dumps(errors.unknown_attribute('no such thing'))
    monkeypatch.delitem(sys.modules, 'radical.utils.typeddict')
    assert type(pickle.loads(sent)) is errors.AttributeUnknown


def test_a_radical_utils_without_these_errors_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'radical.utils.typeddict', ModuleType('radical.utils.typeddict'))
    assert type(errors.unknown_attribute('what')) is errors.AttributeUnknown
