"""The objects of a master: the registry joined to connections, and the files that the master itself holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from rp_api.errors import CoordinationError, sentence
from rp_api.loop.event_loop import Loop
from rp_api.system.shared_directory import place
from rp_raptor.objects.reference import ObjectRef, ObjectStore, Observer, own
from rp_raptor.objects.registry import Answers, Holder, Registry
from rp_raptor.objects.transfer import Download, ObjectServer

Send = Callable[[list[Any]], object]


class _Upload:
    """An object that comes from an application on another host, over one of its connections."""

    def __init__(self, download: Download, owner: str) -> None:
        self.download = download
        self.owner = owner


class MasterObjects(Answers, Observer):
    """Takes what applications and managers say about objects; for the loop's thread, except `put` and `dropped`.

    Peers are named by their uid, and messages to them are sent with what was registered by `came`.
    """

    def __init__(self, loop: Loop, uid: str, interface: str | None, base: str | None) -> None:
        self._loop = loop
        self._uid = uid
        self._interface, self._base = interface, base
        self._registry = Registry(uid, self)
        self._send: dict[str, Send] = {}
        self._uploads: dict[bytes, _Upload] = {}
        self._sources: dict[bytes, list[str]] = {}   # applications that can send an object
        self._paths: dict[bytes, str] = {}           # files that the master can send, its own and those of applications
        self._store = ObjectStore()
        self._context: zmq.Context[Any] | None = None
        self._server: ObjectServer | None = None

    def came(self, uid: str, send: Send) -> None:
        """Note a peer; it was not there before, or has reconnected."""
        self._send[uid] = send

    def left(self, uid: str) -> None:
        """Drop all that a peer owns, holds, wants or sends."""
        self._send.pop(uid, None)
        for id in self._registry.leave(uid):
            self._remove(id)
        for id, sources in list(self._sources.items()):
            if uid in sources:
                sources.remove(uid)
                self._resume(id, uid)

    def put(self, value: Any) -> ObjectRef:
        """Store an object of this process and return a reference; may be called in any thread."""
        owned = own(self._store, value, self._uid)
        owned.observers.add(self)
        self._loop.call_soon(self._put, owned.id, owned.size, owned.path)
        return ObjectRef(owned)

    def dropped(self, id: bytes) -> None:
        """Drop an object of this process; called in any thread."""
        self._loop.call_soon(self.drop, self._uid, id)

    def close(self) -> None:
        """Remove all files and close the listener."""
        for upload in self._uploads.values():
            upload.download.close()
        if self._server is not None:
            self._server.close()
        if self._context is not None:
            self._context.term()
        self._store.close()

    # applications

    def put_object(self, uid: str, id: bytes, size: int, there: str, path: str) -> None:
        """Take an object of an application, whose content has to be sent if its file cannot be mapped here."""
        self._registry.own(id, size, uid)
        if there == place() and os.access(path, os.R_OK):   # one on disk may be in another container
            self._registry.hold(id, Holder(uid, there, path))
            if id not in self._paths:
                self._hold(id, path)
        elif id not in self._paths:
            self._sources.setdefault(id, []).append(uid)
            if id not in self._uploads:
                self._upload(id, size, uid)
            return   # 'object_ready' is sent when all of it is here
        self._say(uid, ['object_ready', id, ''])

    def object_piece(self, uid: str, id: bytes, offset: int, data: bytes) -> None:
        """Take a piece of an object that an application sends."""
        upload = self._uploads.get(id)
        if upload is None or upload.owner != uid:
            return
        try:
            upload.download.take(offset, data)
        except (OSError, CoordinationError) as error:
            self._ready(id, f'{self._uid} cannot store it: {sentence(error)}')
            return
        if upload.download.done:
            self._hold(id, upload.download.path)
            self._ready(id, '')

    def drop(self, uid: str, id: bytes) -> None:
        """Take an owner from an object, which is dropped with the last one."""
        if self._registry.disown(id, uid):
            self._remove(id)

    # managers

    def want_object(self, uid: str, id: bytes, there: str, failed: Sequence[str], carried: bool) -> None:
        """Answer a manager that needs an object, now or later."""
        self._registry.want(id, uid, there, failed, carried=carried)

    def hold_object(self, uid: str, id: bytes, there: str, path: str, access: Mapping[str, Any]) -> None:
        """Note that a manager has got an object."""
        if not self._registry.hold(id, Holder(uid, there, path, lambda: access)):
            self.forget(uid, id)

    # answers of the registry

    def at(self, uid: str, id: bytes, size: int, holder: Holder, *, mapped: bool) -> None:
        """Tell a manager where it gets an object."""
        access = {} if mapped or holder.access is None else dict(holder.access())
        self._say(uid, ['object_at', id, size, holder.uid, holder.path if mapped else '', access])

    def carried(self, uid: str, id: bytes, size: int) -> None:
        """Tell a manager that it gets an object from the first one of its worker."""
        self._say(uid, ['object_at', id, size, '', '', {}])

    def lost(self, uid: str, id: bytes, reason: str) -> None:
        """Tell a manager that it cannot get an object."""
        self._say(uid, ['object_lost', id, reason])

    def forget(self, uid: str, id: bytes) -> None:
        """Tell a manager that an object is dropped."""
        self._say(uid, ['forget_object', id])

    # internals

    def _say(self, uid: str, message: list[Any]) -> None:
        send = self._send.get(uid)
        if send is not None:
            send(message)

    def _put(self, id: bytes, size: int, path: str) -> None:
        self._registry.own(id, size, self._uid)
        self._hold(id, path)

    def _hold(self, id: bytes, path: str) -> None:
        """Offer a file: managers of this host map it, the others get it from here."""
        self._paths[id] = path
        self._registry.hold(id, Holder(self._uid, place(), path, self._access))

    def _access(self) -> Mapping[str, Any]:
        """Return how other hosts connect, after a listener is open."""
        if self._server is None:
            self._context = zmq.Context()
            self._server = ObjectServer(self._loop, self._context, self._interface, self._base, self._paths.get)
        return self._server.access.as_dict()

    def _upload(self, id: bytes, size: int, uid: str) -> None:
        try:
            download = Download(self._store.path_for(size), size)
        except OSError as error:
            self._say(uid, ['object_ready', id, f'{self._uid} cannot store it: {error}'])
            return
        self._uploads[id] = _Upload(download, uid)
        self._ask(id)

    def _ask(self, id: bytes) -> None:
        """Request the content of an object from the application that sends it."""
        upload = self._uploads[id]
        upload.download.start(lambda offset, length: self._say(upload.owner, ['get_object', id, offset, length]))

    def _resume(self, id: bytes, lost: str) -> None:
        """Get the remainder of an object from another connection of its application."""
        upload = self._uploads.get(id)
        if upload is not None and upload.owner == lost and self._sources[id]:
            upload.owner = self._sources[id][0]
            self._ask(id)

    def _ready(self, id: bytes, fault: str) -> None:
        """End an upload."""
        upload = self._uploads.pop(id)
        upload.download.close()
        if fault:
            self._store.discard(upload.download.path)
        for uid in self._sources.pop(id, []):
            self._say(uid, ['object_ready', id, fault])

    def _remove(self, id: bytes) -> None:
        """Remove the file of a dropped object, unless it is an application's."""
        self._sources.pop(id, None)
        upload = self._uploads.pop(id, None)
        path = self._paths.pop(id, None)
        if upload is not None:
            upload.download.close()
            path = upload.download.path
        if path is not None and self._store.has(path):
            self._store.discard(path)
