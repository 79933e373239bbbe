"""Options for programs of OpenSSH that run without a terminal."""

from __future__ import annotations

OPTIONS = ('-oBatchMode=yes', '-oConnectTimeout=15', '-oStrictHostKeyChecking=accept-new', '-oLogLevel=ERROR',
           '-oServerAliveInterval=15', '-oServerAliveCountMax=4')
"""Never ask for a password, accept keys of new hosts, and end a minute after the host has fallen silent."""
