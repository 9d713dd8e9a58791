"""The numbers: counted from the rows and the log, when all is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from grns.dev.demo.truth import DemoEvent, Row
from grns.model.percentiles import Percentiles, spread
from grns.model.task import STATUS_AFTER, Status


@dataclass(frozen=True, slots=True)
class DemoNumbers:
    """What the table shows."""

    states: Counter[str]
    events: Counter[str]
    executions: int
    retries: int
    re_executions: int
    work_seconds: float
    queue_wait: Percentiles
    run: Percentiles

    @property
    def per_second(self) -> float:
        """Tasks ended per second of work."""
        return sum(self.states.values()) / max(self.work_seconds, 1e-9)


def count(rows: Iterable[Row], entries: Sequence[DemoEvent]) -> DemoNumbers:
    """Count what happened. `entries` are in the order of tasks and versions."""
    events = [entry for entry in entries if entry.kind.startswith("evt.")]
    kinds = Counter(entry.kind for entry in events)
    waits, runs, again = [], [], 0
    for _, history in groupby(events, key=lambda entry: entry.task_id):
        for before, after in pairwise(history):
            seconds = (after.created_at - before.created_at).total_seconds()
            if STATUS_AFTER[before.kind] is Status.QUEUED and after.kind == "evt.task.claimed":
                waits.append(seconds)
                again += before.kind == "evt.task.lease_expired"
            elif after.kind == "evt.task.completed":
                runs.append(seconds)
    moments = [entry.created_at for entry in events]
    return DemoNumbers(
        states=Counter(row.status.value for row in rows),
        events=kinds,
        executions=kinds["evt.task.claimed"],
        retries=kinds["evt.task.retry_scheduled"],
        re_executions=again,
        work_seconds=(max(moments) - min(moments)).total_seconds() if moments else 0.0,
        queue_wait=spread(waits),
        run=spread(runs),
    )
