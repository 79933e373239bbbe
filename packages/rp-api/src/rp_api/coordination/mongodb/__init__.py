"""The MongoDB backend, for sessions whose client and agents share only a database.

- `server`: connects to the database of a URL, with error texts that never contain a password
- `documents`: the stored data; `news`: application of agents' reports
- `worker`: threads for the blocking calls of pymongo
- `client`, `agent`, `connection`: the two connections of the contract, and their common part, with the notification of
  threads about changes; `presence`: processes of a session, and detection of lost ones
- `coordinator`: start, end and collections of a session; `admin`: operations on the sessions of a database, `records`:
  access to one for commands
"""

from rp_api.errors import CoordinationError

try:
    import pymongo as _pymongo  # noqa: F401
except ImportError as error:
    raise CoordinationError('sessions with a MongoDB need pymongo, which is not installed here: '
                            "pip install 'rp-api[mongodb]'") from error

from rp_api.coordination.mongodb.admin import places, purge, sessions
from rp_api.coordination.mongodb.agent import MongoAgentConnection
from rp_api.coordination.mongodb.client import MongoClientConnection
from rp_api.coordination.mongodb.coordinator import MongoCoordinator

__all__ = ['MongoAgentConnection', 'MongoClientConnection', 'MongoCoordinator', 'places', 'purge',
           'sessions']
