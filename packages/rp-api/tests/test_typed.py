"""The dict-like base of the descriptions, with a small description of its own."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from operator import getitem
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.description.casts import at_least, cast_for, one_of
from rp_api.description.typed import Description
from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError
from rp_api.record import Cast, CastError, Field


class Meal(Description):
    """A description to test with."""

    __slots__ = ()

    _fields: ClassVar[Mapping[str, Field]] = {
        'name': Field(str, ''), 'guests': Field(int, 1, at_least(1)), 'hours': Field(float, 1.0),
        'warm': Field(bool, False), 'dishes': Field([str], []), 'drinks': Field({str: str}, {}),
        'notes': Field({str: Any}, {}), 'table': Field(str, None), '_hidden': Field(int, None),
        'courses': Field([{str: [int]}], []),
    }
    _aliases: ClassVar[Mapping[str, str]] = {'people': 'guests'}

    @classmethod
    def _instead(cls, name: str) -> str | None:
        return {'chairs': 'use "guests"'}.get(name)


FULL = {'name': '', 'guests': 1, 'hours': 1.0, 'warm': False, 'dishes': [], 'drinks': {}, 'notes': {}, 'table': None,
        '_hidden': None, 'courses': []}


class Url:
    """Knows how to write itself, as URL objects do."""

    def __str__(self) -> str:
        return 'file://host/path'


values = st.fixed_dictionaries({}, optional={
    'name': st.text(max_size=5), 'guests': st.integers(1, 9), 'hours': st.floats(0, 9), 'warm': st.booleans(),
    'dishes': st.lists(st.text(max_size=3), max_size=3), 'notes': st.dictionaries(st.text(max_size=3), st.integers()),
    'table': st.none() | st.text(max_size=3), '_hidden': st.none() | st.integers(),
})


def stored(description: Description) -> dict[str, Any]:
    return dict(dict.items(description))


# what is there

def test_all_attributes_are_there_although_nothing_is_stored() -> None:
    meal = Meal()
    assert dict(meal) == FULL
    assert {**meal} == FULL
    assert meal.as_dict() == FULL
    assert list(meal) == list(meal.keys()) == list(FULL)
    assert list(reversed(meal)) == list(reversed(FULL))
    assert list(meal.values()) == list(FULL.values())
    assert list(meal.items()) == list(FULL.items())
    assert len(meal) == len(FULL)
    assert meal
    assert all(name in meal for name in FULL)
    assert 'chairs' not in meal
    assert meal == FULL
    assert stored(Meal()) == {}


def test_unset_attributes_read_as_their_defaults() -> None:
    meal = Meal()
    assert (meal.guests, meal['guests'], meal.get('guests'), meal.get('guests', 7)) == (1, 1, 1, 1)
    assert meal.table is None
    assert meal.get('chairs') is None
    assert meal.get('chairs', 4) == 4
    assert meal._hidden is None


def test_default_lists_and_dicts_can_be_changed_in_place() -> None:
    meal, other = Meal(), Meal()
    meal.dishes.append('soup')
    meal['drinks']['red'] = 'wine'
    meal.get('notes').update(a=1)
    assert meal.sparse() == {'dishes': ['soup'], 'drinks': {'red': 'wine'}, 'notes': {'a': 1}}
    assert other == FULL


def test_reading_all_attributes_stores_nothing() -> None:
    meal = Meal()
    for value in [*meal.values(), *(item for _, item in meal.items())]:
        if isinstance(value, list):
            value.append('soup')
    meal.as_dict()['dishes'].append('soup')
    assert stored(meal) == {}


def test_unknown_names_that_were_set_are_seen_after_the_attributes() -> None:
    meal = Meal({'chairs': 4})
    assert (meal.chairs, meal['chairs'], meal.get('chairs')) == (4, 4, 4)
    assert list(meal) == [*FULL, 'chairs']
    assert len(meal) == len(FULL) + 1
    assert meal.as_dict()['chairs'] == meal.sparse()['chairs'] == 4


# reading and removing

def test_reading_an_unknown_name_is_a_key_error_and_an_attribute_error() -> None:
    meal = Meal()
    for read in (getattr, getitem):
        with pytest.raises(AttributeUnknown, match="did you mean 'guests'") as caught:
            read(meal, 'gests')
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, AttributeError)
    assert not hasattr(meal, 'gests')
    assert getattr(meal, 'gests', 5) == 5


def test_reading_an_unknown_private_name_is_only_an_attribute_error() -> None:
    with pytest.raises(AttributeError) as caught:
        Meal()._nothing  # noqa: B018
    assert not isinstance(caught.value, KeyError)


def test_removing_an_attribute_sets_it_back() -> None:
    meal = Meal({'guests': 3, 'name': 'x', 'table': 'b', 'chairs': 2})
    del meal.guests
    del meal['name']
    assert meal.pop('table') == 'b'
    assert meal.pop('table') is None
    del meal.chairs
    assert meal == FULL
    del meal.guests
    with pytest.raises(KeyError):
        del meal['chairs']
    assert meal.pop('chairs', 8) == 8
    meal.name = 'y'
    meal.clear()
    assert meal == FULL


def test_setdefault_finds_all_attributes_set() -> None:
    meal = Meal()
    assert meal.setdefault('guests', 5) == 1
    assert meal.setdefault('chairs', 5) == 5
    assert meal.chairs == 5


# making

def test_a_description_is_made_from_a_dict_or_another_one() -> None:
    source = Meal({'guests': 2})
    for meal in (Meal({'guests': 2}), Meal(guests=2), Meal(from_dict={'guests': 2}), Meal({'guests': 3}, guests=2),
                 Meal(from_dict={}, guests=2), Meal(Meal({'guests': 4}), guests=2), Meal(source),
                 Meal(from_dict=source), Meal(Meal(source).as_dict()), Meal(dict(source)),
                 source.copy(), Meal.from_sparse(source.sparse())):
        assert meal == source
        assert meal is not source
    assert stored(Meal(Meal({'guests': 2}))) == {'guests': 2}
    assert Meal(None) == Meal()
    for made in (Meal({'name': 'x'}, guests=2), Meal(Meal(name='x'), guests=2)):
        assert made.sparse() == {'name': 'x', 'guests': 2}


@pytest.mark.parametrize('source', [3, 'text', [('guests', 2)]])
def test_a_description_is_made_from_nothing_else(source: Any) -> None:
    with pytest.raises(AttributeTypeError, match='Meal takes a dict, not'):
        Meal(source)


def test_update_takes_dicts_pairs_names_and_descriptions() -> None:
    meal = Meal({'name': 'x', 'chairs': 1})
    meal.update({'guests': 2}, warm=True)
    meal.update([('table', 'a')])
    assert meal.sparse() == {'name': 'x', 'chairs': 1, 'guests': 2, 'warm': True, 'table': 'a'}
    meal.update(meal)
    assert meal.guests == 2
    meal.update(Meal({'guests': 3}))
    assert meal.sparse() == {'guests': 3, 'chairs': 1}


def test_joining_gives_a_new_description() -> None:
    meal = Meal({'guests': 2})
    joined = meal | {'name': 'x'}
    assert type(joined) is Meal
    assert (joined.guests, joined.name, meal.name) == (2, 'x', '')
    assert ({'chairs': 1} | meal) == {'chairs': 1, **FULL, 'guests': 2}
    meal |= {'warm': True}
    assert (type(meal), meal.warm) == (Meal, True)


# comparison and copies

def test_descriptions_are_equal_if_all_attributes_are() -> None:
    assert Meal({'guests': 1}) == Meal()
    assert not Meal({'guests': 1}) != Meal()  # noqa: SIM202
    assert Meal({'guests': 2}) != Meal()
    assert Meal() != {}
    assert Meal() != 3
    assert {**FULL, 'guests': 2} == Meal({'guests': 2})  # noqa: SIM300
    with pytest.raises(TypeError):
        hash(Meal())


@given(values)
def test_copies_are_equal_and_as_sparse(given_values: dict[str, Any]) -> None:
    meal = Meal(given_values)
    for made in (copy.copy(meal), copy.deepcopy(meal), meal.copy(), Meal(meal), *(
            pickle.loads(pickle.dumps(meal, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))):
        assert type(made) is Meal
        assert made == meal
        assert stored(made) == given_values


def test_only_deep_copies_share_nothing() -> None:
    meal = Meal({'dishes': ['soup']})
    deep, shallow = copy.deepcopy(meal), copy.copy(meal)
    meal.dishes.append('fish')
    assert (deep.dishes, shallow.dishes) == (['soup'], ['soup', 'fish'])


@given(values)
def test_sparse_holds_the_differences_and_nothing_is_lost(given_values: dict[str, Any]) -> None:
    meal = Meal(given_values)
    sparse = meal.sparse()
    assert sparse == {name: value for name, value in given_values.items() if value != FULL[name]}
    assert Meal.from_sparse(sparse) == meal
    assert Meal(meal.as_dict()) == meal
    assert eval(repr(meal), {'Meal': Meal, 'inf': float('inf')}) == meal


@given(values)
def test_verification_changes_nothing_that_is_right(given_values: dict[str, Any]) -> None:
    meal = Meal(given_values)
    meal.verify()
    assert meal == Meal(given_values)
    assert all(stored(meal)[name] is value for name, value in given_values.items() if value is not None)


def test_plain_forms_share_nothing_with_the_description() -> None:
    inner = Meal({'guests': 2})
    meal = Meal({'dishes': ['soup'], 'notes': {'inner': inner, 'pair': (1, [2])}})
    for made in (meal.sparse(), meal.as_dict()):
        assert made['notes']['pair'] == [1, [2]]
        assert type(made['notes']['inner']) is dict
        made['dishes'].append('fish')
        made['notes']['pair'][1].append(3)
    assert meal.sparse()['notes']['inner'] == {'guests': 2}
    assert meal.as_dict()['notes']['inner'] == {**FULL, 'guests': 2}
    assert meal.dishes == ['soup']
    assert meal.notes['pair'] == (1, [2])


def test_json_and_msgpack_write_all_attributes() -> None:
    meal = Meal({'guests': 2})
    assert json.loads(json.dumps(meal)) == {**FULL, 'guests': 2}
    assert msgpack.unpackb(msgpack.packb(meal)) == {**FULL, 'guests': 2}


def test_instances_have_no_dict_of_their_own() -> None:
    assert not hasattr(Meal(), '__dict__')
    assert sys.getsizeof(Meal({'guests': 2})) < 300


def test_dir_lists_attributes_and_methods() -> None:
    names = set(dir(Meal()))
    assert {'guests', 'verify'} <= names
    assert not {'people', 'sparse'} & names, 'an old name, and a method for other parts of the system'


# verification

def test_nothing_is_checked_before_verification() -> None:
    meal = Meal({'gests': 1})
    meal.hours = 'many'
    meal['warm'] = []
    assert meal.hours == 'many'


@pytest.mark.parametrize(('name', 'value', 'cast'), [
    ('guests', '3', 3), ('guests', ' 4 ', 4), ('guests', 3.0, 3), ('guests', True, 1),
    ('hours', '1.5', 1.5), ('hours', 2, 2.0), ('hours', True, 1.0),
    ('name', 1, '1'), ('name', 1.5, '1.5'), ('name', True, 'True'), ('name', Path('/a/b'), '/a/b'),
    ('name', Url(), 'file://host/path'),
    ('warm', 'yes', True), ('warm', 'No', False), ('warm', 'TRUE', True), ('warm', 'false', False), ('warm', '1', True),
    ('warm', '0', False), ('warm', 1, True), ('warm', 0, False),
    ('dishes', 'soup', ['soup']), ('dishes', 3, ['3']), ('dishes', ['a', 1], ['a', '1']), ('dishes', ('a',), ['a']),
    ('dishes', {'a'}, ['a']),
    ('drinks', {1: 2}, {'1': '2'}), ('notes', {1: [2]}, {'1': [2]}),
])
def test_verification_casts(name: str, value: Any, cast: Any) -> None:
    meal = Meal({name: value})
    meal.verify()
    assert meal[name] == cast
    assert type(meal[name]) is type(cast)


@pytest.mark.parametrize(('name', 'value', 'type_name'), [
    ('guests', 'three', 'an integer'), ('guests', 3.5, 'an integer'), ('guests', '3.0', 'an integer'),
    ('guests', [3], 'an integer'), ('guests', float('nan'), 'an integer'), ('guests', float('inf'), 'an integer'),
    ('hours', 'x', 'a number'), ('hours', {}, 'a number'), ('hours', float('inf'), 'a finite number'),
    ('warm', 'maybe', 'true or false'), ('warm', 2, 'true or false'), ('warm', [], 'true or false'),
    ('name', ['a'], 'a string'), ('name', {}, 'a string'), ('name', b'a', 'a string'), ('name', object(), 'a string'),
    ('name', len, 'a string'), ('name', SimpleNamespace(), 'a string'), ('name', Meal, 'a string'),
    ('dishes', {}, 'a list where each item is a string'), ('drinks', 'red', 'a dict'),
])
def test_verification_names_attribute_type_and_value(name: str, value: Any, type_name: str) -> None:
    with pytest.raises(AttributeTypeError) as caught:
        Meal({name: value}).verify()
    assert str(caught.value) == f'Meal.{name} must be {type_name}, not {value!r}'
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(('name', 'value', 'kind', 'part'), [
    ('dishes', ['a', 1, None], 'a list where each item is a string', 'dishes[2] is None'),
    ('dishes', ('a', b'x'), 'a list where each item is a string', "dishes[1] is b'x'"),
    ('drinks', {'a': 'b', 'c': None}, 'a dict where each value is a string', "drinks['c'] is None"),
    ('courses', [{'a': [1, 'x']}], 'a list where each item is a dict where each value is a list where each item is an '
                                   'integer', "courses[0]['a'][1] is 'x'"),
])
def test_verification_names_the_wrong_item(name: str, value: Any, kind: str, part: str) -> None:
    with pytest.raises(AttributeTypeError) as caught:
        Meal({name: value}).verify()
    assert str(caught.value) == f'Meal.{name} must be {kind}, not {value!r}: {part}'


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(AttributeTypeError) as caught:
        Meal({'guests': 'x' * 10_000}).verify()
    assert len(str(caught.value)) < 300
    assert str(caught.value).endswith('...')


@pytest.mark.parametrize('name', FULL)
def test_none_means_not_set(name: str) -> None:
    meal = Meal({name: None})
    meal.verify()
    assert meal == FULL


def test_casting_leaves_the_lists_of_the_application_alone() -> None:
    dishes, notes = [1, 2], {1: 'a'}
    meal = Meal({'dishes': dishes, 'notes': notes})
    meal.verify()
    assert (dishes, notes) == ([1, 2], {1: 'a'})
    assert meal.dishes == ['1', '2']


def test_what_is_right_stays_shared() -> None:
    dishes, drinks = ['soup'], {'red': 'wine'}
    meal = Meal({'dishes': dishes, 'drinks': drinks})
    meal.verify()
    assert meal.dishes is dishes
    assert meal.drinks is drinks


def test_unknown_names_are_refused_with_the_nearest_ones() -> None:
    with pytest.raises(AttributeUnknown, match="Meal has no attribute \"gusts\": did you mean 'guests'"):
        Meal({'gusts': None}).verify()
    with pytest.raises(AttributeUnknown, match='Meal has no attribute "zzz": known are'):
        Meal({'zzz': 1}).verify()
    with pytest.raises(AttributeUnknown, match='Meal has no attribute "7"'):
        Meal({7: 1}).verify()  # type: ignore[dict-item]


def test_names_with_a_successor_are_refused_with_it() -> None:
    with pytest.raises(KeyError) as caught:
        Meal({'chairs': 2}).verify()
    assert re.fullmatch(r'Meal has no attribute "chairs": use "guests" \(set in .*\)', str(caught.value))


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r'Meal\.guests is 0, but must be 1 or more'):
        Meal({'guests': '0'}).verify()


def line() -> int:
    """The line that calls this function."""
    return sys._getframe(1).f_lineno


def set_by_name(meal: Meal) -> int:
    meal.gusts = 1
    return line() - 1


def set_by_index(meal: Meal) -> int:
    meal['gusts'] = 1
    return line() - 1


def set_by_update(meal: Meal) -> int:
    meal.update({'gusts': 1})
    return line() - 1


def set_by_keyword(meal: Meal) -> int:
    meal |= Meal(gusts=1)
    return line() - 1


def set_in_a_dict(meal: Meal) -> int:
    meal |= Meal({'gusts': 1})
    return line() - 1


def set_in_another_mapping(meal: Meal) -> int:
    meal |= Meal(MappingProxyType({'gusts': 1}))
    return line() - 1


def set_by_default(meal: Meal) -> int:
    meal.setdefault('gusts', 1)
    return line() - 1


@pytest.mark.parametrize('set_it', [set_by_name, set_by_index, set_by_update, set_by_keyword, set_in_a_dict,
                                    set_in_another_mapping, set_by_default])
@pytest.mark.parametrize('copied', [
    lambda meal: meal, copy.copy, copy.deepcopy, Meal, lambda meal: meal | {'guests': 2},
    lambda meal: pickle.loads(pickle.dumps(meal))])
def test_the_error_names_the_line_that_set_an_unknown_name(
        set_it: Callable[[Meal], int], copied: Callable[[Meal], Meal]) -> None:
    meal = Meal(name='x')
    number = set_it(meal)
    made = copied(meal)
    with pytest.raises(AttributeUnknown, match=rf"did you mean 'guests'\? \(set in {__file__}, line {number}\)$"):
        made.verify()


def test_a_name_that_was_removed_is_no_error() -> None:
    meal = Meal(gusts=1)
    del meal.gusts
    meal.verify()
    assert not hasattr(meal, 'gusts')


def test_names_are_found_in_other_spellings() -> None:
    for name in ('Chairs', 'CHAIRS'):
        with pytest.raises(AttributeUnknown, match=f'"{name}": use "guests"'):
            Meal({name: 1}).verify()


def test_suggestions_are_similar() -> None:
    with pytest.raises(AttributeUnknown, match=r"did you mean 'guests'"):
        Meal(gests=1).verify()
    with pytest.raises(AttributeUnknown) as caught:
        Meal(nuts=1).verify()
    assert 'did you mean' not in str(caught.value)


@pytest.fixture
def typeddict(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The error classes of radical.utils, loaded by the application."""
    module = ModuleType('radical.utils.typeddict')
    module.TDKeyError = type('TDKeyError', (KeyError,), {})  # type: ignore[attr-defined]
    module.TDTypeError = type('TDTypeError', (TypeError,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'radical.utils.typeddict', module)
    return module


def test_errors_are_caught_by_the_classes_of_radical_utils(typeddict: Any) -> None:
    with pytest.raises(typeddict.TDKeyError, match='has no attribute'):
        Meal({'x': 1}).verify()
    with pytest.raises(typeddict.TDTypeError, match='must be an integer'):
        Meal({'guests': 'x'}).verify()


# old names

def test_an_alias_becomes_its_attribute_and_stays_readable() -> None:
    meal = Meal({'people': '3'})
    with pytest.warns(DeprecationWarning, match=r'^Meal\.people is deprecated, use guests$') as warned:
        meal.verify()
    assert [warning.filename for warning in warned] == [__file__]
    assert (meal.guests, meal['people'], meal.people, meal.get('people')) == (3, 3, 3, 3)
    assert 'people' in meal
    assert 'people' not in [*meal, *meal.as_dict()]
    assert stored(meal) == {'guests': 3}


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
def test_a_changed_copy_is_not_changed_back_by_an_alias() -> None:
    meal = Meal({'people': 3})
    meal.verify()
    other = Meal(meal.as_dict() | {'guests': 4})
    other.verify()
    assert other.guests == 4
    unverified = Meal({'people': 3})
    unverified.update(Meal({'guests': 4}))
    unverified.verify()
    assert unverified.guests == 4


def test_an_unverified_alias_survives_the_wire() -> None:
    assert Meal.from_sparse(Meal({'people': 1}).sparse()).sparse() == {'people': 1}


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
def test_the_latest_of_both_names_counts() -> None:
    meal = Meal({'people': 3, 'guests': 2})
    meal.verify()
    assert meal.guests == 3
    meal.guests = 4
    meal.verify()
    assert (meal.guests, meal.people) == (4, 4)
    meal.people = 5
    meal.verify()
    assert meal.guests == 5


@pytest.mark.parametrize('nothing', [0, '', None])
def test_nothing_by_an_old_name_sets_nothing(nothing: Any) -> None:
    meal = Meal({'people': nothing, 'guests': 2})
    meal.verify()
    assert (meal.guests, meal.people) == (2, 2)


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
def test_errors_name_the_old_name_that_was_used() -> None:
    with pytest.raises(AttributeTypeError, match=r'Meal\.people must be an integer'):
        Meal({'people': 'x'}).verify()


# types

def test_nested_types() -> None:
    cast = cast_for([{str: [int]}])
    assert cast({'a': '1'}) == [{'a': [1]}]
    right = [{'a': [1]}]
    assert cast(right) == right
    with pytest.raises(CastError, match='each value is a list where each item is an integer'):
        cast([{'a': 'x'}])


def test_words_are_found_in_any_case() -> None:
    cast: Cast = one_of('', 'OpenMP', ignored=('MPI',))
    assert [cast(''), cast('openmp'), cast('OPENMP'), cast('mpi')] == ['', 'OpenMP', 'OpenMP', '']
    for wrong in ('x', 3):
        with pytest.raises(CastError, match="one of '', 'OpenMP'"):
            cast(wrong)


@pytest.mark.parametrize('spec', [3, [], [int, str], {int: str}, {}])
def test_a_wrong_schema_is_refused_when_the_class_is_made(spec: Any) -> None:
    with pytest.raises(TypeError, match='is no type of an attribute'):
        type('Wrong', (Description,), {'_fields': {'a': Field(spec, None)}})
