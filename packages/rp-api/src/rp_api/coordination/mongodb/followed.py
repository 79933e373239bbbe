"""The tasks that an agent follows, looked for in the database from the watcher's thread.

An attached client applies the reports of agents to the documents of tasks. Without one, the reports stay as news, which
are read here.
"""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination import outcome
from rp_api.coordination.contract import LEFT_AGENT, Update
from rp_api.coordination.mongodb import documents
from rp_api.coordination.mongodb.server import Collection, Document

_News = dict[str, list[tuple[str, Update]]]

MAX_TASKS_PER_LOOK = 4096
"""Tasks that are looked for at a time."""


class Followed:
    """The followed tasks of one agent."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._uids: dict[str, None] = {}   # written in the loop and here; those that were looked for longest ago first
        self._read: set[str] = set()       # news that have nothing on these tasks
        self.unattended = False
        """True if there is no client that applies news and submits tasks."""

    def __bool__(self) -> bool:
        return bool(self._uids)

    def add(self, uids: Iterable[str]) -> None:
        """Look for these tasks, too."""
        self._uids.update(dict.fromkeys(uids))
        self._read = set()

    def look(self) -> list[Update]:
        """Return the outcomes of followed tasks, each once."""
        if not self._uids:
            return []
        news = self._in_news() if self.unattended else {}
        wanted = list(self._uids)[:MAX_TASKS_PER_LOOK]
        known = {task['_id']: task for task in self._collection.find(
            {'_id': {'$in': [*wanted, *news]}, 'type': 'task'}, {'state': 1, 'pilot': 1, 'info': 1, 'value': 1})}
        found = [end for uid in {*wanted, *news} if (end := self._outcome(uid, known.get(uid), news)) is not None]
        for uid in wanted:
            self._uids[uid] = self._uids.pop(uid)   # behind the others
        for update in found:
            self._uids.pop(update.uid, None)
        return found

    def _in_news(self) -> _News:
        """Return the ends of followed tasks that agents have reported, with the pilots of these agents."""
        found: _News = {}
        read = self._read   # `add` replaces it
        for news in self._collection.find({**documents.unread(read), 'kind': 'tasks'}):
            ends = [update for update in documents.unpacked_updates(news['updates'])
                    if update.uid in self._uids and states.TASK.value(update.state) >= LEFT_AGENT]
            for update in ends:
                found.setdefault(update.uid, []).append((news['pilot'], update))
            if not ends:
                read.add(news['_id'])
        return found

    def _outcome(self, uid: str, task: Document | None, news: _News) -> Update | None:
        if task is None:
            return outcome.lost(uid) if self.unattended else None
        if task['value'] >= LEFT_AGENT:
            return outcome.outcome(uid, task['state'], task['pilot'], documents.known_info(task))
        for pilot, update in news.get(uid, ()):
            if pilot == task['pilot']:
                return outcome.outcome(uid, update.state, pilot, update.info)
        return None
