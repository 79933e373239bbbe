"""Texts as a shell would read them in double quotes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rp_api.description.task import TaskDescription
from rp_api.system.shell_text import (
    expand,
    has_command,
    is_command,
    literal,
    shell_quote,
    texts_of,
    unexpanded,
    values_of,
    variables,
)

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
    described = {'executable': text, 'arguments': [text], 'environment': {'V': text}}
    literally = TaskDescription({**described, 'literal_arguments': True})
    for each in (*texts_of(literally), *values_of(literally).values()):
        assert by_shell(shell_quote(each)) == expand(each, ENV) == text
    executable, argument = texts_of(TaskDescription(described))
    assert by_shell(shell_quote(executable)) == expand(executable, ENV) == text
    assert argument == text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='aA_$\\`"\'{}() \n!*~1@', max_size=8))
@example('$A$1$(date)`date`${A}${A:-x}$')
def test_values_never_need_a_shell_and_mean_the_same_to_one(text: str) -> None:
    value = values_of(TaskDescription({'environment': {'V': text}}))['V']
    assert by_shell(shell_quote(value)) == expand(value, ENV)


@pytest.mark.parametrize(('value', 'told'), [
    ('', False), ('$A${A}', False), ('p$5', False), ('100$', False), (r'\$(x) \`x\`', False),
    ('$(x)', True), ('`x', True), ('${A:-x}', True), ('a $A $((1))', True)])
def test_commands_in_values(value: str, told: bool) -> None:
    assert unexpanded(value) == told


@pytest.mark.parametrize(('executable', 'command'), [
    *((word, False) for word in ('prog', '/bin/prog-1.0_x+y', './a,b=c:d@e%f', 'g++', 'prog~#1!', 'é')),
    *((line, True) for line in (
        '/bin/echo a', 'a&&b', '~/x', '$A/x', '`x`', 'a;b', '"a"', "'a'", 'a\\b', 'a*', 'a?', '[a]', '{a,b}', 'a|b',
        '>x', '(a)', 'a\nb', 'a\tb', '#a', 'a\0 b'))])
def test_command_lines(tmp_path: Path, executable: str, command: bool) -> None:
    """Unless there is a file of that name."""
    assert is_command(executable, str(tmp_path)) == command
    assert has_command(TaskDescription({'executable': executable}), str(tmp_path)) == command
    assert not has_command(TaskDescription({'executable': executable, 'literal_arguments': True}), str(tmp_path))
    if '/' not in executable and '\0' not in executable:
        (tmp_path / executable).touch()
        assert not is_command(f'./{executable}', str(tmp_path))
        assert not is_command(f'{tmp_path}/{executable}', '/')
        assert is_command(executable, str(tmp_path)) == command   # a name is looked for on the PATH


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
