"""Plan and results of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from grns.model.duration import Percentiles

# The size of `{"filling":""}`.
LEAST_PAYLOAD_BYTES = 14

_MOST_SINGLE, _LEAST_SINGLE = 500, 20
_MOST_SAMPLES, _LEAST_SAMPLES = 200, 20


@dataclass(frozen=True, slots=True)
class Plan:
    """Number and size of tasks, and the worker's concurrency."""

    tasks: int
    concurrency: int
    payload_bytes: int

    @property
    def single(self) -> int:
        """Number of tasks submitted one by one."""
        return min(_MOST_SINGLE, max(_LEAST_SINGLE, self.tasks // 20))

    @property
    def samples(self) -> int:
        """Number of tasks submitted to an idle system."""
        return min(_MOST_SAMPLES, max(_LEAST_SAMPLES, self.tasks // 50))

    @property
    def all_tasks(self) -> int:
        """Number of tasks in all."""
        return 2 * self.tasks + self.single + self.samples

    @property
    def payload(self) -> dict[str, str]:
        """The payload of each task: a JSON object of that size."""
        return {"filling": "x" * (self.payload_bytes - LEAST_PAYLOAD_BYTES)}


@dataclass(frozen=True, slots=True)
class Distance:
    """Median latencies of the servers in seconds.

    `postgres` and `nats` are round trips; `commit` and `stored` include a write.
    """

    postgres: float
    commit: float
    nats: float
    stored: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Tasks per second, and the seconds from submission to the handler's start on an idle system."""

    in_bulk: float
    one_by_one: float
    drain: float
    whole_way: float
    start: Percentiles


@dataclass(frozen=True, slots=True)
class Result:
    """Plan and results of one run."""

    plan: Plan
    distance: Distance
    figures: Figures
