"""Who was hit when, and what that can cost: what counts as an explanation of an attempt that was lost."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

EVERYBODY = "everybody"
# The process id of a worker over HTTP, which grns does not know.
OVER_HTTP = -1
_API = "api-1"
ORDER = "agent: told to stop"
# A worker looks every two seconds whether it is told something.
_ORDER_SECONDS = 3.0
# Clocks of one machine, read one after another.
_NEAR_SECONDS = 0.2
# A connection that is cut costs no lease, for renewals are tried again; but the answer to a claim may go
# unheard with it, and the process die before it has asked again.
_ANSWER_SECONDS = 1.0
# Two in a row may cost one: the second hits the renewal that is tried again after the first.
_AGAIN_SECONDS = 1.0
_BLINKS = ("network to Postgres: cut", "Postgres: backends terminated")
# Those of the broker cost none: leases are renewed through Postgres alone.
_HARMLESS = ("NATS", "network to NATS", "daemon", "submitter", "reader", "agent: told to drain")
# How long they are felt afterwards, in seconds: starting again, reconnecting. What a stranger has locked
# cannot be renewed meanwhile. Who is asked to end claims nothing more but what is under way; a signal is
# heard, though, only when the process gets the CPU, which on a busy machine is late.
_HEARD_SECONDS = 2.0
_AFTERWARDS = (
    ("API", 6.0),  # it starts, and then its workers find it again
    ("HTTP worker: SIG", _HEARD_SECONDS),
    ("Postgres: a stranger", 1.0),
    ("worker: SIGTERM", _HEARD_SECONDS),
    ("worker: SIGINT", _HEARD_SECONDS),
    ("a worker is asked to end", _HEARD_SECONDS),
    (ORDER, _ORDER_SECONDS),
    ("heartbeat process", 3.0),
    ("Postgres", 3.0),
    ("network to Postgres", 2.0),
)
_USUALLY = 1.0
# Faults that may take away first copies that nobody has seen yet, of one stream or of all. What a broker has
# acknowledged survives a kill, and what is purged has been heard.
_LOSSY = ("NATS: wiped", "NATS: set back", "NATS: stream deleted")
# How long what was published last before a loss may be unseen.
_UNSEEN_SECONDS = 6.0


@dataclass(frozen=True)
class Harm:
    """A time in which somebody was hit so that attempts may be lost."""

    begin: float
    end: float
    is_blink: bool = False

    def explains(self, claimed_at: float, until: float) -> bool:
        """Say whether it lies between an attempt's claim and the end of its lease."""
        if self.is_blink:
            until = min(until, claimed_at + _ANSWER_SECONDS)
        return self.is_between(claimed_at, until)

    def is_between(self, claimed_at: float, until: float) -> bool:
        """Say whether it touches this time: a handler's own statements fail whenever they are cut off."""
        return self.begin <= until + _NEAR_SECONDS and self.end >= claimed_at - _NEAR_SECONDS


@dataclass(slots=True)
class Order:
    """An order to stop. It holds until its process has ended: one that is frozen hears of it late."""

    seat: str
    since: float
    until: float = math.inf


class Harms:
    """All that was done to anybody, as the stage has written it down."""

    def __init__(self) -> None:
        self._harms: dict[str, list[Harm]] = defaultdict(list)
        self._losses: list[tuple[float, float, str]] = []
        self._orders: list[Order] = []
        self._lives: dict[int, list[tuple[float, str]]] = defaultdict(list)

    def read(self, note: Mapping[str, Any]) -> None:
        """Take in a note of the stage: a process that began, or a hit."""
        if note["what"] == "start":
            self._lives[note["pid"]].append((note["at"], note["seat"]))
            for order in self._orders:
                if order.seat == note["seat"]:
                    order.until = min(order.until, note["at"])
        elif note["what"] == "hit":
            if (harm := _harm_of(note["fault"], note["from"], note["until"])) is not None:
                for whom in (note["whom"], *note.get("tasks", ())):
                    self._harms[whom].append(harm)
            if note["fault"] == ORDER:
                self._orders.append(Order(note["whom"], note["from"]))
            if note["fault"].startswith(_LOSSY):
                self._losses.append((note["from"], note["until"] + _UNSEEN_SECONDS, note["whom"]))

    def explain_loss(self, task_id: str, pid: int, claimed_at: float, until: float) -> bool:
        """Say whether a hit on whoever claimed it, or on the row, explains that an attempt was lost."""
        if self.was_ordered(pid, claimed_at, until):
            return True
        harms = [one for one in self._of(task_id, pid, claimed_at) if one.is_between(claimed_at, until)]
        if any(harm.explains(claimed_at, until) for harm in harms):
            return True
        blinks = sorted((harm.begin, harm.end) for harm in harms)
        # An HTTP worker gives up a third of a lease before its end: it has time for one renewal and one more.
        return (self._is_over_http(pid, claimed_at) and bool(blinks)) or any(
            later - earlier <= _AGAIN_SECONDS for (_, earlier), (later, _) in pairwise(blinks)
        )

    def explain_failure(self, task_id: str, pid: int, claimed_at: float, until: float) -> bool:
        """Say whether a hit explains that an attempt failed though its handler did not say so."""
        return any(harm.is_between(claimed_at, until) for harm in self._of(task_id, pid, claimed_at))

    def was_ordered(self, pid: int, claimed_at: float, until: float) -> bool:
        """Say whether the agent that claimed it was told to stop before this time."""
        seats = {self._seat(pid, claimed_at), *(["http-worker-1"] if pid == OVER_HTTP else [])}
        return any(
            one.seat in seats
            and one.since <= until + _NEAR_SECONDS
            and claimed_at <= one.until + _NEAR_SECONDS
            for one in self._orders
        )

    def explain_order(self, stream: str, since: float, until: float) -> bool:
        """Say whether a stream lost something meanwhile: a first copy may have gone unseen then."""
        return any(
            begin <= until and end >= since and whom in (stream, "nobody")
            for begin, end, whom in self._losses
        )

    def _of(self, task_id: str, pid: int, at: float) -> Iterator[Harm]:
        seats = {self._seat(pid, at), task_id, EVERYBODY}
        if self._is_over_http(pid, at):
            seats |= {_API, *(seat for seat in self._harms if seat.startswith("http-worker"))}
        return chain.from_iterable(self._harms[seat] for seat in seats)

    def _is_over_http(self, pid: int, at: float) -> bool:
        """Say whether it is of an HTTP worker, by its own id or by the one that stands for all of them."""
        return pid == OVER_HTTP or self._seat(pid, at).startswith("http-worker")

    def _seat(self, pid: int, at: float) -> str:
        """Return who had a process id at a time: they come again in the course of an hour."""
        lives = self._lives[pid]
        place = bisect_right(lives, at, key=lambda life: life[0])
        return lives[place - 1][1] if place else "?"


def _harm_of(fault: str, begin: float, end: float) -> Harm | None:
    """Return the harm that a fault did; None for what can cost no lease."""
    if fault.startswith(_HARMLESS):
        return None
    if fault.startswith(_BLINKS):
        return Harm(begin, end, is_blink=True)
    felt = next((seconds for name, seconds in _AFTERWARDS if fault.startswith(name)), _USUALLY)
    return Harm(begin, end + felt)
