"""Stands in for `flux.future`."""

from collections import deque


class Future:
    def __init__(self):
        self.handle = None
        self._answers = deque()
        self._callback = None

    def then(self, callback, *args):
        self._callback = callback, args
        return self

    def fulfil(self, answer):
        if self._callback is None:
            self._answers.append(answer)
        else:
            self._answers = deque([answer])
            callback, args = self._callback
            callback(self, *args)

    def get(self):
        while not self._answers:
            self.handle.receive()
        if 'error' in self._answers[0]:
            raise OSError(22, self._answers[0]['error'])
        return self._answers[0]

    def reset(self):
        self._answers.popleft()
