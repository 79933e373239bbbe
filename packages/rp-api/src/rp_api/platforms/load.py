"""Lookup of platform definitions: those of this package, overridden key by key by those of the user.

The platform `<site>.<name>` is the entry `<name>` of a file `resource_<site>.json` in the `data` directory of this
package or in `${RADICAL_CONFIG_USER_DIR:-$HOME}/.radical/pilot/configs`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from rp_api.errors import DescriptionError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.record import suggestion

_DATA = os.path.join(os.path.dirname(__file__), 'data')
_FILE = re.compile(r'resource_(.+)\.json')
_LEFT = ('default_remote_workdir', 'default_queue')
_PLACEHOLDER = re.compile(r'%\(pd\.(\w+)\)s')
# a string, which is kept, or a comment outside of strings
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|#[^\n]*')
_VARIABLE = re.compile(r'\$\{(\w+)(?::([^}]*))?\}')


def list_platforms(retired: bool = False) -> list[str]:
    """Return the labels of all platforms, sorted; those of retired machines only if `retired` is true."""
    return sorted(f'{site}.{name}' for site in _sites() for name, config in _read_site(site).items()
                  if retired or not config.retired)


def get_platform(label: str, schema: str | None = None) -> ResourceConfig:
    """Return the verified definition of a platform, with one access schema merged to its top level.

    Args:
        label: The platform's label, `<site>.<name>`.
        schema: The name of an access schema; by default the platform's default schema, or else its first one.

    Raises:
        PlatformError: The label or the schema is unknown, or the definition is invalid.
    """
    site, _, name = str(label).partition('.')
    definitions = _read_site(site) if name else {}
    if name not in definitions:
        hint = suggestion(str(label), list_platforms(retired=True))
        raise PlatformError(f'platform {label!r} is not known{hint}')
    config = definitions[name]
    choose_schema(config, schema)
    return config


def get_resource_configs() -> dict[str, dict[str, ResourceConfig]]:
    """Return all definitions, including retired platforms, by site and name."""
    return {site: _read_site(site) for site in _sites()}


def get_resource_config(resource: str) -> ResourceConfig | None:
    """Return the definition of a platform with its default access schema, or None if the label is unknown."""
    site, _, name = resource.partition('.')
    return get_platform(resource) if name and name in _read_site(site) else None


def get_resource_fs_url(resource: str, schema: str | None = None) -> str:
    """Return the URL of a platform's file system in an access schema (default: as `get_platform`)."""
    return get_platform(resource, schema).filesystem_endpoint


def get_resource_job_url(resource: str, schema: str | None = None) -> str:
    """Return the URL of a platform's job manager in an access schema (default: as `get_platform`)."""
    return get_platform(resource, schema).job_manager_endpoint


def load_config(kind: str, name: str = 'default') -> dict[str, Any]:
    """Return the user's configuration file `<kind>_<name>.json`, with environment variables expanded.

    Kinds are session, pmgr, tmgr and agent. If the file is missing, the configuration 'default' is empty, and any
    other name raises a PlatformError.
    """
    path = os.path.join(user_dir(), f'{kind}_{name}.json')
    if name == 'default' and not os.path.exists(path):
        return {}
    config: dict[str, Any] = expand(read_json(path))
    return config


def fill(value: Any, description: Mapping[str, Any]) -> Any:
    """Return the value with each `%(pd.attr)s` in its strings replaced by that attribute of a pilot description.

    An attribute in upper case is replaced by the value in upper case. Raise a PlatformError for an attribute that does
    not exist or is not set.
    """
    return _replaced(value, _PLACEHOLDER, lambda match: _attribute(match, description))


def filled(config: ResourceConfig, description: Mapping[str, Any]) -> ResourceConfig:
    """Return the definition with attributes of a pilot description filled in.

    Work directory and queue are filled in later, because the description may override them.
    """
    changed = {name: found for name, value in config.items()
               if name not in _LEFT and (found := fill(value, description)) != value}
    return ResourceConfig({**config, **changed}) if changed else config


def _attribute(match: re.Match[str], description: Mapping[str, Any]) -> str:
    name = match[1].lower()
    found = description.get(name)
    if found is None or found == '':
        raise PlatformError(f'{match[0]} in the platform definition needs the attribute {name!r} of the '
                            'pilot description, which is not set')
    return str(found).upper() if match[1].isupper() else str(found)


def _sites() -> list[str]:
    """Return the sites that have a file."""
    names: set[str] = set()
    for directory in _DATA, user_dir():
        if os.path.isdir(directory):
            names.update(match[1] for match in map(_FILE.fullmatch, os.listdir(directory)) if match)
    return sorted(names)


def _read_site(site: str) -> dict[str, ResourceConfig]:
    """Return the definitions of a site by name; empty if there is no file."""
    merged: dict[str, Any] = {}
    paths = [os.path.join(directory, f'resource_{site}.json') for directory in (_DATA, user_dir())]
    paths = [path for path in paths if os.path.exists(path)]
    for path in paths:
        definitions = read_json(path)
        for name, values in definitions.items():
            _define(path, f'{site}.{name}', values)  # checked before merging, so that the error names the right file
        merged = merge(merged, definitions)
    where = ' over '.join(reversed(paths))
    return {name: _define(where, f'{site}.{name}', values, verify=True) for name, values in merged.items()}


def _define(where: str, label: str, values: Any, verify: bool = False) -> ResourceConfig:
    try:
        config = ResourceConfig(values)
        config.label = label
        if verify:
            config.verify()
    except DescriptionError as error:
        raise PlatformError(f'{where}, {label}: {error}') from None
    return config


def choose_schema(config: ResourceConfig, schema: str | None) -> None:
    """Merge the access schema to the top level of the definition."""
    chosen = schema or config.default_schema or next(iter(config.schemas), '')
    if schema and schema not in config.schemas:
        known = ', '.join(config.schemas) or 'none'
        raise PlatformError(f'platform {config.label!r} has no access schema {schema!r}, only: {known}')
    if chosen:
        config.update({name: value for name, value in config.schemas[chosen].items() if value})


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
    return _replaced(value, _VARIABLE, lambda match: os.environ.get(match[1]) or os.path.expandvars(match[2] or ''))


def _replaced(value: Any, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> Any:
    """Return the value with each match in its strings replaced."""
    if isinstance(value, Mapping):
        return {key: _replaced(item, pattern, replacement) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, pattern, replacement) for item in value]
    return pattern.sub(replacement, value) if isinstance(value, str) else value


def user_dir() -> str:
    """Return the directory of the user's configuration files."""
    base = os.environ.get('RADICAL_CONFIG_USER_DIR') or os.path.expanduser('~')
    return os.path.join(base, '.radical', 'pilot', 'configs')
