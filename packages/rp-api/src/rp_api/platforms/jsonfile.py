"""Configuration files: JSON with `#` comments, read with errors that name file and line, and merged."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from rp_api.errors import PlatformError

# a string, which is kept whatever it holds, or a comment
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|#[^\n]*')
_VARIABLE = re.compile(r'\$\{(\w+)(?::([^}]*))?\}')


def read_json(path: str) -> dict[str, Any]:
    """The object in the file; a PlatformError names file, line and reason if there is none."""
    try:
        with open(path, encoding='utf-8') as file:
            content = file.read()
        found = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or '', content))
    except json.JSONDecodeError as error:
        raise PlatformError(f'{path}, line {error.lineno}: {error.msg}') from None
    except UnicodeDecodeError as error:
        raise PlatformError(f'{path}: not UTF-8 text ({error.reason} at byte {error.start})') from None
    except OSError as error:
        raise PlatformError(f'{path}: {error.strerror}') from None
    if not isinstance(found, dict):
        raise PlatformError(f'{path}, line 1: the file must hold an object in braces')
    return found


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with all that `over` says; objects in both are merged in turn, all else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(known, value) if both else value  # type: ignore[arg-type]
    return merged


def expand(value: Any) -> Any:
    """The value with `${NAME:default}` in its strings replaced from the environment (no default: empty)."""
    if isinstance(value, Mapping):
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    return value


def _variable(match: re.Match[str]) -> str:
    return os.environ.get(match[1]) or os.path.expandvars(match[2] or '')


def user_dir() -> str:
    """The directory where users keep configuration files."""
    base = os.environ.get('RADICAL_CONFIG_USER_DIR') or os.path.expanduser('~')
    return os.path.join(base, '.radical', 'pilot', 'configs')
