"""Stands in for `flux.job`."""

from __future__ import annotations

from typing import Any, cast

from flux import Flux
from flux.future import Future as _Future


class Future(_Future):
    def get_event(self) -> Event:
        return Event(self.get()['event'])


class Event(dict[str, Any]):
    @property
    def name(self) -> str:
        return cast(str, self['name'])

    @property
    def context(self) -> dict[str, Any]:
        return cast('dict[str, Any]', self['context'])


def submit_async(flux_handle: Flux, jobspec: str, urgency: int = 16, waitable: bool = False) -> Future:
    return flux_handle.request(Future(), do='submit', jobspec=jobspec, urgency=urgency)


def submit_get_id(future: Future) -> int:
    return cast(int, future.get()['id'])


def event_watch_async(flux_handle: Flux, jobid: int, eventlog: str = 'eventlog') -> Future:
    return flux_handle.request(Future(), do='watch', id=jobid)


def cancel_async(flux_handle: Flux, jobid: int, reason: str | None = None) -> Future:
    return flux_handle.request(Future(), do='cancel', id=jobid)


def cancel(flux_handle: Flux, jobid: int, reason: str | None = None) -> dict[str, Any]:
    return cancel_async(flux_handle, jobid, reason).get()
