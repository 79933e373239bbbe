"""Loads the classes of masters and workers from the files that descriptions name."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import TypeVar

import cloudpickle

from rp_api.errors import DescriptionError

Kind = TypeVar('Kind')


def load_class(file: str, name: str, base: type[Kind]) -> type[Kind]:
    """Return the class of that name in a Python file, or in the module of `base` if no file is given.

    The file can import its neighbours. DescriptionError if there is no such file or class, or if the class is not
    derived from `base`; errors of the file itself are raised as they are.
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
    if name in sys.modules:   # the file must not replace a module that is in use
        name = f'raptor_file_{name}'
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DescriptionError(f'raptor_file {file!r} is no Python file: its name has to end with .py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, directory)
    spec.loader.exec_module(module)
    # other processes cannot import this module, so its functions are pickled by value
    cloudpickle.register_pickle_by_value(module)
    return module
