"""Placeholders in descriptions: which there are, what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.batch import ROWS, Batch, Chunk, unpacked
from rp_api.description.template import Fields, renderer
from rp_api.errors import DescriptionError
from rp_api.wire import codec


@pytest.mark.parametrize(('columns', 'value', 'row', 'expected'), [
    (['a', 'b'], '{a}', (1, 'x', 7), '1'),
    (['a', 'b'], '{b}-{a:03d}/{i}', (1, 'x', 7), 'x-001/7'),
    (2, ['{2}', 'plain', '{1}{1}'], ('p', 0.5, 0), ['0.5', 'plain', 'pp']),
    (1, {'key': '{}', 'other': ['{i:02d}']}, ('v', 3), {'key': 'v', 'other': ['03']}),
    (1, 'a{{b}}{1}', ('v', 3), 'a{b}v'),
    (0, 'run {i}', (12,), 'run 12'),
])
def test_placeholders_are_filled_in(columns: Any, value: Any, row: Any, expected: Any) -> None:
    common, varying = Fields(columns).split({'arguments': value, 'ranks': 2, 'pre_exec': ['echo {x}']})
    assert common == {'ranks': 2, 'pre_exec': ['echo {x}']}
    assert renderer(varying)(row) == {'arguments': expected}


def test_values_of_rows_stand_for_themselves_where_the_description_is_active() -> None:
    described = {'arguments': ['$HOME/{a}', '{a}', '{{0!s}}{b:>3}'], 'environment': {'V': '$A{a:s}'}, 'name': '{a}',
                 'executable': '$DIR/{a}', 'stdout': '{a}'}
    row = ('$5 `x`', 2, 0)
    common, varying = Fields(['a', 'b']).split(described)
    assert (common, renderer(varying)(row)) == ({}, {
        'arguments': [r'$HOME/\$5 \`x\`', r'\$5 \`x\`', '{0!s}  2'], 'environment': {'V': r'$A\$5 \`x\`'},
        'name': '$5 `x`', 'executable': "$DIR/'$5 `x`'", 'stdout': '$5 `x`'})
    common, varying = Fields(['a', 'b']).split({**described, 'literal_arguments': True})
    assert renderer(varying)(row) == {
        'arguments': ['$HOME/$5 `x`', '$5 `x`', '{0!s}  2'], 'environment': {'V': '$A$5 `x`'}, 'name': '$5 `x`',
        'executable': '$DIR/$5 `x`', 'stdout': '$5 `x`'}
    assert renderer(Fields(['a']).split({'executable': '{a}'})[1])(('/bin/prog', 0)) == {'executable': '/bin/prog'}


def test_attributes_without_placeholders_are_common() -> None:
    common, varying = Fields(['a']).split({'executable': 'awk', 'arguments': ['{{print $2}}'], 'ranks': 1})
    assert (common, varying) == ({'executable': 'awk', 'arguments': ['{print $2}'], 'ranks': 1}, {})


@pytest.mark.parametrize('text', ['{c}', '{a.real}', '{a[0]}', '{a!r}', '{a:{b}}', '{0}', '{', 'x}', '{}'])
def test_other_placeholders_are_refused(text: str) -> None:
    with pytest.raises(DescriptionError, match=r'TaskDescription\.name is .*write \{\{ and \}\} for braces'):
        Fields(['a', 'b']).split({'name': text})


def test_formats_are_known() -> None:
    fields = Fields(['a', 'b'])
    fields.split({'name': '{b:>5}', 'stdout': '{a}'})
    assert fields.formats == [(1, '>5', 'name')]


def test_chunk() -> None:
    chunk = Chunk('sweep.0003', 1024, 2, {'name': '{0}.{1}'}, [['x', 2]], ['mass'])
    assert unpacked(codec.unpack(chunk.packed())) == chunk
    assert ROWS in codec.unpack(chunk.packed())
    assert (chunk.uid, chunk.uids) == ('sweep.0003/1024', ['sweep.0003.001024', 'sweep.0003.001025'])
    assert [(uid, codec.unpack(own)) for uid, own in Batch(codec.pack({}), chunk).listed()] == [
        ('sweep.0003.001024', {'name': 'x.1024'}), ('sweep.0003.001025', {'name': '2.1025'})]
    assert chunk.own_of(1) == {'name': '2.1025'}
    assert Chunk('s', 0, 2, {}, []).own() == [codec.NOTHING] * 2
