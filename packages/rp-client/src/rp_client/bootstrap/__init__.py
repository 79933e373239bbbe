"""The bootstrap of pilots: the files in a pilot's sandbox, and the command that starts its agent.

    bootstrap = prepare(config, platform, Client.here())
    # write bootstrap.files to the sandbox, run bootstrap.command there; when the job has ended:
    failure = read_failure(content of bootstrap_0.failed)
"""

from __future__ import annotations

from rp_client.bootstrap.failure import FAILED, Failure, read_failure
from rp_client.bootstrap.prepare import Bootstrap, Client, check, prepare

__all__ = ['FAILED', 'Bootstrap', 'Client', 'Failure', 'check', 'prepare', 'read_failure']
