"""Connections to a MongoDB from its URL.

The URL may contain a password: messages show only the result of `masked` or `address`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import pymongo
from pymongo.errors import ConfigurationError, ConnectionFailure, ExecutionTimeout, OperationFailure, PyMongoError

from rp_api.errors import CoordinationError

Document = dict[str, Any]
Client = pymongo.MongoClient[Document]
Collection = pymongo.collection.Collection[Document]

DATABASE = 'radical_pilot'
"""The database if the URL contains none."""

DEFAULTS: dict[str, Any] = {'serverSelectionTimeoutMS': 3000, 'connectTimeoutMS': 5000, 'heartbeatFrequencyMS': 5000,
                            'w': 'majority', 'journal': True, 'appname': 'radical.pilot'}
"""Default options of connections. Failed operations are repeated, so the timeouts can be short."""

NO_PERMISSION = frozenset({13, 18, 8000})
"""Codes of errors that require an administrator."""

HOPELESS = frozenset({2, 9, 14, 40, 59, 72, 73, 10334})
"""Codes of errors that a repetition does not resolve."""


def open_client(url: str) -> Client:
    """Return a client for the servers in the URL, without waiting for them; raise `CoordinationError` for a bad URL."""
    given = {name.lower() for name, _ in parse_qsl(url.partition('?')[2], keep_blank_values=True)}
    options = {name: value for name, value in DEFAULTS.items() if name.lower() not in given}
    try:
        return pymongo.MongoClient(url, **options)
    except (PyMongoError, ValueError, TypeError) as error:
        raise CoordinationError(f'{masked(url)} is not the URL of a MongoDB: {without_secrets(str(error), url)}; it '
                                'looks like mongodb://user:password@host:port/database?options') from None


def database_name(client: Client) -> str:
    """Return the name of the database in the URL of a client."""
    return client.get_default_database(DATABASE).name


def masked(url: str) -> str:
    """Return the URL without its password, and without options, which may contain secrets as well."""
    return re.sub(r'//([^/@]*?):[^/]*@', r'//\1:***@', url.partition('?')[0])


def address(url: str) -> str:
    """Return scheme, hosts and database of a URL."""
    return re.sub(r'//[^/]*@', '//', url.partition('?')[0])


def without_secrets(text: str, url: str) -> str:
    """Return the text without the password of the URL and the values of its options."""
    secrets = {value for _, value in parse_qsl(url.partition('?')[2]) if len(value) > 3}
    found = re.search(r'//[^/@]*?:([^/]*)@', url)
    if found:
        secrets.add(found.group(1))
    for secret in secrets:
        text = text.replace(secret, '***')
    return text


@contextmanager
def reasons(url: str) -> Iterator[None]:
    """Convert errors of the server to `CoordinationError` with its address and the reason."""
    try:
        yield
    except PyMongoError as error:
        why = without_secrets(brief(error), url)
        raise CoordinationError(f'the MongoDB at {address(url)} cannot be used: {why}') from None


def brief(error: PyMongoError) -> str:
    """Return the error text as one line."""
    if isinstance(error, OperationFailure):
        return f'{error.details.get("errmsg", error) if error.details else error} (code {error.code})'
    # pymongo appends the state of all servers, which repeats the error
    return str(error).partition(', Timeout:')[0].partition(' (configured timeouts')[0]


def passes(error: PyMongoError) -> bool:
    """Return whether the cause may pass: the server is unreachable, elects a new primary, or has no space left."""
    if isinstance(error, ConfigurationError):
        return False
    if isinstance(error, (ConnectionFailure, ExecutionTimeout)):
        return True
    return isinstance(error, OperationFailure) and error.code not in NO_PERMISSION | HOPELESS
