"""What shell variables mean in a task's executable, arguments and environment.

Those texts are read as if they stood in double quotes in a shell: `$NAME`, `${NAME}`, `$(command)` and backticks are
active, `\\$` and a backslash before a backtick give the plain character, and everything else stands for itself, spaces,
quotes, wildcards and other backslashes included.

Most texts need no shell for that: `expand` does it. For the others `shell_quote` writes the text so that a POSIX shell
gives it the same meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ACTIVE = (
    r'\\(?P<plain>[$`])'
    r'|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}'
    r'|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r'|(?P<shell>\$[({0-9@*#?!$-]|`)'
)
_SPECIAL = re.compile(r'[\\"$`]')


def expand(text: str, env: Mapping[str, str]) -> str | None:
    """The text with its variables replaced by their values in `env`, unset ones by nothing; None if it needs a shell.

    A shell is needed for commands (`$(`, backticks), for forms like `${NAME:-default}`, and for `$1`, `$$`, `$?` and
    the like.
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
    """The text in double quotes, for a POSIX shell, with the meaning that `expand` gives it.

    Commands and `${...}` forms inside are kept as they are written, quotes included, as a shell reads those anew.
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
    """The text quoted for a POSIX shell so that every character stands for itself."""
    return "'" + text.replace("'", "'\\''") + "'"


def _special_end(text: str, start: int) -> int:
    """Where the piece ends that begins with a special character and is to be kept together."""
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
    """Where a substitution ends, just behind its closing character; the end of the text if that never comes.

    Backslashes and quotes hide the closing character, parentheses and braces nest.
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
