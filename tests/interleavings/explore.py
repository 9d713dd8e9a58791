"""Looks at every world that can come to be, and at every way it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.interleavings.row import Violation
from tests.interleavings.world import Rules, World, distance, faults, is_at_rest, steps


@dataclass
class Exploration:
    """How much was seen."""

    worlds: int = 0
    steps: int = 0
    ends: int = 0
    deepest: int = 0
    parents: dict[World, World | None] = field(default_factory=dict, repr=False)


def explore(start: World, rules: Rules, tell: Callable[[Exploration], None] | None = None) -> Exploration:
    """Visit all worlds, nearest first; raise `Violation`, with the way there, at the first that is wrong."""
    seen = Exploration(parents={start: None})
    layer = [start]
    while layer:
        layer = [after for world in layer for after in _visit(world, rules, seen)]
        seen.deepest += 1
        if tell is not None:
            tell(seen)
    seen.worlds = len(seen.parents)
    return seen


def _visit(world: World, rules: Rules, seen: Exploration) -> list[World]:
    """Go all ways from a world; return those that nobody has been to."""
    fresh = []
    try:
        ways = [after for _, after in steps(world, rules)]
        _check(world, ways)
        seen.ends += not ways
        ways += [after for _, after in faults(world, rules)]
    except Violation as error:
        raise Violation("\n  ".join([str(error), *way_to(world, rules, seen)])) from error
    for after in ways:
        if after not in seen.parents:
            seen.parents[after] = world
            fresh.append(after)
    seen.steps += len(ways)
    return fresh


def _check(world: World, ways: list[World]) -> None:
    if not ways:
        if not is_at_rest(world):
            raise Violation("nothing more will happen, and not all is done")
        return
    far = distance(world)
    if any(distance(after) >= far for after in ways):
        raise Violation("a step leads no nearer to the end: it could go on for ever")


def way_to(world: World, rules: Rules, seen: Exploration) -> list[str]:
    """Say what happened until this world came to be, and what it looks like."""
    said = [str(world)]
    parent = seen.parents[world]
    while parent is not None:
        ways = (*steps(parent, rules), *faults(parent, rules))
        said.append(next(label for label, after in ways if after == world))
        world, parent = parent, seen.parents[parent]
    return said[::-1]
