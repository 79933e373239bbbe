"""Stands in for `flux.job`."""

from flux.future import Future as _Future


class Future(_Future):
    def get_event(self):
        return Event(self.get()['event'])


class Event(dict):
    name = property(lambda self: self['name'])
    context = property(lambda self: self['context'])


def submit_async(flux_handle, jobspec, urgency=16, waitable=False):
    return flux_handle.request(Future(), do='submit', jobspec=jobspec, urgency=urgency)


def submit_get_id(future):
    return future.get()['id']


def event_watch_async(flux_handle, jobid, eventlog='eventlog'):
    return flux_handle.request(Future(), do='watch', id=jobid)


def cancel_async(flux_handle, jobid, reason=None):
    return flux_handle.request(Future(), do='cancel', id=jobid)


def cancel(flux_handle, jobid, reason=None):
    return cancel_async(flux_handle, jobid, reason).get()
