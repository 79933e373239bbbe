"""The protocol of channels between tasks: queues, and publish/subscribe.

A broker beside the agent serves the channels of a pilot. It writes their addresses and keys to `channels_file()` in the
pilot's sandbox, which only its owner can read: {name: {'in': access, 'out': access}}, each an
`rp_api.raptor_link.Access`. The environment of tasks has the addresses in `RP_<NAME>_IN` and `RP_<NAME>_OUT`. All
sockets are CURVE servers. Messages are packed by `rp_api.wire.codec`.

Queues (`in` is `out`, a ROUTER; tasks use DEALER). A request is a frame with the msgpack list [operation, number] and,
for `put`, a frame with the message; numbers count up. A request may be repeated after a while without an answer.

    put number, message    ok number: it is in the queue; full number: it is not, send it again after `room number`
    get number             message number, message: as soon as there is one
    got number             acknowledges it; there is no answer
    cancel number          cancelled number, or the answer to the request if that was faster
    bye number             the peer leaves: what it has not acknowledged goes to others; there is no answer

A peer ignores other operations (`probe`), and numbers of earlier requests.

Publish/subscribe. Publishers (PUSH to a PULL) send `DATA` + topic, and the message. Subscribers (SUB to an XPUB)
subscribe to `DATA` + the begin of topics. One that also subscribes to `HELLO` + a name of its own receives this as an
empty message when its subscriptions are in effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from rp_api.wire import form

DATA, HELLO = b'd', b'h'
"""The first byte of topics: of published messages, and of subscribers that wait for their subscriptions."""

TO_QUEUE: form.Table = dict.fromkeys(('put', 'get', 'got', 'cancel', 'bye'), (form.is_number,))
FROM_QUEUE: form.Table = dict.fromkeys(('ok', 'full', 'room', 'message', 'cancelled', 'probe'), (form.is_number,))


def is_queue(name: str) -> bool:
    """Return whether the channel of that name is a queue; the others are for publish/subscribe."""
    return name.endswith('_queue')


def channels_file(pilot_sandbox: str) -> str:
    """Return the path of the file with the addresses and keys of a pilot's channels."""
    return os.path.join(pilot_sandbox, 'app_comm.json')


def variables(addresses: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the environment variables for channels, from {name: {'in': address, 'out': address}}."""
    return {f'RP_{name}_{side}'.upper(): address for name, sides in addresses.items()
            for side, address in sides.items()}
