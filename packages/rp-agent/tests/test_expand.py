"""Texts as a shell would read them in double quotes."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rp_agent.executor.launching.expand import expand, literal, shell_quote, texts_of, variables
from rp_agent.task import Description

ENV = {'A': 'value', 'B_2': 'two words', 'EMPTY': '', '_x': '*'}


@pytest.mark.parametrize(('text', 'expanded'), [
    ('', ''),
    ('plain text', 'plain text'),
    ('$A', 'value'),
    ('${A}', 'value'),
    ('${A}b$B_2.$_x', 'valuebtwo words.*'),
    ('$EMPTY$UNSET${UNSET}', ''),
    (r'\$A', '$A'),
    (r'\`date\`', '`date`'),
    (r'\\$A', r'\$A'),
    (r'a\b\n\"', r'a\b\n\"'),
    ('100$', '100$'),
    ('$ $% $, $" $/', '$ $% $, $" $/'),
    ('"quoted" \'single\' ~ * ? [a] ; | &', '"quoted" \'single\' ~ * ? [a] ; | &'),
    ('$Aé', 'valueé'),
    ('line\n$A\n', 'line\nvalue\n'),
    ('C:\\dir\\', 'C:\\dir\\'),
])
def test_expand(text: str, expanded: str) -> None:
    assert expand(text, ENV) == expanded


@pytest.mark.parametrize('text', ['$(date)', '`date`', '${A:-b}', '${#A}', '${A', '${}', '${1}', '$1', '$$', '$?', '$#',
                                  '$@', '$*', '$!', '$-', '$0', 'a$A$(b)'])
def test_what_needs_a_shell(text: str) -> None:
    assert expand(text, ENV) is None


def by_shell(quoted: str) -> str:
    command = f'printf "%s." {quoted}'
    ran = subprocess.run(['/bin/sh', '-c', command], env=ENV, check=True, timeout=30, capture_output=True)
    return ran.stdout.decode()[:-1]


@pytest.mark.parametrize('text', ['', 'a b', '$A ${B_2}', r'\$A', r'\`', '"', '\\', '\\\\', r'\"', '!', "it's",
                                  'a\\\nb', '$', '$ ', r'\\$A', r'\\\$A', '*', '~', '#', '-n', '$EMPTY', 'a\n'])
def test_the_shell_gives_a_quoted_text_the_same_meaning(text: str) -> None:
    assert by_shell(shell_quote(text)) == expand(text, ENV)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='aA_$\\`"\'{} \n!*~', max_size=8).filter(lambda text: expand(text, ENV) is not None))
def test_any_text_means_the_same_to_the_shell(text: str) -> None:
    assert by_shell(shell_quote(text)) == expand(text, ENV)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='aA_$\\`"\'{}() \n!*~1@', max_size=8))
@example('\\$A')
@example('$(date)')
def test_literal_arguments_stand_for_themselves(text: str) -> None:
    executable, argument = texts_of(Description({'executable': '$A', 'arguments': [text], 'literal_arguments': True}))
    assert executable == '$A'
    assert by_shell(shell_quote(argument)) == expand(argument, ENV) == text
    assert texts_of(Description({'executable': '$A', 'arguments': [text]})) == ['$A', text]


@pytest.mark.parametrize(('text', 'names'), [
    ('', []), ('$A', ['A']), ('a$A ${B_2}"$_x"', ['A', 'B_2', '_x']), (r'\$A \\$B', []), ('100$ $% $', []),
    ('{print $2} ${1}$@$*', ['2', '1', '@', '*']), ('$$ $? $# $! $- $0', []), ('$(echo $A) `echo $B`$C', ['C']),
    ('${A:-$B} ${#A} ${A', []), ('for i in $(seq 3); do echo $i; done', ['i']), ('$10', ['1'])])
def test_names_of_variables(text: str, names: list[str]) -> None:
    assert list(variables(text)) == names


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(min_codepoint=1, max_codepoint=0x2ff), max_size=20))
def test_literal_text_stands_for_itself(text: str) -> None:
    assert by_shell(literal(text)) == text


@pytest.mark.parametrize(('text', 'meaning'), [
    ('$(echo one)', 'one'),
    ('<$(echo "a  b")>', '<a  b>'),
    ('$(echo ")")', ')'),
    ("$(echo ')')", ')'),
    ('$(echo $(echo "in"))', 'in'),
    ('$(echo ${A})}', 'value}'),
    ('$( (echo sub) )!', 'sub!'),
    (r'$(printf "\\141\\n")', 'a'),
    ('`echo back`"', 'back"'),
    ('${UNSET:-"x y"}"', 'x y"'),
    ('${UNSET:-$(echo d)}', 'd'),
    ('${A:+yes}', 'yes'),
    ('$((1 + 2))', '3'),
    ('$#', '0'),
])
def test_commands_inside_a_text(text: str, meaning: str) -> None:
    assert by_shell(shell_quote(text)) == meaning


@pytest.mark.parametrize('text', ['$(echo', '${A', '`echo', '$(echo "', "$(echo '", '$(echo \\', '${A\\'])
def test_a_substitution_that_never_ends_is_left_to_the_shell_to_refuse(text: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        by_shell(shell_quote(text))
