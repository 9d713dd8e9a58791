"""Schedules over HTTP: created, replaced, listed, paused and deleted, and what was decided for them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from grns.api.route import PREFIX
from grns.postgres.database import Database
from grns.worker import registry
from tests.schedules.test_prune import start
from tests.schedules.test_scheduler import let_be_due, scheduler
from tests.support.api import Door, good, problem_of
from tests.support.store import fetch

SCHEDULES = f"{PREFIX}/schedules"


def hourly(**more: Any) -> dict[str, Any]:
    """Return a schedule for each hour."""
    return {"name": "hourly", "cron": "0 * * * *", "task_type": "noop", "agent_type": "worker", **more}


async def test_a_schedule_from_its_creation_to_its_end(local: httpx2.AsyncClient, shared: Database) -> None:
    answer = await local.post(SCHEDULES, json=hourly())
    made = good(answer, [201])
    path = f"{SCHEDULES}/hourly"
    assert answer.headers["location"] == path
    assert (made["version"], made["overlap"], made["catch_up"], made["paused_at"]) == (
        1,
        "skip",
        "latest",
        None,
    )
    replaced = good(
        await local.post(SCHEDULES, json=hourly(payload={"a": 1}, overlap="allow", jitter_seconds=60)), [201]
    )
    assert replaced["jitter_seconds"] == 60
    assert (replaced["version"], replaced["payload"], replaced["next_at"]) == (2, {"a": 1}, made["next_at"])
    assert [one["name"] for one in good(await local.get(SCHEDULES))["items"]] == ["hourly"]
    times = [datetime.fromisoformat(one) for one in good(await local.get(f"{path}/next?count=3"))["times"]]
    assert [time.minute for time in times] == [0, 0, 0]
    assert times[0] == datetime.fromisoformat(made["next_at"])
    await let_be_due(shared)
    await scheduler(shared).tick()
    (run,) = good(await local.get(f"{path}/runs"))["items"]
    assert run["outcome"] == "submitted"
    assert good(await local.get(path))["last_task_id"] == run["task_id"]
    paused = good(await local.post(f"{path}/pause", json={"reason": "holidays"}))
    assert paused["pause_reason"] == "holidays"
    assert good(await local.post(f"{path}/resume"))["paused_at"] is None
    assert good(await local.delete(path))["name"] == "hourly"
    assert problem_of(await local.get(path), 404) == "not_found"


async def test_lists_have_pages(local: httpx2.AsyncClient, shared: Database) -> None:
    for number in range(3):
        good(await local.post(SCHEDULES, json=hourly(name=f"s{number}")), [201])
    first = good(await local.get(f"{SCHEDULES}?limit=2"))
    rest = good(await local.get(f"{SCHEDULES}?limit=2&cursor={first['next_cursor']}"))
    assert [one["name"] for one in first["items"] + rest["items"]] == ["s0", "s1", "s2"]
    assert rest["next_cursor"] is None
    assert problem_of(await local.get(f"{SCHEDULES}/s0/runs?cursor=nonsense"), 400) == "bad_cursor"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"time_zone": "Europe/Nowhere"}, "time_zone"),
        ({"every_seconds": 60}, "either cron or every_seconds"),
        ({"window_seconds": 1e9}, "window_seconds"),
        ({"jitter_seconds": 3600}, "jitter_seconds"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_what_cannot_be_is_refused(local: httpx2.AsyncClient, more: dict[str, Any], words: str) -> None:
    answer = await local.post(SCHEDULES, json=hourly(**more))
    assert problem_of(answer, 400) == "bad_schedule"
    assert words in answer.json()["detail"]


async def test_backfill_counts_first_and_submits_each_time_once(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    good(await local.post(SCHEDULES, json=hourly(overlap="allow")), [201])
    path = f"{SCHEDULES}/hourly"
    hour = await let_be_due(shared)
    span = {"start": (hour - timedelta(hours=3)).isoformat(), "end": hour.isoformat()}
    counted = good(await local.post(f"{path}/backfill", json={**span, "dry_run": True}))
    assert counted == {"times": 3, "submitted": 3, "left_alone": 0, "dry_run": True}
    assert good(await local.get(f"{path}/runs"))["items"] == []
    made = good(await local.post(f"{path}/backfill", json=span))
    assert made == {"times": 3, "submitted": 3, "left_alone": 0, "dry_run": False}
    again = good(await local.post(f"{path}/backfill", json=span))
    assert (again["submitted"], again["left_alone"]) == (0, 3)
    assert {run["source"] for run in good(await local.get(f"{path}/runs"))["items"]} == {"backfill"}
    for wrong in ({"start": span["start"]}, {**span, "end": "tomorrow"}, {**span, "end": span["start"]}):
        assert problem_of(await local.post(f"{path}/backfill", json=wrong), 400) == "bad_backfill"


async def test_operator_of_one_workspace_runs_and_backfills_its_schedules(door: Door) -> None:
    """The database keeps workspaces apart, too: it has to let a user write down decisions."""
    async with door.visitor(await door.key("admin")) as visitor:
        good(await visitor.post(SCHEDULES, json=hourly(overlap="allow")), [201])
        path = f"{SCHEDULES}/hourly"
        assert good(await visitor.post(f"{path}/run"))["outcome"] == "submitted"
        (hour,) = await fetch(door.database, "select date_trunc('hour', now()) as now")
        span = {"start": (hour["now"] - timedelta(hours=2)).isoformat(), "end": hour["now"].isoformat()}
        assert good(await visitor.post(f"{path}/backfill", json=span))["submitted"] == 2
        runs = good(await visitor.get(f"{path}/runs"))["items"]
        assert [run["source"] for run in runs] == ["run", "backfill", "backfill"]


async def test_prune_deletes_what_no_live_worker_declares(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    await start(shared, "old", "gone", minutes_ago=60)
    await start(shared, "new", minutes_ago=5)
    await registry.stop(shared, "old")
    found = good(await local.post(f"{SCHEDULES}/prune", json={"dry_run": True}))
    assert ([one["name"] for one in found["schedules"]], found["dry_run"]) == (["gone"], True)
    assert len(good(await local.get(SCHEDULES))["items"]) == 1
    assert good(await local.post(f"{SCHEDULES}/prune"))["dry_run"] is False
    assert good(await local.get(SCHEDULES))["items"] == []
