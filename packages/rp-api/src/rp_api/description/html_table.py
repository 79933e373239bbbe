"""Small HTML tables, in which notebooks show objects."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

MAX_VALUE_CHARS = 200
"""Characters of a value that are shown at most."""

_LEFT = 'style="text-align: left; vertical-align: top"'


def html_table(title: str, values: Mapping[str, Any]) -> str:
    """Return a table of names and values, without the values that are None or empty."""
    rows = ''.join(f'<tr><th {_LEFT}>{_shown(name)}</th><td {_LEFT}>{_shown(value)}</td></tr>'
                   for name, value in values.items() if value not in (None, '', [], {}))
    return f'<table><caption {_LEFT}><b>{_shown(title)}</b></caption><tbody>{rows}</tbody></table>'


def _shown(value: Any) -> str:
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = f'{text[:MAX_VALUE_CHARS]} ...'
    return escape(text.encode('utf-8', 'replace').decode()).replace('\n', '<br>')
