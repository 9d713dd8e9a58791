"""`grns schedule …`, as somebody types it; no broker is needed for any of it."""

from __future__ import annotations

import asyncio

import pytest

from grns.postgres.database import Database
from grns.worker import registry
from tests.cli.test_access import Call
from tests.schedules.test_prune import start

pytest_plugins = ["tests.cli.test_access"]
_REPORT = ("report", "write_report", "--pool", "reports", "--cron", "0 9 * * 1-5")


@pytest.fixture(autouse=True)
def _without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_NATS_URL", "nats://127.0.0.1:1")


def test_a_schedule_is_put_shown_paused_and_deleted(grns: Call) -> None:
    made = grns("schedule", "put", *_REPORT, "--time-zone", "Europe/Vienna", "--payload", '{"days": 1}')
    assert made.code == 0, made.err
    assert "next at" in made.err
    assert "0 9 * * 1-5 Europe/Vienna" in grns("schedule", "list").out
    shown = grns("schedule", "show", "report", "-o", "json").json
    assert (shown["payload"], shown["window_seconds"]) == ({"days": 1}, 86400)
    times = grns("schedule", "next", "report", "--count", "3")
    assert len(times.out.splitlines()) == 4
    assert " 09:00:00+0" in times.out
    assert "nothing was due yet" in grns("schedule", "runs", "report").err
    assert "holidays" in grns("schedule", "pause", "report", "--reason", "holidays").out
    assert "paused" in grns("schedule", "list").out
    assert "active" in grns("schedule", "resume", "report").out
    assert "would delete schedule report" in grns("schedule", "delete", "report", "--dry-run").err
    assert grns("schedule", "delete", "report", "--yes").code == 0
    assert "grns schedule list" in grns("schedule", "show", "report").err


def test_an_interval_and_a_window_are_durations(grns: Call) -> None:
    lasting = ("--every", "10m", "--window", "2h", "--jitter", "1m", "--pause-after-failures", "2")
    put = grns("schedule", "put", "sweep", "sweep_files", "--pool", "files", *lasting)
    assert put.code == 0, put.err
    shown = grns("schedule", "show", "sweep", "-o", "json").json
    assert (shown["every_seconds"], shown["window_seconds"], shown["jitter_seconds"]) == (600, 7200, 60)
    assert "2 failures" in grns("schedule", "show", "sweep").out
    assert "every 600 s" in grns("schedule", "list").out


def test_backfill_prints_how_many_times_and_asks(grns: Call) -> None:
    assert grns("schedule", "put", "often", "sweep", "--pool", "p", "--cron", "0 0 * * *").code == 0
    span = ("2026-01-01T00:00Z", "2026-01-31T00:00Z")
    counted = grns("schedule", "backfill", "often", *span, "--dry-run")
    assert "30 times; 0 had a task before" in counted.err
    assert "would submit 30 tasks of schedule often" in counted.err
    refused = grns("schedule", "backfill", "often", *span)
    assert refused.code != 0
    assert "--yes" in refused.err
    assert grns("schedule", "runs", "often", "-o", "json").json["items"] == []
    done = grns("schedule", "backfill", "often", *span, "--yes", "-o", "json")
    assert done.json == {"times": 30, "submitted": 30, "left_alone": 0, "dry_run": False}
    again = grns("schedule", "backfill", "often", *span)
    assert (again.code, again.out.strip()) == (0, "0")
    assert "30 times; 30 had a task before" in again.err
    ago = grns("schedule", "backfill", "often", "10d", "0", "--dry-run")
    assert "10 times" in ago.err
    wrong = grns("schedule", "backfill", "often", span[1], span[0])
    assert "end: 2026-01-01T00:00:00" in wrong.err


def test_prune_lists_and_asks_before_it_deletes(grns: Call, url: str) -> None:
    async def furnish() -> None:
        database = Database(url, name="test")
        async with database.opened():
            await start(database, "old", "gone", minutes_ago=60)
            await start(database, "new", minutes_ago=5)
            await registry.stop(database, "old")

    asyncio.run(furnish())
    listed = grns("schedule", "prune", "--dry-run")
    assert "gone" in listed.out
    assert "would delete 1 schedule" in listed.err
    assert "delete 1 schedule: no terminal to ask at" in grns("schedule", "prune").err
    assert "deleted 1 schedule" in grns("schedule", "prune", "--yes").err
    assert "no schedules to delete" in grns("schedule", "prune", "--yes").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "t", "--pool", "p"), "either cron or every_seconds"),
        (("a", "t", "--pool", "p", "--cron", "* * *"), "five fields"),
        (("a", "t", "--pool", "p", "--cron", "* * * * *", "--time-zone", "Mars/Olympus"), "time_zone"),
        (("a", "t", "--cron", "* * * * *"), "--pool"),
    ],
)
def test_what_cannot_be_is_refused(grns: Call, arguments: tuple[str, ...], words: str) -> None:
    refused = grns("schedule", "put", *arguments)
    assert refused.code != 0
    assert words in refused.err
