import os
import shutil
import subprocess

STARTED = {}


class Process:
    DEVNULL = -3

    def __init__(self, target, args=(), cwd='.', env=None, stdin=None, stdout=None, stderr=None, policy=None):
        if shutil.which(target) is None:
            raise AttributeError(f'Cannot find executable {target}')
        if policy is not None and policy.host_name != os.uname().nodename:
            raise RuntimeError(f'no node {policy.host_name}')
        own = {**(env or {}), 'DRAGON_INDEX': '0'}   # which the real one sets, too
        self._command, self._cwd, self._env, self._output = [target, *args], cwd, own, (stdout, stderr)

    def start(self):
        with open(self._output[0], 'ab') as out, open(self._output[1], 'ab') as err:
            self._process = subprocess.Popen(self._command, cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL,
                                             stdout=out, stderr=err)
        self.puid = self._process.pid
        STARTED[self.puid] = self._process

    def send_signal(self, sig):
        self._process.send_signal(sig)

    def kill(self):
        self._process.kill()
