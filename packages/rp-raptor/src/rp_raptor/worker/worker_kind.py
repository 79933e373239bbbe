"""Reads from its source if a worker's class uses MPI, as the manager does not run users' code."""

from __future__ import annotations

import ast

from rp_api.errors import CoordinationError

_KNOWN = {'MPIWorker': True, 'DefaultWorker': False, 'Worker': False}


def needs_mpi(file: str, class_name: str) -> bool:
    """Return whether the class, in this file if one is given, is MPIWorker or derived from it.

    A class derived from one of another module uses MPI if the name of that ends with MPIWorker.
    """
    bases = _bases(file) if file else {}
    seen: set[str] = set()
    while class_name in bases and class_name not in seen:
        seen.add(class_name)
        found = bases[class_name]
        if any(base not in bases and _is_mpi(base) for base in found):
            return True
        class_name = next((base for base in found if base in bases), found[0] if found else '')
    return _is_mpi(class_name)


def _is_mpi(name: str) -> bool:
    return _KNOWN.get(name, name.endswith('MPIWorker'))


def _bases(file: str) -> dict[str, list[str]]:
    """Return the names of the bases of each class in the file."""
    try:
        with open(file, 'rb') as source:
            tree = ast.parse(source.read(), file)
    except (OSError, SyntaxError, ValueError) as error:
        raise CoordinationError(f'cannot read the worker file {file!r}: {error}') from error
    return {node.name: [ast.unparse(base).rpartition('.')[2] for base in node.bases]
            for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
