"""The platform definitions of a session: those of files, and those that its application adds, which take precedence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api.errors import DescriptionError, attribute_type_error
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import choose_schema, get_platform, get_resource_configs, list_platforms, read_json
from rp_api.record import plain


class PlatformRegistry:
    """Definitions by label. All definitions that it takes or returns are copies."""

    def __init__(self) -> None:
        self._added: dict[str, ResourceConfig] = {}

    def add(self, config: ResourceConfig | Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Add or replace a definition, or all definitions of a file; see `Session.add_resource_config`."""
        found = _read(os.fspath(config)) if isinstance(config, str | os.PathLike) else [_verified(config)]
        self._added.update((each.label, each) for each in found)

    def get(self, label: str, schema: str | None = None) -> ResourceConfig:
        """Return the definition of a platform; see `Session.get_resource_config`."""
        added = self._added.get(label)
        if added is None:
            return get_platform(label, schema)
        config = ResourceConfig(added.as_dict())
        if schema or not config.job_manager_endpoint:   # else the application has chosen the endpoints
            choose_schema(config, schema)
        return config

    def labels(self) -> list[str]:
        """Return the labels of all platforms in service, sorted."""
        known = set(list_platforms()).difference(self._added)
        return sorted(known.union(label for label, config in self._added.items() if not config.retired))

    def configs(self) -> dict[str, dict[str, ResourceConfig]]:
        """Return all definitions by site and name; the site of a label without a dot is empty."""
        found = get_resource_configs()
        for label in self._added:
            site, _, name = label.partition('.') if '.' in label else ('', '', label)
            found.setdefault(site, {})[name] = self.get(label)
        return found


def _read(path: str) -> list[ResourceConfig]:
    """Return the definitions of a file."""
    site = os.path.basename(path).removeprefix('resource_').removesuffix('.json')
    found = []
    for name, values in read_json(path).items():
        try:
            found.append(_verified(values, f'{site}.{name}'))
        except DescriptionError as error:
            raise DescriptionError(f'{path}: {error}') from error
    return found


def _verified(values: Any, label: str = '') -> ResourceConfig:
    """Return a verified copy of a definition, with a label if it needs one."""
    if not isinstance(values, Mapping):
        raise attribute_type_error(f'{label or "a platform definition"} must be a ResourceConfig or a dict, or all '
                                   f'definitions the path of a JSON file, not {values!r}')
    label = label or values.get('label') or ''
    if not label:
        raise DescriptionError('ResourceConfig.label is not set, but it is needed: pilots name it as their resource')
    try:
        config = ResourceConfig(plain(dict(values)) | {'label': label})
        config.verify()
    except DescriptionError as error:
        raise DescriptionError(f'{label}: {error}') from error
    return config
