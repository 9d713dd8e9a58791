"""What is to be measured, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from grns.model.duration import Percentiles

# What `{"filling":""}` takes by itself.
LEAST_PAYLOAD_BYTES = 14

_MOST_SINGLE, _LEAST_SINGLE = 500, 20
_MOST_SAMPLES, _LEAST_SAMPLES = 200, 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How many tasks of which size, and how many of them the worker runs at a time."""

    tasks: int
    concurrency: int
    payload_bytes: int

    @property
    def single(self) -> int:
        """How many tasks are submitted one by one."""
        return min(_MOST_SINGLE, max(_LEAST_SINGLE, self.tasks // 20))

    @property
    def samples(self) -> int:
        """How many tasks are submitted to an idle system."""
        return min(_MOST_SAMPLES, max(_LEAST_SAMPLES, self.tasks // 50))

    @property
    def all_tasks(self) -> int:
        """How many tasks that makes together."""
        return 2 * self.tasks + self.single + self.samples

    @property
    def payload(self) -> dict[str, str]:
        """The payload of each task: a JSON object of that size."""
        return {"filling": "x" * (self.payload_bytes - LEAST_PAYLOAD_BYTES)}


@dataclass(frozen=True, slots=True)
class Distance:
    """How long servers take to answer, in seconds: medians.

    `postgres` and `nats` are the ways there and back, `commit` and `stored` with what is written there.
    """

    postgres: float
    commit: float
    nats: float
    stored: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Tasks per second, and the seconds from submit to the handler's start on an idle system."""

    in_bulk: float
    one_by_one: float
    drain: float
    whole_way: float
    start: Percentiles


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one run."""

    plan: Plan
    distance: Distance
    figures: Figures
