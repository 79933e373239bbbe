r"""Texts of a task that a shell may read: its executable, arguments and environment.

`arguments_of` and `values_of` return texts with the meaning that they have in double quotes in a shell: `$NAME`,
`${NAME}`, `$(command)` and backticks are active, `\$` and a backslash before a backtick give the plain character. All
other characters are literal, including spaces, quotes, wildcards and other backslashes. Active characters that shall
be literal therefore get a backslash: all with `literal_arguments`; in values of the environment all but those of
`$NAME` and `${NAME}`; in an executable all of them, unless it is a command line for a shell (`is_command`).

`expand` expands most texts without a shell. For the others, `shell_quote` quotes the text so that a POSIX shell gives
it the same meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ACTIVE = (
    r'\\(?P<plain>[$`])'
    r'|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}'
    r'|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r'|(?P<shell>\$[({0-9@*#?!$-]|`)'
)
_COMMAND = re.compile(r'[ \t\r\n|&;<>()$`\\"\'*?[{]|^[~#]')
_OF_VALUE = re.compile(r'\\[$`]|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*|(?P<plain>[$`])')
_SPECIAL = re.compile(r'[\\"$`]')
_NOT_FOUND = 127
_ADVICE = (' (commands in its arguments, "$(...)" or backticks, ran before the program, which got their output: for '
           'arguments as they are written, set literal_arguments=True)')
_NAMED = re.compile(r'\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*|[1-9@*])\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*|[1-9@*]))')


def escaped(text: str) -> str:
    """Return the text whose expansion is this text."""
    return re.sub(r'([$`])', r'\\\1', text)


def is_command(executable: str, directory: str) -> bool:
    """Return whether an executable is a command line for a shell: not an existing path, nor one word.

    Paths are relative to `directory`.
    """
    return bool(_COMMAND.search(executable)) and not (
        '/' in executable and os.path.exists(os.path.join(directory, executable)))


def has_command(description: Mapping[str, Any], directory: str) -> bool:
    """Return whether a shell reads a task's executable as a command line: `is_command`, and the task is not literal."""
    return not description['literal_arguments'] and is_command(description['executable'], directory)


def arguments_of(description: Mapping[str, Any]) -> list[str]:
    """Return a task's arguments, to be expanded."""
    arguments: list[str] = description['arguments']
    return list(map(escaped, arguments)) if description['literal_arguments'] else arguments


def texts_of(description: Mapping[str, Any]) -> list[str]:
    """Return a task's executable, which is no command line, and its arguments, to be expanded."""
    return [escaped(description['executable']), *arguments_of(description)]


def values_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Return a task's variables, with values to be expanded; `expand` expands all of them."""
    variables: dict[str, str] = description['environment']
    if not description['literal_arguments']:
        return {name: _OF_VALUE.sub(_but_names, value) for name, value in variables.items()}
    return {name: escaped(value) for name, value in variables.items()}


def advice(code: int | None, arguments: Sequence[str]) -> str:
    """Return what may explain an exit code of a program: commands in its arguments, which are not literal; or nothing.

    The program may have been a shell, which did not find their output.
    """
    commands = code == _NOT_FOUND and any('$(' in text or '`' in text for text in arguments)
    return _ADVICE if commands else ''


def unexpanded(value: str) -> bool:
    """Return whether a value of the environment has a command or another form that only a shell would replace."""
    return any(match['plain'] == '`' or value[match.end():match.end() + 1] in ('(', '{')
               for match in _OF_VALUE.finditer(value) if match['plain'])


def command_line(executable: str, arguments: Sequence[str]) -> str:
    """Return the line for a shell that runs an executable that is a command, as one unit, with its arguments."""
    return '{ ' + ' '.join([executable, *map(shell_quote, arguments)]) + '\n}'


def variables(text: str) -> Iterator[str]:
    """Yield the names of variables and parameters whose values `expand`, or a shell, puts into the text.

    Commands, and forms such as `${NAME:-default}`, are left out.
    """
    done = 0
    while match := _SPECIAL.search(text, done):
        done = _special_end(text, match.start())
        named = _NAMED.match(text, match.start())
        if named is not None:
            yield named['braced'] or named['plain']


def expand(text: str, env: Mapping[str, str]) -> str | None:
    """Replace variables by their values in `env`, unset ones by nothing; return None if the text needs a shell.

    Commands (`$(`, backticks), forms like `${NAME:-default}`, and parameters like `$1`, `$$` and `$?` need a shell.
    """
    if '$' not in text and '`' not in text:
        return text
    pieces = []
    done = 0
    for match in re.finditer(_ACTIVE, text):
        if match['shell']:
            return None
        pieces.append(text[done:match.start()])
        pieces.append(match['plain'] or env.get(match['braced'] or match['name'], ''))
        done = match.end()
    pieces.append(text[done:])
    return ''.join(pieces)


def shell_quote(text: str) -> str:
    """Put the text in double quotes so that a POSIX shell gives it the same meaning as `expand`.

    Commands and `${...}` forms stay unchanged, quotes included, as a shell parses them separately.
    """
    pieces = ['"']
    done = 0
    while match := _SPECIAL.search(text, done):
        start = match.start()
        pieces.append(text[done:start])
        done = _special_end(text, start)
        special = text[start:done]
        pieces.append('\\' + special if special in ('"', '\\') else special)
    pieces.append(text[done:])
    pieces.append('"')
    return ''.join(pieces)


def literal(text: str) -> str:
    """Quote the text for a POSIX shell so that every character is literal."""
    return "'" + text.replace("'", "'\\''") + "'"


def _but_names(match: re.Match[str]) -> str:
    return match[0] if match['plain'] is None else f'\\{match[0]}'


def _special_end(text: str, start: int) -> int:
    """Return the end of the unit that begins with a special character."""
    if text[start] == '\\':
        return start + 2 if text[start + 1:start + 2] in ('$', '`') else start + 1
    if text[start] == '`':
        return _closed(text, start + 1, '`')
    if text.startswith('$(', start):
        return _closed(text, start + 2, ')')
    if text.startswith('${', start):
        return _closed(text, start + 2, '}')
    return start + 1


def _closed(text: str, position: int, end: str) -> int:
    """Return the end of a substitution, behind its closing character; the end of the text if it is not closed.

    Backslashes and quotes hide the closing character; parentheses and braces nest.
    """
    while position < len(text):
        char = text[position]
        if char == end:
            return position + 1
        if char == '\\':
            position += 2
        elif char == "'" and end != '}':
            position = text.find("'", position + 1) + 1 or len(text)
        elif char == '"':
            position = _closed(text, position + 1, '"')
        elif char == '(' and end == ')':
            position = _closed(text, position + 1, ')')
        elif text.startswith(('$(', '${'), position):
            position = _closed(text, position + 2, ')' if text[position + 1] == '(' else '}')
        else:
            position += 1
    return len(text)
