"""The identities of tasks and calls, and the file in which a session notes those of its tasks.

The next application of the session stores the results of tasks under what their inputs were at submission, and
`rp cache explain` reads the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from rp_client.cache.files import Seen

NOTES = 'cache.identities'
"""Name of the file in a session's directory."""

PARTS = 'parts'
"""Name of the parts of an identity in the info of a result."""

DECIDES = 'cache=rp.Cache(key=...) decides what a result depends on'


class Identity(NamedTuple):
    """The identity of a task or call.

    Attributes:
        value: What its result is found by.
        state: Text that differs after a file that the identity covers was written, even with the same content.
        parts: The digests of all that it covers outside of the task or call, by what it is.
        by_key: Whether a key of the user stands for it.
        seen: What is looked at again; None for one that was noted.
    """

    value: bytes
    state: str
    parts: Mapping[str, str]
    by_key: bool
    seen: Seen | None = None

    @property
    def entries(self) -> int:
        """The number of files and directories that are looked at again."""
        return self.seen.entries if self.seen else 0

    @property
    def changed(self) -> str:
        """The change in all that it covers; empty if there is none."""
        return self.seen.changed() if self.seen else ''


def identity_of(value: bytes, seen: Seen, *, by_key: bool) -> Identity:
    """Return the identity with this digest, which covers what was seen."""
    return Identity(value, (value + seen.state).hex(), {what: part.hex() for what, part in seen.parts.items()}, by_key,
                    seen)


def note(directory: str, identities: Mapping[str, Identity], reasons: Mapping[str, str]) -> None:
    """Note the identities of tasks, and why others have none; without it, only what others learn of them is lost."""
    lines: list[dict[str, Any]] = [{'uid': uid, **found._asdict(), 'value': found.value.hex(), 'seen': None}
                                   for uid, found in identities.items()]
    lines += [{'uid': uid, 'reason': reason} for uid, reason in reasons.items()]
    with suppress(OSError), open(os.path.join(directory, NOTES), 'a') as notes:
        notes.write(''.join(f'{json.dumps(line)}\n' for line in lines))


def read(directory: str | os.PathLike[str]) -> tuple[dict[str, Identity], dict[str, str]]:
    """Return what was noted of tasks; a crash may have left the last line incomplete."""
    identities, reasons = {}, {}
    try:
        with open(os.path.join(directory, NOTES)) as notes:
            lines = [json.loads(line) for line in notes if line.endswith('\n')]
    except (OSError, ValueError):   # also of another version
        lines = []
    for line in lines:
        uid = line.pop('uid')
        if 'reason' in line:
            reasons[uid] = line['reason']
        else:
            identities[uid] = Identity(**{**line, 'value': bytes.fromhex(line['value'])})
    return identities, reasons
