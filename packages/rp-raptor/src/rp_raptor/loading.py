"""The classes of masters and workers that are named by a file and a class."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import TypeVar

import cloudpickle  # type: ignore[import-untyped]

from rp_api.errors import DescriptionError

Kind = TypeVar('Kind')


def load_class(file: str, name: str, base: type[Kind]) -> type[Kind]:
    """The class of that name in a Python file, or in the module of `base` if no file is named.

    The file can import what lies beside it. DescriptionError if there is no such file or class, or if the class is not
    derived from `base`; whatever else the file raises.
    """
    module = _load(file) if file else sys.modules[base.__module__]
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, base):
        what = 'no class' if found is None else f'no class derived from {base.__name__}, but'
        raise DescriptionError(f'raptor_class {name!r}: {file or base.__module__} has {what} {name}')
    return found


def _load(file: str) -> ModuleType:
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise DescriptionError(f'raptor_file {file!r}: there is no such file (looked for in {os.getcwd()})')
    directory, base = os.path.split(path)
    name = os.path.splitext(base)[0]
    if name in sys.modules:   # a file called after a module that is in use must not take its place
        name = f'raptor_file_{name}'
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DescriptionError(f'raptor_file {file!r} is no Python file: its name has to end with .py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, directory)
    spec.loader.exec_module(module)
    # others cannot import this module, so that its functions travel by value
    cloudpickle.register_pickle_by_value(module)
    return module
