"""Configuration files: reading JSON with `#` comments, merging, and expanding environment variables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from rp_api.errors import PlatformError

# a string, which is kept, or a comment outside of strings
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|#[^\n]*')
_VARIABLE = re.compile(r'\$\{(\w+)(?::([^}]*))?\}')


def read_json(path: str) -> dict[str, Any]:
    """Return the object in the file; raise a PlatformError that names file, line and reason if it is invalid."""
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
    """Return `base` updated with `over`; objects in both are merged recursively, other values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(known, value) if both else value  # type: ignore[arg-type]
    return merged


def expand(value: Any) -> Any:
    """Return the value with each `${NAME:default}` in its strings replaced from the environment (default: empty)."""
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
    """Return the directory of the user's configuration files."""
    base = os.environ.get('RADICAL_CONFIG_USER_DIR') or os.path.expanduser('~')
    return os.path.join(base, '.radical', 'pilot', 'configs')
