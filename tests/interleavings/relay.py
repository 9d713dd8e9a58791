"""A model of the relay: readings, waves, refusals, crashes; its rules are those of `grns.outbox`.

The log is a list of rows, each of one task. A reading takes committed rows; its waves have one row of a task
each. A row that the broker does not take goes to the ordered publisher, and later rows of its task follow it.
Once a row is acknowledged it may be persisted as published; a new relay begins with the rows that are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.interleavings.explore import Model
from tests.interleavings.row import Violation

_MOST_READ = 3

Rows = tuple[int, ...]  # numbers of rows


@dataclass(frozen=True)
class RelayRules:
    """How the relay is built; each False is a way to build it wrongly."""

    awaits_waves: bool = True  # else a wave is sent before the one before it has been answered
    keeps_followers: bool = True  # else later rows of a refused row's task go on in their waves
    marks_answered: bool = True  # else a row counts as published once it has been sent
    reads_unpublished: bool = True  # else a new relay begins behind the last row that was published


class Relay(NamedTuple):
    """The log, a relay, and the broker. What a relay has in memory is lost with it."""

    tasks: Rows  # the task of each row
    committed: int = 0  # how many rows
    read: frozenset[int] = frozenset()
    waves: tuple[Rows, ...] = ()  # what is left to send, by wave
    in_flight: frozenset[int] = frozenset()
    ordered: Rows = ()  # what the ordered publisher has, in order; its rows in flight are in `in_flight`
    done: frozenset[int] = frozenset()
    persisted: frozenset[int] = frozenset()
    stream: Rows = ()  # each row at its first place
    late: frozenset[int] = frozenset()  # sent by a relay that is gone, and not arrived
    faults: int = 0


def begin_relay(tasks: Rows, faults: int) -> Relay:
    """Return the state before the first row is committed."""
    return Relay(tasks, faults=faults)


def relay_model(rules: RelayRules) -> Model[Relay]:
    """Return the model of a relay that is built by `rules`."""
    return Model(partial(_steps, rules), partial(_faults, rules), _distance, _is_at_rest)


def _is_at_rest(relay: Relay) -> bool:
    everything = frozenset(range(len(relay.tasks)))
    return relay.persisted == everything and frozenset(relay.stream) == everything


def _distance(relay: Relay) -> int:
    far = len(relay.late)
    for row in range(len(relay.tasks)):
        if row in relay.persisted:
            continue
        if row in relay.done:
            far += 1
        elif row in relay.in_flight:
            far += 2
        elif row in relay.read:
            far += 3 + (row not in relay.ordered)
        else:
            far += 5 + (row >= relay.committed)
    return far


def _steps(rules: RelayRules, relay: Relay) -> Iterator[tuple[str, Relay]]:
    if relay.committed < len(relay.tasks):
        yield f"row {relay.committed} is committed", relay._replace(committed=relay.committed + 1)
    unread = [row for row in range(relay.committed) if row not in relay.read][:_MOST_READ]
    if unread:
        reading = relay._replace(
            read=relay.read.union(unread), waves=(*relay.waves, *_waves(relay.tasks, unread))
        )
        yield f"the relay reads {unread}", reading
    yield from _send_waves(rules, relay)
    for row in relay.ordered:
        if row not in relay.in_flight and _is_first(relay, row):
            yield f"row {row} is sent again", _sent(rules, relay, row)
    for row in relay.in_flight:
        yield f"row {row} arrives and is acknowledged", _answered(_arrived(relay, row), row)
    for row in relay.late:
        yield f"row {row} of the old relay arrives", _arrived(relay, row)._replace(late=relay.late - {row})
    if relay.done != relay.persisted:
        if not relay.done <= frozenset(relay.stream):
            raise Violation(f"{sorted(relay.done - frozenset(relay.stream))} count as published and are not")
        yield "the progress is persisted", relay._replace(persisted=relay.done)


def _send_waves(rules: RelayRules, relay: Relay) -> Iterator[tuple[str, Relay]]:
    waves = relay.waves
    if waves and not waves[0] and not relay.in_flight.difference(relay.ordered):
        waves = waves[1:]  # all of it has been answered
    for place, wave in enumerate(waves[:1] if rules.awaits_waves else waves):
        for row in wave:
            rest = tuple(other for other in wave if other != row)
            left = relay._replace(waves=(*waves[:place], rest, *waves[place + 1 :]))
            if rules.keeps_followers and any(relay.tasks[row] == relay.tasks[one] for one in relay.ordered):
                yield (
                    f"row {row} follows in the ordered publisher",
                    left._replace(ordered=(*relay.ordered, row)),
                )
            else:
                yield f"row {row} is sent", _sent(rules, left, row)


def _faults(rules: RelayRules, relay: Relay) -> Iterator[tuple[str, Relay]]:
    if not relay.faults:
        return
    hurt = relay._replace(faults=relay.faults - 1)
    for row in relay.in_flight:
        yield f"row {row} is refused", _refused(hurt, row)
        yield f"row {row} arrives, its answer does not", _refused(_arrived(hurt, row), row)
        lost = _refused(hurt, row)
        yield f"row {row} is late, and taken for lost", lost._replace(late=lost.late | {row})
    known = relay.persisted
    if not rules.reads_unpublished and known:
        known = frozenset(range(max(known) + 1))
    yield (
        "the relay dies",
        hurt._replace(
            read=known, waves=(), in_flight=frozenset(), ordered=(), done=relay.persisted,
            late=relay.late | relay.in_flight,
        ),
    )  # fmt: skip


def _waves(tasks: Rows, rows: list[int]) -> list[Rows]:
    """Return the rows of a reading: the n-th row of each task is in the n-th wave."""
    waves: list[Rows] = []
    for row in rows:
        place = sum(tasks[row] == tasks[other] for other in rows if other < row)
        if place == len(waves):
            waves.append(())
        waves[place] += (row,)
    return waves


def _is_first(relay: Relay, row: int) -> bool:
    """Return whether no earlier row of its task waits in the ordered publisher."""
    same = [other for other in relay.ordered if relay.tasks[other] == relay.tasks[row]]
    return same[0] == row


def _sent(rules: RelayRules, relay: Relay, row: int) -> Relay:
    sent = relay._replace(in_flight=relay.in_flight | {row})
    return sent if rules.marks_answered else sent._replace(done=relay.done | {row})


def _arrived(relay: Relay, row: int) -> Relay:
    """Append a row to the stream, where it is new: a repeated id is no new message."""
    if row in relay.stream:
        return relay
    later = [one for one in relay.stream if one > row and relay.tasks[one] == relay.tasks[row]]
    if later:
        raise Violation(f"row {row} arrives behind row {later[0]} of its task")
    return relay._replace(stream=(*relay.stream, row))


def _answered(relay: Relay, row: int) -> Relay:
    return relay._replace(
        in_flight=relay.in_flight - {row},
        ordered=tuple(one for one in relay.ordered if one != row),
        done=relay.done | {row},
    )


def _refused(relay: Relay, row: int) -> Relay:
    ordered = relay.ordered if row in relay.ordered else (*relay.ordered, row)
    return relay._replace(in_flight=relay.in_flight - {row}, ordered=ordered)
