"""The bootstrap of pilots: the files in a pilot's sandbox, and the command that starts its agent.

`prepare(config, platform, Client.here())` gives the files for the sandbox and the command to run there. When the job
has ended, `read_failure` reads the content of `bootstrap_0.failed`.
"""

from __future__ import annotations

from rp_client.bootstrap.prepare import FAILED, Bootstrap, Client, Failure, check, prepare, read_failure

__all__ = ['FAILED', 'Bootstrap', 'Client', 'Failure', 'check', 'prepare', 'read_failure']
