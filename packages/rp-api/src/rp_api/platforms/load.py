"""Finding platform definitions: the shipped ones, and those of the user, which win key by key.

A platform has the label `<site>.<name>`; it stands under `<name>` in a file `resource_<site>.json`, which is
looked for in this package's `data` directory and in
`${RADICAL_CONFIG_USER_DIR:-$HOME}/.radical/pilot/configs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from rp_api.errors import DescriptionError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.jsonfile import expand, merge, read_json, user_dir
from rp_api.record import suggestion

_DATA = os.path.join(os.path.dirname(__file__), 'data')
_FILE = re.compile(r'resource_(.+)\.json')
_LEFT = ('default_remote_workdir', 'default_queue')
_PLACEHOLDER = re.compile(r'%\(pd\.(\w+)\)s')


def list_platforms(retired: bool = False) -> list[str]:
    """The labels of all platforms, sorted; with `retired` also of those whose machine does not exist any more."""
    return sorted(f'{site}.{name}' for site in _sites() for name, config in _read_site(site).items()
                  if retired or not config.retired)


def get_platform(label: str, schema: str | None = None) -> ResourceConfig:
    """The verified definition of a platform, with one access schema merged to its top level.

    `schema` is the name of an access schema, by default the platform's own choice, or its first one. A
    PlatformError says which labels or schemas there are if this is none of them, or which file and key is
    wrong.
    """
    site, _, name = str(label).partition('.')
    definitions = _read_site(site) if name else {}
    if name not in definitions:
        hint = suggestion(str(label), list_platforms(retired=True))
        raise PlatformError(f'platform {label!r} is not known{hint}')
    config = definitions[name]
    _choose_schema(config, schema)
    return config


def get_resource_configs() -> dict[str, dict[str, ResourceConfig]]:
    """All definitions, by site and name, those of retired platforms among them."""
    return {site: _read_site(site) for site in _sites()}


def get_resource_config(resource: str) -> ResourceConfig | None:
    """The definition of a platform with its default access schema, or None if the label is not known."""
    site, _, name = resource.partition('.')
    return get_platform(resource) if name and name in _read_site(site) else None


def get_resource_fs_url(resource: str, schema: str | None = None) -> str:
    """The URL of the platform's file system in that access schema (None: the default one); PlatformError if unknown."""
    return get_platform(resource, schema).filesystem_endpoint


def get_resource_job_url(resource: str, schema: str | None = None) -> str:
    """The URL of the platform's job manager in that access schema (None: the default one); PlatformError if unknown."""
    return get_platform(resource, schema).job_manager_endpoint


def load_config(kind: str, name: str = 'default') -> dict[str, Any]:
    """The user's configuration file `<kind>_<name>.json`, with `${NAME:default}` replaced from the
    environment.

    Kinds are session, pmgr, tmgr and agent. Without a file of the name 'default' the configuration is empty;
    any other name must have one (else PlatformError).
    """
    path = os.path.join(user_dir(), f'{kind}_{name}.json')
    if name == 'default' and not os.path.exists(path):
        return {}
    config: dict[str, Any] = expand(read_json(path))
    return config


def fill(value: Any, description: Mapping[str, Any]) -> Any:
    """The value with `%(pd.attr)s` in all its strings replaced by that attribute of a pilot description.

    With the attribute in upper case, its value is put in upper case. A PlatformError names an attribute that
    does not exist or is not set.
    """
    if isinstance(value, Mapping):
        return {key: fill(item, description) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, description) for item in value]
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _attribute(match, description), value)
    return value


def filled(config: ResourceConfig, description: Mapping[str, Any]) -> ResourceConfig:
    """The definition with attributes of a pilot description filled in.

    Work directory and queue are left as they are: the description may have its own, and who uses them fills them in.
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
    """The sites for which there is a file."""
    names: set[str] = set()
    for directory in _DATA, user_dir():
        if os.path.isdir(directory):
            names.update(match[1] for match in map(_FILE.fullmatch, os.listdir(directory)) if match)
    return sorted(names)


def _read_site(site: str) -> dict[str, ResourceConfig]:
    """The definitions of a site by name; empty if there is no file for it."""
    merged: dict[str, Any] = {}
    paths = [os.path.join(directory, f'resource_{site}.json') for directory in (_DATA, user_dir())]
    paths = [path for path in paths if os.path.exists(path)]
    for path in paths:
        definitions = read_json(path)
        for name, values in definitions.items():
            _define(path, f'{site}.{name}', values)  # by itself, so that the error names the right file
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


def _choose_schema(config: ResourceConfig, schema: str | None) -> None:
    """Merges the access schema to the top level of the definition."""
    chosen = schema or config.default_schema or next(iter(config.schemas), '')
    if schema and schema not in config.schemas:
        known = ', '.join(config.schemas) or 'none'
        raise PlatformError(f'platform {config.label!r} has no access schema {schema!r}, only: {known}')
    if chosen:
        config.update({name: value for name, value in config.schemas[chosen].items() if value})
