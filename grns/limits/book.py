"""Which tasks may be queued next, as their limits allow. No I/O, no clock.

A task falls under keys: `openai` of a limit without keys, `tenant:acme` of one with. Tasks with the same keys
stand in one line, by priority and age. A line whose first task finds no room is put aside under the key that
has none, and costs nothing until that key has room again: however long a line is, it delays no other one.
Lines take turns, so that each key has its share of what several have in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf, prod
from typing import Literal

from grns.limits.key import Key, LimitRule, Tokens

Keys = tuple[str, ...]
Place = tuple[str, str]  # workspace, and name of a limit or a key
Standing = Literal["waiting", "queued", "running"]
HEADS = 200  # how many tasks of a line are read at once
_UNREAD = (-1, "")  # before any task


@dataclass(slots=True, eq=False)
class _Line:
    """Tasks with the same keys that wait. Postgres has all of them, the line the first ones."""

    workspace: str
    keys: Keys
    served: float = 0.0
    is_open: bool = False
    aside: Place | None = None  # the key that has no room
    urgency: int = 0  # priority by which it was put aside
    heads: list[tuple[int, str]] = field(default_factory=list)
    last: tuple[int, str] | None = None  # behind it, Postgres may have more

    @property
    def places(self) -> Iterator[Place]:
        return ((self.workspace, key) for key in self.keys)


@dataclass(slots=True)
class _Known:
    line: _Line
    standing: Standing
    priority: int


@dataclass(slots=True)
class AdmissionBook:
    """All tasks that take room, and the first of those that wait for it.

    The admitter tells it of each task as Postgres has it, asks for tasks to queue, and makes a new one each
    time it may be wrong. `now` is the database's time in seconds.
    """

    now: float
    rules: Mapping[Place, LimitRule] = field(default_factory=dict)
    tokens: dict[Place, Tokens] = field(default_factory=dict)
    _tasks: dict[str, _Known] = field(default_factory=dict)
    _keys: dict[Place, Key] = field(default_factory=dict)
    _lines: dict[tuple[str, Keys], _Line] = field(default_factory=dict)
    _open: list[tuple[int, float, int, _Line]] = field(default_factory=list)
    _unread: dict[tuple[str, Keys], _Line] = field(default_factory=dict)
    _freed: set[Place] = field(default_factory=set)
    _aside: dict[Place, list[tuple[int, float, int, _Line]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _timers: list[tuple[float, Place]] = field(default_factory=list)
    _served: float = 0.0
    _order: Iterator[int] = field(default_factory=count)

    # ------------------------------------------------------------ how it is

    @property
    def is_empty(self) -> bool:
        """Whether no task waits for room or takes any."""
        return not self._tasks and all(line.last is None for line in self._lines.values())

    @property
    def standings(self) -> dict[Standing, int]:
        """How many tasks are known to wait, are queued, and run."""
        counts: dict[Standing, int] = {"waiting": 0, "queued": 0, "running": 0}
        for known in self._tasks.values():
            counts[known.standing] += 1
        return counts

    def set_rules(self, rules: Mapping[Place, LimitRule]) -> None:
        """Set the limits, by workspace and name, and by key where one has numbers of its own.

        A key without a limit has room for any number.
        """
        self.rules = rules
        for place, key in self._keys.items():
            key.change_rule(self._rule(place), self.now)
        self._freed.update(self._keys)

    def note(
        self,
        task_id: str,
        workspace: str,
        keys: Keys,
        priority: int,
        standing: Standing | None,
        *,
        has_begun: bool = False,
    ) -> None:
        """Note how a task is now; None: it neither waits for room nor takes any.

        What was queued and takes no room any more has begun meanwhile, or never, as when it was cancelled.
        """
        known = self._tasks.get(task_id)
        before = None if known is None else known.standing
        if before == standing and (known is None or known.priority == priority):
            return
        line = known.line if known is not None else self._line(workspace, keys)
        self._change(line, before, standing)
        if before == "queued" and standing in (None, "waiting") and not has_begun:
            self._spend(line, -1)
        if standing is None:
            self._tasks.pop(task_id, None)
        elif standing != "waiting":
            self._tasks[task_id] = _Known(line, standing, priority)
        elif line.last is not None and (priority, task_id) > line.last:
            self._tasks.pop(task_id, None)  # it is read in its turn
        else:
            self._tasks[task_id] = _Known(line, standing, priority)
            heappush(line.heads, (priority, task_id))
            if len(line.heads) > 2 * HEADS:
                self._trim(line)
            self._reopen(line, priority)

    def note_line(self, workspace: str, keys: Keys) -> None:
        """Note that tasks with these keys wait, of which none is known."""
        line = self._line(workspace, keys)
        line.last = _UNREAD
        self._reopen(line, 0)

    def note_heads(
        self, workspace: str, keys: Keys, heads: Sequence[tuple[int, str]], *, but: Container[str] = ()
    ) -> None:
        """Note the first tasks of a line, by priority and id, without some of them.

        If they are fewer than `HEADS`, there are no more.
        """
        line = self._line(workspace, keys)
        self._unread.pop((workspace, keys), None)
        line.last = heads[-1] if len(heads) >= HEADS else None
        for priority, task_id in heads:
            if task_id not in self._tasks and task_id not in but:
                heappush(line.heads, (priority, task_id))
                self._tasks[task_id] = _Known(line, "waiting", priority)
        if heads:
            self._reopen(line, heads[0][0])
        else:
            self._end_turn(line)

    def note_repeat(self, task_id: str) -> None:
        """Note that an attempt is repeated though its task was not admitted again, as after a lost lease."""
        if (known := self._tasks.get(task_id)) is not None:
            self._spend(known.line, 1)

    # ------------------------------------------------------------ what is next

    @property
    def has_work(self) -> bool:
        """Whether there is something to read or to admit now."""
        self._call_aside()
        return bool(self._unread) or any(line.is_open for *_, line in self._open)

    @property
    def opens_at(self) -> float:
        """When time alone gives room to tasks that wait; `inf` if it does not."""
        return self._timers[0][0] if self._timers else inf

    def unread(self, most: int) -> list[tuple[str, Keys]]:
        """Return lines whose next tasks must be read before they have their turn."""
        return list(self._unread)[:most]

    def admit(self, most: int) -> list[str]:
        """Return tasks to queue now, and count them as queued."""
        admitted: list[str] = []
        while len(admitted) < most and (line := self._next_line()) is not None:
            head = self._head(line)
            if head is None:
                self._end_turn(line)
                continue
            full = next((place for place in line.places if self._key(place).room(self.now) < 1), None)
            if full is not None:
                self._set_aside(line, full, head[0])
                continue
            heappop(line.heads)
            admitted.append(head[1])
            self._tasks[head[1]].standing = "queued"
            for place in line.places:
                self._key(place).change(1, 1, self.now)
            self._spend(line, 1)
            self._served = max(self._served, line.served)
            line.served += 1 / self._weight(line)
            following = self._head(line)
            if following is None:
                self._end_turn(line)
            else:
                self._push(line, following[0])
        return admitted

    def take_back(self, task_ids: Sequence[str]) -> None:
        """Forget the admission of tasks that could not be queued, and the tasks: they must be read again."""
        for task_id in task_ids:
            known = self._tasks[task_id]
            self.note(task_id, known.line.workspace, known.line.keys, known.priority, None)

    def tokens_of(self, task_ids: Sequence[str]) -> dict[Place, Tokens]:
        """Return what is left of each key with a rate under which these tasks fall."""
        places = {place for task_id in task_ids for place in self._tasks[task_id].line.places}
        return {
            place: Tokens(key.tokens, key.filled_at)
            for place, key in ((place, self._key(place)) for place in places)
            if key.has_rate
        }

    def forget_idle(self) -> list[Place]:
        """Forget lines and keys that nothing uses; return the keys. A task that needs one finds it full."""
        used = {id(known.line) for known in self._tasks.values()}
        for name, line in list(self._lines.items()):
            if line.last is None and id(line) not in used:
                if line.is_open:  # others may have the room that it was called for
                    self._freed.update(line.places)
                line.is_open, line.aside = False, None
                del self._lines[name]
            elif len(line.heads) > HEADS:
                self._trim(line)
        for place, left in list(self.tokens.items()):
            if self._is_full(Key(self._rule(place), left.at, left.number)):
                del self.tokens[place]
        needed = {place for line in self._lines.values() for place in line.places}
        idle = [place for place, key in self._keys.items() if place not in needed and self._is_full(key)]
        for place in idle:
            del self._keys[place]
            self._aside.pop(place, None)
        return idle

    # ------------------------------------------------------------ inside

    def _is_full(self, key: Key) -> bool:
        key.change(0, 0, self.now)
        return not key.has_rate or key.tokens >= key.rule.burst

    def _rule(self, place: Place) -> LimitRule:
        return self.rules.get(place) or self.rules.get((place[0], place[1].partition(":")[0])) or LimitRule()

    def _weight(self, line: _Line) -> float:
        """Return how many turns a line has where one of weight 1 has one."""
        return prod(self._key(place).rule.weight for place in line.places)

    def _key(self, place: Place) -> Key:
        key = self._keys.get(place)
        if key is None:
            rule = self._rule(place)
            left = self.tokens.pop(place, None) or Tokens(rule.burst, self.now)
            key = self._keys[place] = Key(rule, left.at, left.number)
        return key

    def _line(self, workspace: str, keys: Keys) -> _Line:
        line = self._lines.get((workspace, keys))
        if line is None:
            line = self._lines[workspace, keys] = _Line(workspace, keys, self._served)
        return line

    def _change(self, line: _Line, before: Standing | None, after: Standing | None) -> None:
        held = (after in ("queued", "running")) - (before in ("queued", "running"))
        queued = (after == "queued") - (before == "queued")
        if not held and not queued:
            return
        for place in line.places:
            self._key(place).change(held, queued, self.now)
            if held < 0 or queued < 0:
                self._freed.add(place)

    def _head(self, line: _Line) -> tuple[int, str] | None:
        while line.heads:
            if self._is_waiting(line.heads[0]):
                return line.heads[0]
            heappop(line.heads)
        return None

    def _spend(self, line: _Line, number: int) -> None:
        for place in line.places:
            self._key(place).spend(number)
            if number < 0:
                self._freed.add(place)

    def _trim(self, line: _Line) -> None:
        """Forget tasks of a line beyond the first ones, which Postgres has."""
        known = sorted({head for head in line.heads if self._is_waiting(head)})
        line.heads = known[:HEADS]
        for _, task_id in known[HEADS:]:
            del self._tasks[task_id]
            line.last = known[HEADS - 1]

    def _is_waiting(self, head: tuple[int, str]) -> bool:
        known = self._tasks.get(head[1])
        return known is not None and known.standing == "waiting" and known.priority == head[0]

    def _end_turn(self, line: _Line) -> None:
        """Ask for more of a line of which no task is known; others may have the room it was called for."""
        self._freed.update(line.places)
        if line.last is not None:
            self._unread[line.workspace, line.keys] = line

    def _push(self, line: _Line, priority: int) -> None:
        line.is_open, line.aside = True, None
        heappush(self._open, (priority, line.served, next(self._order), line))

    def _reopen(self, line: _Line, priority: int) -> None:
        """Let a line have its turn: it has a new task, or is known now."""
        if line.aside is not None:
            if priority < line.urgency:
                self._set_aside(line, line.aside, priority)
        elif not line.is_open:
            line.served = max(line.served, self._served)  # being away earns no turns
            self._push(line, priority)

    def _next_line(self) -> _Line | None:
        if not self._open:
            self._call_aside()
        while self._open:
            *_, line = heappop(self._open)
            if line.is_open:
                line.is_open = False
                return line
            if not self._open:
                self._call_aside()
        return None

    def _set_aside(self, line: _Line, place: Place, priority: int) -> None:
        key = self._key(place)
        if line.aside is None:  # the other keys' room is for other lines
            self._freed.update(other for other in line.places if other != place)
        line.aside, line.urgency = place, priority
        heappush(self._aside[place], (priority, line.served, next(self._order), line))
        at = key.opens_at(self.now)
        if at < inf:
            heappush(self._timers, (at, place))

    def _call_aside(self) -> None:
        """Give a turn to as many of the lines that were put aside as their keys have room for now."""
        while self._timers and self._timers[0][0] <= self.now:
            self._freed.add(heappop(self._timers)[1])
        for place in list(self._freed):
            key = self._key(place)
            room = key.room(self.now)
            aside = self._aside[place]
            while aside and room >= 1:
                priority, _, _, line = heappop(aside)
                if line.aside == place:
                    line.served = max(line.served, self._served)  # room of its own earns no turns
                    self._push(line, priority)
                    room -= 1
            at = key.opens_at(self.now) if aside and room < 1 else inf
            if at < inf:
                heappush(self._timers, (at, place))
        self._freed.clear()
