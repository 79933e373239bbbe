"""Folding of several updates of one entity into one with the same effect, whatever the entity's state is."""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination.contract import Update


def fold(model: states.StateModel, updates: Iterable[Update]) -> dict[str, Update]:
    """Return one update for each uid."""
    folded: dict[str, Update] = {}
    for update in updates:
        known = folded.get(update.uid)
        if known is None:
            folded[update.uid] = update
        elif counts(model, known.state, update.state) or _says_again(model, known, update):
            # earlier information is kept if the later update has none
            folded[update.uid] = update if update.info else update._replace(info=known.info)
    return folded


def counts(model: states.StateModel, current: str, target: str) -> bool:
    """Return whether a transition changes the state of an entity."""
    if model.is_final(current):
        return (current, target) in model.corrections
    return model.value(target) > model.value(current)


def _says_again(model: states.StateModel, known: Update, update: Update) -> bool:
    """Return whether an update repeats a state with new information."""
    return known.state == update.state and update.state in model.repeated and bool(update.info)
