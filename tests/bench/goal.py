"""The goals, and whether what was measured holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.bench.figure import (
    COUNT,
    MEGABYTES,
    MESSAGES,
    MILLISECONDS,
    SHARE,
    STATEMENTS,
    TASKS,
    TIMES,
    Figures,
    said,
)
from tests.bench.idle import ROLES
from tests.bench.output import STREAMS
from tests.bench.size import Sizes


class Verdict(StrEnum):
    """What came of a goal."""

    HELD = "held"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What one figure has to reach, or, where `is_most`, not to exceed.

    With `against` it is the figure's multiple of that other one of the same run.
    """

    what: str
    figure: str
    bound: float
    unit: str
    against: str | None = None
    is_most: bool = False

    def measured(self, figures: Figures) -> float | None:
        """Return what the goal is about, None where it was not measured."""
        return (
            figures.median(self.figure) if self.against is None else figures.ratio(self.figure, self.against)
        )

    def judge(self, figures: Figures) -> Verdict:
        """Say whether it is held."""
        measured = self.measured(figures)
        if measured is None:
            return Verdict.UNKNOWN
        is_held = measured <= self.bound if self.is_most else measured >= self.bound
        return Verdict.HELD if is_held else Verdict.MISSED

    def __str__(self) -> str:
        return f"{'≤' if self.is_most else '≥'} {said(self.bound, self.unit)}"


def goals(sizes: Sizes) -> Sequence[Goal]:
    """Return all goals, named with what is measured at these sizes."""
    return [*_throughput(sizes), *_latency(sizes), *_steadiness(sizes), *_costs(sizes)]


def _throughput(sizes: Sizes) -> list[Goal]:
    rows = f"{sizes.rows:,} tasks"
    ratios = [
        ("whole way against the bare loop", "whole_way.rate", "bare.best", 0.42),
        ("the same, 16 events a message", "whole_way_lines.rate", "bare.best", 0.55),
        ("drain against the bare loop", "drain.rate", "bare.best", 0.85),
        ("drain against PGQueuer's", "drain.rate", "peers.pgqueuer", 1.0),
        ("drain against Graphile Worker's", "drain.rate", "peers.graphile_worker", 0.5),
        ("broker away against the whole way, to the last finish", "floor.rate", "whole_way.finished", 0.5),
    ]
    return [
        *(
            Goal(what=what, figure=figure, against=against, bound=bound, unit=TIMES)
            for what, figure, against, bound in ratios
        ),
        Goal(what="tasks under limits, of 100 tenants", figure="limited.rate", bound=2_000, unit=TASKS),
        Goal(what=f"submit in bulk: {rows}", figure="submit.bulk", bound=30_000, unit=TASKS),
        Goal(what="submit by 32 at a time", figure="submit.concurrent", bound=20_000, unit=TASKS),
        Goal(
            what="submit one by one, over a bare commit", figure="submit.over_commit", bound=0.15,
            unit=MILLISECONDS, is_most=True,
        ),
        Goal(
            what=f"relay alone, each task in order: {sizes.messages:,} messages", figure="relay.rate",
            bound=40_000, unit=MESSAGES,
        ),
    ]  # fmt: skip


def _latency(sizes: Sizes) -> list[Goal]:
    wanted = [
        ("submit → handler start, idle, p50, over two bare commits", "start.p50_over_commits", 1.2),
        ("submit → handler start, idle, p99, over two bare commits (p50)", "start.p99_over_commits", 5.2),
        ("submit → end seen elsewhere, idle, p50, over three bare commits", "visible.p50_over_commits", 1.5),
    ]
    return [
        *(
            Goal(what=what, figure=f"latency.{name}", bound=bound, unit=MILLISECONDS, is_most=True)
            for what, name, bound in wanted
        ),
        *(
            Goal(what=what, figure=figure, bound=bound, unit=MILLISECONDS, is_most=True)
            for what, figure, bound in (
                ("a recorded step, over a bare commit", "step.over_commit", 0.3),
                ("a mailbox, read among a million messages, p95", "mail.p95", 10),
                ("end → start of a task that needs it, p50", "hop.p50", 8),
                ("end → start of a task that needs it, p99", "hop.p99", 25),
                (
                    f"a chunk of output, from its handler to a reader, {STREAMS} streams, p95",
                    "output.p95",
                    200,
                ),
                (f"fan-out of {sizes.children:,} tasks, and back", "fan_out.time", 5000),
            )
        ),
    ]


def _steadiness(sizes: Sizes) -> list[Goal]:
    many, few = f"{sizes.big_backlog:,}", f"{sizes.small_backlog:,}"
    tasks = f"{sizes.snapshot_tasks:,} tasks"
    return [
        Goal(
            what=f"rate with {many} queued against {few}", figure="backlog.big", against="backlog.small",
            bound=0.95, unit=SHARE,
        ),
        Goal(
            what=f"memory of worker and server with {many} queued against {few}", figure="backlog.memory",
            bound=1.1, unit=TIMES, is_most=True,
        ),
        Goal(
            what=f"old snapshot, {tasks}: CPU of Postgres in the last tenth, against none",
            figure="snapshot.cost", bound=1.05, unit=TIMES, is_most=True,
        ),
        Goal(
            what="the same, 20 % of them failing once", figure="snapshot_retries.cost", bound=1.05,
            unit=TIMES, is_most=True,
        ),
    ]  # fmt: skip


def _costs(sizes: Sizes) -> list[Goal]:
    running = f"{sizes.long_tasks:,} long tasks on one worker"
    wanted = [
        (f"{running}: renewals a tick", "long.renewals", 1.0, COUNT),
        (f"{running}: CPU, with its heartbeat process", "long.cpu.worker", 0.05, SHARE),
        (f"{running}: memory, with its heartbeat process", "long.memory", 250.0, MEGABYTES),
    ]
    wanted.append((f"{sizes.children:,} tasks that sleep: share of a core", "asleep.cpu", 0.01, SHARE))
    wanted.append(("heartbeats of 10,000 agents: share of a core", "agents.cpu", 0.02, SHARE))
    for role in ROLES:
        wanted.append((f"idle {role}: share of a core", f"idle.{role}.cpu", 0.01, SHARE))
        wanted.append((f"idle {role}: statements", f"idle.{role}.statements", 6.0, STATEMENTS))
    return [
        Goal(what=what, figure=figure, bound=bound, unit=unit, is_most=True)
        for what, figure, bound, unit in wanted
    ]
