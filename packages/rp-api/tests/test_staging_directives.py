"""Staging directives: all forms that users write, and what is said about bad ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.constants import (
    COPY,
    CREATE_PARENTS,
    DOWNLOAD,
    LINK,
    MOVE,
    NON_FATAL,
    RECURSIVE,
    STAGING_ACTIONS,
    TARBALL,
    TRANSFER,
)
from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError
from rp_api.staging import Directive, describe, expand


class Url:
    """Stands for the URL objects of applications, of which only the text is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def expand_one(directive: object) -> Directive:
    [sd] = expand([directive], itertools.count())
    return sd


class TestStrings:
    @pytest.mark.parametrize(('text', 'source', 'target'), [
        ('a', 'a', 'a'),
        (' a ', 'a', 'a'),
        ('dir/a', 'dir/a', 'a'),
        ('/x/dir/', '/x/dir/', 'dir'),
        ('client:///dir/a.txt', 'client:///dir/a.txt', 'a.txt'),
        ('pilot://a', 'pilot://a', 'a'),
        ('a > b', 'a', 'b'),
        ('a>b', 'a', 'b'),
        ('a >> b', 'a', 'b'),
        ('b < a', 'a', 'b'),
        ('b << a', 'a', 'b'),
        ('client:///a b > task:///c d/', 'client:///a b', 'task:///c d/'),
        ('data/*.txt', 'data/*.txt', '.'),
        ('data/a[1].txt', 'data/a[1].txt', '.'),
        ('data*/a', 'data*/a', 'a'),
    ])
    def test_forms(self, text: str, source: str, target: str) -> None:
        assert expand_one(text) == {'uid': 'sd.0000', 'source': source, 'target': target, 'action': TRANSFER,
                                    'flags': CREATE_PARENTS, 'priority': 0}

    @pytest.mark.parametrize('text', ['a > b > c', 'a > b < c', '> b', 'a >', '<', 'a >>> b'])
    def test_ambiguous_strings(self, text: str) -> None:
        with pytest.raises(DescriptionError, match=r"must be 'source > target'.*use a dict"):
            expand(text)

    @pytest.mark.parametrize('text', ['', '  '])
    def test_empty(self, text: str) -> None:
        with pytest.raises(DescriptionError, match='source must be a path or URL'):
            expand(text)

    @pytest.mark.parametrize('text', ['task:///', '/', '..', 'dir/.', 'client://'])
    def test_source_without_a_name_needs_a_target(self, text: str) -> None:
        with pytest.raises(DescriptionError, match='target is required'):
            expand(text)
        assert expand_one({'source': text, 'target': 'x'})['target'] == 'x'


class TestLists:
    def test_nothing(self) -> None:
        assert expand(None) == []
        assert expand([]) == []

    def test_one_or_many(self) -> None:
        assert len(expand('a')) == 1
        assert len(expand({'source': 'a'})) == 1
        assert [sd['source'] for sd in expand(('a', {'source': 'b'}, Path('c')))] == ['a', 'b', 'c']

    def test_numbering(self) -> None:
        counter = itertools.count(7)
        assert [sd['uid'] for sd in expand(['a', {'source': 'b', 'uid': 'mine'}, 'c'], counter)] == [
            'sd.0007', 'mine', 'sd.0008']

    def test_default_numbering_never_repeats(self) -> None:
        uids = [sd['uid'] for _ in range(3) for sd in expand(['a', 'b'])]
        assert len(set(uids)) == 6

    def test_expanded_ones_stay_as_they_are(self) -> None:
        once = expand(['a > b', {'source': 'c', 'action': COPY, 'flags': NON_FATAL, 'priority': 3}])
        assert expand(once) == once

    def test_what_was_given_is_not_changed(self) -> None:
        given = {'source': 'a'}
        expand(given)
        assert given == {'source': 'a'}


class TestDicts:
    def test_names_with_arrows_and_blanks(self) -> None:
        sd = expand_one({'source': ' a > b', 'target': 'c < d '})
        assert (sd['source'], sd['target']) == (' a > b', 'c < d ')

    def test_objects_with_text(self) -> None:
        sd = expand_one({'source': Url('client:///a'), 'target': Path('/b/c')})
        assert (sd['source'], sd['target']) == ('client:///a', '/b/c')
        assert type(sd['source']) is str
        assert expand_one(Url('a > b'))['target'] == 'b'

    @pytest.mark.parametrize('target', [None, ''])
    def test_missing_target(self, target: str | None) -> None:
        assert expand_one({'source': 'pilot:///x/y', 'target': target})['target'] == 'y'

    @pytest.mark.parametrize('action', STAGING_ACTIONS)
    def test_actions_in_any_case(self, action: str) -> None:
        for spelling in action, action.upper(), action.lower():
            assert expand_one({'source': 'file:///a', 'action': spelling})['action'] == action
        assert {COPY, LINK, MOVE, TRANSFER, TARBALL, DOWNLOAD} == set(STAGING_ACTIONS)

    @pytest.mark.parametrize(('flags', 'number'), [
        (None, CREATE_PARENTS), (0, 0), (5, 5), ([], 0), ([RECURSIVE, NON_FATAL], 5), ([1, 1], 1),
        ('RECURSIVE', 1), (['CreateParents', 'non_fatal'], 6), (RECURSIVE | CREATE_PARENTS | NON_FATAL, 7)])
    def test_flags(self, flags: object, number: int) -> None:
        assert expand_one({'source': 'a', 'flags': flags})['flags'] == number

    def test_values_of_flags(self) -> None:
        assert (RECURSIVE, CREATE_PARENTS, NON_FATAL) == (1, 2, 4)

    @pytest.mark.parametrize('flags', [8, -1, True, 'Recursiv', [1, 8], 1.0, {}])
    def test_bad_flags_name_the_allowed(self, flags: object) -> None:
        with pytest.raises(DescriptionError, match=r'RECURSIVE \(1\), CREATE_PARENTS \(2\), NON_FATAL \(4\)'):
            expand({'source': 'a', 'flags': flags})

    def test_priority(self) -> None:
        assert expand_one({'source': 'a', 'priority': '3'})['priority'] == 3
        with pytest.raises(AttributeTypeError, match=r"priority must be an integer, not 'high'"):
            expand({'source': 'a', 'priority': 'high'})

    def test_unknown_key(self) -> None:
        with pytest.raises(AttributeUnknown, match=r"unknown key 'targt': did you mean 'target'"):
            expand({'source': 'a', 'targt': 'b'})

    def test_unknown_action(self) -> None:
        allowed = 'Copy, Link, Move, Transfer, Tarball, Download'
        with pytest.raises(ValueError, match=rf"action 'cp' is not one of {allowed}"):
            expand({'source': 'a', 'action': 'cp'})

    @pytest.mark.parametrize('source', [None, '', 3, True, b'a', ['a'], {}])
    def test_bad_source(self, source: object) -> None:
        with pytest.raises(AttributeTypeError, match='source must be a path or URL'):
            expand({'source': source, 'target': 'b'})

    def test_errors_show_the_directive(self) -> None:
        with pytest.raises(DescriptionError, match=r"staging directive \{'target': 'b'\}: source must"):
            expand({'target': 'b'})
        with pytest.raises(DescriptionError, match=r'target must be a path or URL, not 3'):
            expand({'source': 'a', 'target': 3})
        with pytest.raises(DescriptionError, match='null byte'):
            expand({'source': 'a\0b'})
        with pytest.raises(DescriptionError, match='surrogates not allowed'):
            expand({'source': 'a', 'target': '\ud800'})
        assert expand_one({'source': '\udcff'})['target'] == '\udcff'  # a byte that is no text

    @pytest.mark.parametrize('directive', [3, 3.5, True, b'a > b'])
    def test_neither_string_nor_dict(self, directive: object) -> None:
        with pytest.raises(AttributeTypeError, match='must be a string or a dict'):
            expand(directive)


class TestDownloads:
    def test_name_of_the_target(self) -> None:
        for url in 'https://host/dir/f.tgz', 'https://host/dir/f.tgz?x=/1#y', 'HTTP://host/f.tgz':
            assert expand_one({'source': url, 'action': DOWNLOAD})['target'] == 'f.tgz'

    def test_site_without_a_file_needs_a_target(self) -> None:
        assert expand_one({'source': 'https://host/x?y', 'action': DOWNLOAD, 'target': 'y'})['target'] == 'y'
        with pytest.raises(DescriptionError, match='target is required'):
            expand({'source': 'https://host/?a=b', 'action': DOWNLOAD})

    def test_needs_a_url(self) -> None:
        with pytest.raises(DescriptionError, match=r'needs a URL with one of the schemes file, .*https, scp, sftp'):
            expand({'source': 'x', 'action': DOWNLOAD})
        assert expand_one({'source': 'file:///x', 'action': DOWNLOAD})['target'] == 'x'


def test_describe() -> None:
    assert describe(expand_one('client:///a > task:///b')) == 'Transfer client:///a > task:///b'


@given(st.text(), st.text())
def test_dicts_take_any_name(source: str, target: str) -> None:
    directive = {'source': source, 'target': target}
    try:
        sd = expand_one(directive)
    except DescriptionError:
        return
    assert sd['source'] == source
    assert sd['target'] in (target, '.') or not target
    assert expand_one(sd) == sd
