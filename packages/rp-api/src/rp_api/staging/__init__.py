"""Staging of data for tasks and pilots: directives, locations, protocols, and file operations.

`directive` expands user input to plain dicts, `location` resolves URLs to paths, `run` performs the directives, and
`files` operates on local files. Client and agent share all four; the action of a directive determines which of them
performs it.
"""

from __future__ import annotations

from rp_api.staging.directive import Directive, describe, expand
from rp_api.staging.location import Sandboxes, acts_on_client, bases, resolve
from rp_api.staging.run import attempt, perform

__all__ = [
    'Directive', 'Sandboxes', 'acts_on_client', 'attempt', 'bases', 'describe', 'expand', 'perform',
    'resolve',
]
