"""Moving the data of tasks and pilots: what directives say, where their URLs lead, and the operations on
files.

`directive` turns what users write into plain dicts, `location` turns URLs into paths, and `files` does what a
directive says with local files. Client and agent share all three; which of them acts is said by the
directive's action.
"""

from __future__ import annotations

from rp_api.staging.directive import Directive, describe, expand
from rp_api.staging.files import attempt, perform
from rp_api.staging.location import Sandboxes, acts_on_client, bases, resolve

__all__ = [
    'Directive', 'Sandboxes', 'acts_on_client', 'attempt', 'bases', 'describe', 'expand', 'perform',
    'resolve',
]
