"""Of several updates of one entity, the one that has the same effect as all of them, whatever its state is."""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination.contract import Update


def fold(model: states.StateModel, updates: Iterable[Update]) -> dict[str, Update]:
    """One update for each uid."""
    folded: dict[str, Update] = {}
    for update in updates:
        known = folded.get(update.uid)
        if known is None:
            folded[update.uid] = update
        elif counts(model, known.state, update.state) or _says_again(model, known, update):
            # what was known before stays known if the later one brings nothing
            folded[update.uid] = update if update.info else update._replace(info=known.info)
    return folded


def counts(model: states.StateModel, current: str, target: str) -> bool:
    """Whether an entity in one state moves to another one when it is told to."""
    if model.is_final(current):
        return (current, target) in model.corrections
    return model.value(target) > model.value(current)


def _says_again(model: states.StateModel, known: Update, update: Update) -> bool:
    """Whether an active pilot says again what it has."""
    return model is states.PILOT and known.state == update.state and bool(update.info)
