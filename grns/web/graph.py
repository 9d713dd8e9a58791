"""The picture of a workflow: its tasks in layers, each after those that it needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from grns.web.formatting import instant

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 190, 44, 60, 16, 8
_LONGEST_NAME = 22
# What a node of many tasks shows first.
_WORST = ("dead", "failed", "running", "retry_wait", "queued", "waiting", "cancelled", "succeeded")

Member = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A task, or many that need the same tasks and are needed by the same ones."""

    x: int
    y: int
    title: str
    status: str
    says: str
    path: str | None
    is_critical: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The picture, in pixels. `lines` are SVG paths, and whether they are on the critical path."""

    width: int
    height: int
    nodes: Sequence[Node]
    lines: Sequence[tuple[str, bool]]
    node_width: int = _WIDTH
    node_height: int = _HEIGHT


def draw(members: Sequence[Member], now: datetime) -> Graph | None:
    """Return the picture of some tasks; None if there are none."""
    if not members:
        return None
    needs = _needs(members)
    groups = _grouped(members, needs)
    group_of = {one["id"]: name for name, group in groups.items() for one in group}
    needed = {
        name: {group_of[need] for one in group for need in needs[one["id"]]} for name, group in groups.items()
    }
    layers = _layers(needed)
    critical = _critical(groups, needed, now)
    places = {}
    for x, layer in enumerate(layers):
        for y, name in enumerate(layer):
            places[name] = (_MARGIN + x * (_WIDTH + _ACROSS), _MARGIN + y * (_HEIGHT + _DOWN))
    nodes = [_node(group, *places[name], is_critical=name in critical) for name, group in groups.items()]
    steps = set(pairwise(critical))
    lines = [
        (_line(places[before], places[name]), (before, name) in steps)
        for name, befores in needed.items()
        for before in sorted(befores)
    ]
    lines.sort(key=lambda line: line[1])  # critical lines are drawn over the others
    highest = max(len(layer) for layer in layers)
    return Graph(
        2 * _MARGIN + len(layers) * (_WIDTH + _ACROSS) - _ACROSS,
        2 * _MARGIN + highest * (_HEIGHT + _DOWN) - _DOWN,
        nodes,
        lines,
    )


def _needs(members: Sequence[Member]) -> dict[str, list[str]]:
    """Return the ids of the tasks that each one needs, as far as they are among the members.

    A last task needs the workflow: it comes after the tasks that no other one needs, and so after all.
    """
    known = {one["id"] for one in members}
    needs = {one["id"]: [need for need in one["needs"] if need in known] for one in members}
    needed = {need for one in members if not one["is_last"] for need in needs[one["id"]]}
    ends = [one["id"] for one in members if not one["is_last"] and one["id"] not in needed]
    for one in members:
        own = needs[one["id"]]
        if one["is_last"] and (not own or len(own) < len(one["needs"])):
            own += [end for end in ends if end not in own]
    return needs


def _grouped(members: Sequence[Member], needs: Mapping[str, Sequence[str]]) -> dict[str, list[Member]]:
    """Return tasks of one type that need, and are needed by, the same ones, by the id of the first."""
    dependents = defaultdict(set)
    for task, befores in needs.items():
        for before in befores:
            dependents[before].add(task)
    alike: dict[Any, list[Member]] = {}
    for one in members:
        key = one["task_type"], one["is_last"], frozenset(needs[one["id"]]), frozenset(dependents[one["id"]])
        alike.setdefault(key, []).append(one)
    groups: dict[str, list[Member]] = {}
    for group in alike.values():
        # Two are told apart by their names.
        parts = [group] if len(group) > 2 else [[one] for one in group]
        groups |= {part[0]["id"]: part for part in parts}
    return groups


def _layers(needed: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the names by layers: each behind all that it needs, beside what it is connected with."""
    depth: dict[str, int] = {}
    while len(depth) < len(needed):
        ready = [name for name in needed if name not in depth and needed[name] <= depth.keys()]
        depth |= {name: max((depth[one] + 1 for one in needed[name]), default=0) for name in ready}
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in sorted(needed, key=lambda one: depth[one]):
        layers[depth[name]].append(name)
    places: dict[str, int] = {}

    def place(name: str) -> float:
        before = [places[one] for one in needed[name]]
        return sum(before) / len(before) if before else 0.0

    for layer in layers:
        layer.sort(key=place)
        places.update({name: y for y, name in enumerate(layer)})
    return layers


def _critical(
    groups: Mapping[str, Sequence[Member]], needed: Mapping[str, set[str]], now: datetime
) -> list[str]:
    """Return the names on the path that took longest, in order.

    Of paths that took equally long, it is the one on which most tasks have run, then the first one.
    """
    longest: dict[str, tuple[float, int]] = {}
    previous: dict[str, str | None] = {}
    while len(longest) < len(groups):
        for name, group in groups.items():
            if name in longest or not needed[name] <= longest.keys():
                continue
            befores = [one for one in groups if one in needed[name]]
            before = max(befores, key=lambda one: longest[one], default=None)
            seconds, count = longest[before] if before is not None else (0.0, 0)
            has_run = any(one["started_at"] is not None for one in group)
            longest[name] = seconds + max(_seconds(one, now) for one in group), count + has_run
            previous[name] = before
    at: str | None = max(longest, key=lambda one: longest[one])
    if at is None or not longest[at][1]:
        return []
    path = []
    while at is not None:
        path.append(at)
        at = previous[at]
    return path[::-1]


def _seconds(one: Member, now: datetime) -> float:
    started, finished = one["started_at"], one["finished_at"]
    if started is None:
        return 0.0
    return max(0.0, ((instant(finished) if finished else now) - instant(started)).total_seconds())


def _node(group: Sequence[Member], x: int, y: int, *, is_critical: bool) -> Node:
    counts = Counter(one["status"] for one in group)
    status = next((word for word in _WORST if counts[word]), "waiting")
    first = group[0]
    if len(group) == 1:
        return Node(x, y, _short(first["name"]), status, status.replace("_", " "), first["id"], is_critical)
    says = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.most_common(2))
    more = ", …" if len(counts) > 2 else ""
    title = _short(f"{first['task_type']} × {len(group)}")
    return Node(x, y, title, status, says + more, None, is_critical)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _line(before: tuple[int, int], after: tuple[int, int]) -> str:
    x, y = before[0] + _WIDTH, before[1] + _HEIGHT // 2
    to_x, to_y = after[0], after[1] + _HEIGHT // 2
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
