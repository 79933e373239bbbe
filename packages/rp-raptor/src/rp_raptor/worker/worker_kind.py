"""Whether a worker's class is one for MPI, read from its source: the manager runs no code of users."""

from __future__ import annotations

import ast

from rp_api.errors import CoordinationError

_KNOWN = {'MPIWorker': True, 'DefaultWorker': False, 'Worker': False}


def needs_mpi(file: str, class_name: str) -> bool:
    """Whether the class, of this file if there is one, is MPIWorker or derived from it.

    A class that is derived from one of another module counts as one for MPI if the name of that ends like MPIWorker's.
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
    """The names of the bases of each class in the file."""
    try:
        with open(file, 'rb') as source:
            tree = ast.parse(source.read(), file)
    except (OSError, SyntaxError, ValueError) as error:
        raise CoordinationError(f'cannot read the worker file {file!r}: {error}') from error
    return {node.name: [ast.unparse(base).rpartition('.')[2] for base in node.bases]
            for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
