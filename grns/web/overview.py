"""The overview: tasks by status, rates, durations, alarms, pools and new issues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.model.task import TaskStatus
from grns.web import alarms, charts
from grns.web.charts import LATEST_ATTEMPTS, Chart, KeyFigure, key_figures
from grns.web.filters import term
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_RECENT_STEPS = 5
_POOLS, _ISSUES, _WORKERS, _QUEUED = 100, 5, 200, 100


@dataclass(frozen=True, slots=True)
class RateTile:
    """A rate per minute, over the last minutes."""

    name: str
    per_minute: float


@pages.get("/")
async def overview(request: PageRequest) -> Response:
    """Show the overview."""
    counts = await request.fetch("/counts")
    steps = await request.fetch("/minutes")
    pools = (await request.fetch("/pools", limit=_POOLS))["items"]
    workers = (await request.fetch("/workers", limit=_WORKERS))["items"]
    queued: list[dict[str, Any]] = []
    if counts["states"]["queued"]:
        page = await request.fetch("/tasks", filter=term("status", "queued"), limit=_QUEUED)
        queued = page["items"]
    issues = await request.fetch("/issues", state=["new", "regressed"], limit=_ISSUES)
    budgets = (await request.fetch("/budgets"))["items"]
    found = [
        *alarms.budget_alarms(budgets),
        *alarms.pool_alarms(pools),
        *alarms.handler_alarms(queued, workers),
        *alarms.worker_alarms(workers),
    ]
    return await request.render(
        "overview.html",
        statuses=[(status.value, counts["states"][status.value]) for status in TaskStatus],
        rates=_rates(steps),
        durations=await request.context.durations.read(request.workspace, request.fetch),
        charts=_charts(steps),
        latest_attempts=LATEST_ATTEMPTS,
        pools=pools,
        oldest_seconds=max((pool["oldest_seconds"] or 0.0 for pool in pools), default=0.0),
        issues=issues["items"],
        alarms=sorted(found, key=lambda alarm: alarm.severity),
        key_figures=await _key_figures(request),
    )


def _rates(steps: Mapping[str, Any]) -> list[RateTile]:
    chart = charts.per_minute("", steps, "submitted", "succeeded", "retried", "dead", "failed")
    return [
        RateTile(name, sum(value or 0.0 for value in values[-_RECENT_STEPS:]) / _RECENT_STEPS)
        for name, values in zip(chart.lines, chart.points[1:], strict=True)
    ]


def _charts(steps: Mapping[str, Any]) -> list[Chart]:
    return [
        charts.per_second("In and out", steps, "submitted", "succeeded"),
        charts.per_minute("Failures", steps, "retried", "failed", "dead", "expired"),
        charts.mean_seconds("Mean wait and run", steps, wait="queue", run="run"),
    ]


async def _key_figures(request: PageRequest) -> list[KeyFigure]:
    """Return figures of the daemons in this process, for users of all workspaces."""
    if request.user.principal.workspace is not None:
        return []
    exposition: str = await request.fetch("/metrics")
    return key_figures(exposition)
