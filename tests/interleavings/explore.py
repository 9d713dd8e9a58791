"""Look at every state that a model can reach, and at every way it goes on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.interleavings.row import Violation

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class Model(Generic[State]):
    """What may happen in a state: steps in order, and faults. Each is a sentence and the state after it.

    `distance` is a number that each step without a fault makes smaller: there is no endless loop.
    """

    steps: Callable[[State], Iterable[tuple[str, State]]]
    faults: Callable[[State], Iterable[tuple[str, State]]]
    distance: Callable[[State], int]
    is_at_rest: Callable[[State], bool]


@dataclass
class Exploration(Generic[State]):
    """How much was seen."""

    worlds: int = 0
    steps: int = 0
    ends: int = 0
    deepest: int = 0
    parents: dict[State, State | None] = field(default_factory=dict, repr=False)


def explore(
    start: State, model: Model[State], tell: Callable[[Exploration[State]], None] | None = None
) -> Exploration[State]:
    """Visit all states, nearest first.

    Raises:
        Violation: the first state that is wrong, with the way there.
    """
    seen = Exploration[State](parents={start: None})
    layer = [start]
    while layer:
        layer = [after for state in layer for after in _visit(state, model, seen)]
        seen.deepest += 1
        if tell is not None:
            tell(seen)
    seen.worlds = len(seen.parents)
    return seen


def find(start: State, model: Model[State]) -> list[str]:
    """Return what is violated, by which steps, and the state then; nothing where nothing is found."""
    try:
        explore(start, model)
    except Violation as error:
        return str(error).splitlines()
    return []


def _visit(state: State, model: Model[State], seen: Exploration[State]) -> list[State]:
    """Go all ways from a state; return the states that were not seen before."""
    fresh = []
    try:
        ways = [after for _, after in model.steps(state)]
        _check(state, model, ways)
        seen.ends += not ways
        ways += [after for _, after in model.faults(state)]
    except Violation as error:
        raise Violation("\n  ".join([str(error), *_way_to(state, model, seen)])) from error
    for after in ways:
        if after not in seen.parents:
            seen.parents[after] = state
            fresh.append(after)
    seen.steps += len(ways)
    return fresh


def _check(state: State, model: Model[State], ways: list[State]) -> None:
    if not ways:
        if not model.is_at_rest(state):
            raise Violation("nothing more will happen, and not all is done")
        return
    far = model.distance(state)
    if any(model.distance(after) >= far for after in ways):
        raise Violation("a step leads no nearer to the end: it could go on for ever")


def _way_to(state: State, model: Model[State], seen: Exploration[State]) -> list[str]:
    """Return what happened until this state was reached, and the state."""
    said = [str(state)]
    parent = seen.parents[state]
    while parent is not None:
        ways = (*model.steps(parent), *model.faults(parent))
        said.append(next(label for label, after in ways if after == state))
        state, parent = parent, seen.parents[parent]
    return said[::-1]
