"""The MongoDB backend, for sessions whose client and agents share only a database.

- `server`: connects to the database of a URL, with error texts that never contain a password
- `documents`: the stored data; `names`: its collections; `news`, `fold`: application of agents' reports;
  `acknowledged`: the reports of which applications were notified
- `worker`: threads for the blocking calls of pymongo; `change_stream`: notification of these threads about changes
- `client`, `agent`, `connection`: the two connections of the contract, and their common part; `recovery`: data for a
  client that takes over; `presence`, `silence`: processes of a session, and detection of lost ones
- `coordinator`: start and end of a session; `admin`: operations on the sessions of a database
"""

from rp_api.errors import CoordinationError

try:
    import pymongo as _pymongo  # noqa: F401
except ImportError as error:
    raise CoordinationError('sessions with a MongoDB need pymongo, which is not installed here: '
                            "pip install 'rp-api[mongodb]'") from error

from rp_api.coordination.mongodb.admin import export, purge, sessions
from rp_api.coordination.mongodb.agent import MongoAgentConnection
from rp_api.coordination.mongodb.client import MongoClientConnection
from rp_api.coordination.mongodb.coordinator import MongoCoordinator

__all__ = ['MongoAgentConnection', 'MongoClientConnection', 'MongoCoordinator', 'export', 'purge', 'sessions']
