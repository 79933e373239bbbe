"""Stands in for `flux.future`."""


class Future:
    def __init__(self):
        self.handle = None
        self.answer = None
        self._callback = None

    def then(self, callback, *args):
        self._callback = callback, args
        return self

    def fulfil(self, answer):
        self.answer = answer
        if self._callback is not None:
            callback, args = self._callback
            callback(self, *args)

    def get(self):
        while self.answer is None:
            self.handle.receive()
        if 'error' in self.answer:
            raise OSError(22, self.answer['error'])
        return self.answer
