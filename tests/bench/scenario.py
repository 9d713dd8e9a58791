"""What can be measured, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.bench import (
    agents,
    backlog,
    bare,
    check,
    drain,
    floor,
    hops,
    idle,
    latency,
    limited,
    long,
    output,
    relay,
    snapshot,
    steps,
    submit,
    whole_way,
)
from tests.bench.figure import Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes

PEERS = "peers"

Measure = Callable[[Ground, Sizes, Figures], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """One thing that is measured; what `is_repeated` is so in each round, all of them in turn."""

    name: str
    what: str
    measure: Measure
    is_repeated: bool = True


SCENARIOS: Sequence[Scenario] = (
    Scenario("whole_way", "the whole way", whole_way.measure),
    Scenario("drain", "draining without the relay", drain.measure),
    Scenario("bare", "the bare loop", bare.measure),
    Scenario("check", "the short bench of CI", check.measure),
    Scenario("floor", "the broker away", floor.measure),
    Scenario("submit", "submitting", submit.measure),
    Scenario("relay", "the relay alone", relay.measure),
    Scenario("limited", "tasks under limits", limited.measure),
    Scenario("snapshot", "an old snapshot", snapshot.measure),
    Scenario("latency", "latency", latency.measure),
    Scenario("hops", "tasks that need others", hops.measure, is_repeated=False),
    Scenario("steps", "steps and sleeps", steps.measure, is_repeated=False),
    Scenario("output", "streamed output", output.measure, is_repeated=False),
    Scenario("agents", "agents and their mail", agents.measure, is_repeated=False),
    Scenario("backlog", "a long backlog", backlog.measure, is_repeated=False),
    Scenario("long", "long tasks", long.measure, is_repeated=False),
    Scenario("idle", "doing nothing", idle.measure, is_repeated=False),
)
NAMES = (*(scenario.name for scenario in SCENARIOS), PEERS)
