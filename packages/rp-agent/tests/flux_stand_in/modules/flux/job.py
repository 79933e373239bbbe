"""Stands in for `flux.job`."""


class Future:
    def __init__(self):
        self.answer = None
        self._callback = None

    def then(self, callback, *args):
        self._callback = callback, args
        return self

    def fulfil(self, answer):
        self.answer = answer
        callback, args = self._callback
        callback(self, *args)

    def get(self):
        if 'error' in self.answer:
            raise OSError(22, self.answer['error'])
        return self.answer

    def get_event(self):
        return Event(self.answer['event'])


class Event(dict):
    name = property(lambda self: self['name'])
    context = property(lambda self: self['context'])


def submit_async(flux_handle, jobspec, urgency=16, waitable=False):
    return flux_handle.request(Future(), do='submit', jobspec=jobspec)


def submit_get_id(future):
    return future.get()['id']


def event_watch_async(flux_handle, jobid, eventlog='eventlog'):
    return flux_handle.request(Future(), do='watch', id=jobid)


def cancel_async(flux_handle, jobid, reason=None):
    return flux_handle.request(Future(), do='cancel', id=jobid)
