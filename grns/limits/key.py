"""One key of a limit: how many of its tasks may be queued now, and when time alone lets one more be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class LimitRule:
    """What a limit allows for each of its keys: tasks at once, and tasks in a time.

    A key of weight 3 has three turns where another one has one.
    """

    most: float = inf
    per_second: float = inf
    burst: int = 0
    is_paused: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tasks of a key may begin, at a time in seconds."""

    number: float
    at: float


@dataclass(slots=True)
class Key:
    """One key: how many of its tasks are queued or running, and how many more may begin.

    Tasks that are queued have yet to begin: they count against the burst, so that those which were queued
    while no worker ran do not begin together with as many again.
    """

    rule: LimitRule
    filled_at: float
    tokens: float
    had_rate: bool = False
    held: int = 0
    queued: int = 0

    @property
    def has_rate(self) -> bool:
        return self.rule.per_second < inf

    def room(self, now: float) -> float:
        """Return how many tasks may be queued."""
        if self.rule.is_paused:
            return 0
        room = self.rule.most - self.held
        if self.has_rate:
            self._fill(now)
            room = min(room, self.tokens // 1)
        return max(0, room)

    def opens_at(self, now: float) -> float:
        """Return when time alone gives it room: never, if something must be given back."""
        if self.rule.is_paused or not self.has_rate or self.held >= self.rule.most:
            return inf
        self._fill(now)
        if self.rule.burst - self.queued < 1:
            return inf
        return now + max(0.001, (1.0 - self.tokens) / self.rule.per_second)

    def change(self, held: int, queued: int, now: float) -> None:
        """Count tasks that are queued or running, and of these those that are queued."""
        if self.has_rate:
            self._fill(now)  # until now, it grew by as much as was to begin
        self.held += held
        self.queued += queued

    def change_rule(self, rule: LimitRule, now: float) -> None:
        """Take another rule. Its whole burst has a key that never had a rate."""
        self.change(0, 0, now)
        self.had_rate = self.had_rate or self.has_rate
        self.rule = rule
        if self.has_rate and not self.had_rate:
            self.tokens, self.filled_at = rule.burst, now

    def spend(self, number: int) -> None:
        """Let so many tasks begin; negative: give back what was spent on tasks that never began."""
        if self.has_rate:
            self.tokens -= number

    def _fill(self, now: float) -> None:
        grown = self.tokens + max(0.0, now - self.filled_at) * self.rule.per_second
        self.tokens = min(self.rule.burst - self.queued, grown)
        self.filled_at = max(now, self.filled_at)
