r"""Expansion of shell variables in a task's executable, arguments and environment.

`texts_of` returns the texts of a program with its arguments; with `literal_arguments`, the active characters of
arguments have a backslash.

These texts have the meaning that they have in double quotes in a shell: `$NAME`, `${NAME}`, `$(command)` and backticks
are active, `\$` and a backslash before a backtick give the plain character. All other characters are literal,
including spaces, quotes, wildcards and other backslashes.

`expand` expands most texts without a shell. For the others, `shell_quote` quotes the text so that a POSIX shell gives
it the same meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_ACTIVE = (
    r'\\(?P<plain>[$`])'
    r'|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}'
    r'|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r'|(?P<shell>\$[({0-9@*#?!$-]|`)'
)
_SPECIAL = re.compile(r'[\\"$`]')
_NAMED = re.compile(r'\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*|[1-9@*])\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*|[1-9@*]))')


def texts_of(description: Mapping[str, Any]) -> list[str]:
    """Return a task's executable and arguments, to be expanded."""
    arguments = description['arguments']
    if description['literal_arguments']:
        arguments = [re.sub(r'([$`])', r'\\\1', text) for text in arguments]
    return [description['executable'], *arguments]


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
