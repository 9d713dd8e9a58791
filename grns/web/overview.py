"""The overview: how much there is, how fast it goes, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.model.task import Status
from grns.web import alarm, figure
from grns.web.figure import Chart
from grns.web.pace import LATEST
from grns.web.page import WebPages
from grns.web.page_request import PageRequest
from grns.web.signals import KeyFigure, signals

pages = WebPages()

_RECENT_STEPS = 5
_POOLS, _ISSUES, _WORKERS, _QUEUED = 100, 5, 200, 100


@dataclass(frozen=True, slots=True)
class RateTile:
    """How many of something happened a minute, lately."""

    name: str
    per_minute: float
    filter: str | None = None


@pages.get("/")
async def overview(call: PageRequest) -> Response:
    """Show all at a glance."""
    counts = await call.ask("/counts")
    steps = await call.ask("/minutes")
    pools = (await call.ask("/pools", limit=_POOLS))["items"]
    workers = (await call.ask("/workers", limit=_WORKERS))["items"]
    queued = (
        await call.ask("/tasks", filter="status:queued", limit=_QUEUED)
        if counts["states"]["queued"]
        else None
    )
    issues = await call.ask("/issues", state=["new", "regressed"], limit=_ISSUES)
    alarms = [
        *alarm.of_pools(pools),
        *alarm.of_types(queued["items"] if queued else [], workers),
        *alarm.of_workers(workers),
    ]
    return await call.show(
        "overview.html",
        states=[(state.value, counts["states"][state.value]) for state in Status],
        total=counts["total"],
        rates=_rates(steps),
        pace=await call.room.paces.of(call.place, call.ask),
        charts=_charts(steps),
        paced=LATEST,
        pools=pools,
        oldest=max((pool["oldest_seconds"] or 0.0 for pool in pools), default=0.0),
        issues=issues["items"],
        alarms_found=sorted(alarms, key=lambda one: one.severity),
        signals=await _signals(call),
    )


def _rates(steps: Mapping[str, Any]) -> list[RateTile]:
    charted = figure.per_minute("", steps, "submitted", "succeeded", "retried", "dead", "failed")
    return [
        RateTile(name, sum(values[-_RECENT_STEPS:]) / _RECENT_STEPS)  # type: ignore[arg-type] # no gaps in these
        for name, values in zip(charted.lines, charted.points[1:], strict=True)
    ]


def _charts(steps: Mapping[str, Any]) -> list[Chart]:
    return [
        figure.per_second("In and out", steps, "submitted", "succeeded"),
        figure.per_minute("What went wrong", steps, "retried", "failed", "dead", "expired"),
        figure.mean_seconds("Mean wait and run", steps, wait="queue", run="run"),
    ]


async def _signals(call: PageRequest) -> list[KeyFigure]:
    """Return what the daemons tell that run beside this page, for whoever may see all workspaces."""
    if call.user.principal.workspace is not None:
        return []
    said: str = await call.ask("/metrics")
    return signals(said)
