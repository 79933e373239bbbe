"""The MongoDB backend, for sessions whose client and agents share only a database.

- `server`: from a URL to a database, with errors that say what is wrong and never show a password
- `documents`: what is stored; `names`: in which collections; `news`, `fold`: how what agents report is applied;
  `acknowledged`: what applications were told of that
- `worker`: the threads in which pymongo, which blocks, is used; `stream`: how they learn that there is something new
- `client`, `agent`, `connection`: the two connections of the contract, and what they share; `recovery`: what a client
  that takes over gets; `presence`, `silence`: who is there, and who has not been heard of for too long
- `coordinator`: what a client needs before and after that; `admin`: what can be done with the sessions of a database
"""

from rp_api.errors import CoordinationError

try:
    import pymongo as _pymongo  # noqa: F401
except ImportError as error:
    raise CoordinationError('sessions with a MongoDB need pymongo, which is not installed here: '
                            "pip install 'rp-api[mongodb]'") from error

from rp_api.coordination.mongodb.admin import export, purge, sessions
from rp_api.coordination.mongodb.agent import MongoAgentConnection, agent_connection
from rp_api.coordination.mongodb.client import MongoClientConnection
from rp_api.coordination.mongodb.coordinator import MongoCoordinator

__all__ = ['MongoAgentConnection', 'MongoClientConnection', 'MongoCoordinator', 'agent_connection', 'export', 'purge',
           'sessions']
