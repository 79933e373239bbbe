"""Relays: what some leaves of a tree (see `tree`) are for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from rp_api.loop.event_loop import Loop
from rp_api.transport.keys import LINGER, Gate, KeyPair
from rp_api.tree.parent_socket import Fan
from rp_api.tree.stream import Letter, encode


class Relay:
    """Lets other leaves connect, and passes letters on: up by `up(letters)`, down by `deliver`."""

    def __init__(self, loop: Loop, keys: KeyPair, context: zmq.Context[Any], address: str,
                 up: Callable[[list[Letter]], None]) -> None:
        self._up = up
        self._alive: dict[str, None] = {}
        self._gate = Gate(context, loop)
        self._gate.allow(keys.public)
        self._fan = Fan(loop, keys, self._gate, address, self._arrived, self._gone)

    @property
    def address(self) -> str:
        """Where others connect to."""
        return self._fan.address

    def deliver(self, name: str, message: bytes) -> None:
        """Pass a letter on to a leaf; it is lost if that is not here, which will make itself heard elsewhere."""
        self._fan.send(name, message)

    def again(self) -> None:
        """What was passed on may have been lost: have all leaves say hello."""
        for name in self._fan.everybody():
            self._fan.send(name, encode('again'))

    def beat(self) -> list[str]:
        """Give the leaves a sign of life; those that have given one since it was asked last."""
        self._fan.beat()
        alive, self._alive = self._alive, {}
        return list(alive)

    def close(self, linger: float = LINGER) -> None:
        """Serve no more."""
        self._fan.close(linger)
        self._gate.close()

    def _arrived(self, child: bytes, letters: list[Letter]) -> None:
        for name, message in letters:
            if self._fan.way(name) != child:
                self._fan.learn(name, child)
            if not message:
                self._alive[name] = None
        self._up([letter for letter in letters if letter[1]])

    def _gone(self, names: list[str]) -> None:
        self._up([(name, encode('gone')) for name in names])
