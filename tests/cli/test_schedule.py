"""`grns schedule …`, as somebody types it; no broker is needed for any of it."""

from __future__ import annotations

import asyncio

import pytest

from grns.postgres.database import Database
from grns.worker import registry
from tests.schedules.test_prune import start
from tests.support.cli import Call

_REPORT = ("report", "write_report", "--pool", "reports", "--cron", "0 9 * * 1-5")


def test_a_schedule_is_put_shown_paused_and_deleted(cli: Call) -> None:
    made = cli("schedule", "put", *_REPORT, "--time-zone", "Europe/Vienna", "--payload", '{"days": 1}')
    assert made.code == 0, made.err
    assert "next at" in made.err
    assert "0 9 * * 1-5 Europe/Vienna" in cli("schedule", "list").out
    shown = cli("schedule", "show", "report", "-o", "json").json
    assert (shown["payload"], shown["window_seconds"]) == ({"days": 1}, 86400)
    times = cli("schedule", "next", "report", "--count", "3")
    assert len(times.out.splitlines()) == 4
    assert " 09:00:00+0" in times.out
    assert "nothing was due yet" in cli("schedule", "runs", "report").err
    assert "holidays" in cli("schedule", "pause", "report", "--reason", "holidays").out
    assert "paused" in cli("schedule", "list").out
    assert "active" in cli("schedule", "resume", "report").out
    assert "would delete schedule report" in cli("schedule", "delete", "report", "--dry-run").err
    assert cli("schedule", "delete", "report", "--yes").code == 0
    assert "grns schedule list" in cli("schedule", "show", "report").err


def test_an_interval_and_a_window_are_durations(cli: Call) -> None:
    lasting = ("--every", "10m", "--window", "2h", "--jitter", "1m", "--pause-after-failures", "2")
    put = cli("schedule", "put", "sweep", "sweep_files", "--pool", "files", *lasting)
    assert put.code == 0, put.err
    shown = cli("schedule", "show", "sweep", "-o", "json").json
    assert (shown["every_seconds"], shown["window_seconds"], shown["jitter_seconds"]) == (600, 7200, 60)
    assert "2 failures" in cli("schedule", "show", "sweep").out
    assert "every 600 s" in cli("schedule", "list").out


def test_backfill_prints_how_many_times_and_asks(cli: Call) -> None:
    assert cli("schedule", "put", "often", "sweep", "--pool", "p", "--cron", "0 0 * * *").code == 0
    span = ("2026-01-01T00:00Z", "2026-01-31T00:00Z")
    counted = cli("schedule", "backfill", "often", *span, "--dry-run")
    assert "30 times; 0 had a task before" in counted.err
    assert "would submit 30 tasks of schedule often" in counted.err
    refused = cli("schedule", "backfill", "often", *span)
    assert refused.code != 0
    assert "--yes" in refused.err
    assert cli("schedule", "runs", "often", "-o", "json").json["items"] == []
    done = cli("schedule", "backfill", "often", *span, "--yes", "-o", "json")
    assert done.json == {"times": 30, "submitted": 30, "left_alone": 0, "dry_run": False}
    again = cli("schedule", "backfill", "often", *span)
    assert (again.code, again.out.strip()) == (0, "0")
    assert "30 times; 30 had a task before" in again.err
    ago = cli("schedule", "backfill", "often", "10d", "0", "--dry-run")
    assert "10 times" in ago.err
    wrong = cli("schedule", "backfill", "often", span[1], span[0])
    assert "end: 2026-01-01T00:00:00" in wrong.err


def test_prune_lists_and_asks_before_it_deletes(cli: Call, url: str) -> None:
    async def furnish() -> None:
        database = Database(url, name="test")
        async with database.opened():
            await start(database, "old", "gone", minutes_ago=60)
            await start(database, "new", minutes_ago=5)
            await registry.stop(database, "old")

    asyncio.run(furnish())
    listed = cli("schedule", "prune", "--dry-run")
    assert "gone" in listed.out
    assert "would delete 1 schedule" in listed.err
    assert "delete 1 schedule: no terminal to ask at" in cli("schedule", "prune").err
    assert "deleted 1 schedule" in cli("schedule", "prune", "--yes").err
    assert "no schedules to delete" in cli("schedule", "prune", "--yes").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "t", "--pool", "p"), "either cron or every_seconds"),
        (("a", "t", "--pool", "p", "--cron", "* * *"), "five fields"),
        (("a", "t", "--pool", "p", "--cron", "* * * * *", "--time-zone", "Mars/Olympus"), "time_zone"),
        (("a", "t", "--cron", "* * * * *"), "--pool"),
    ],
)
def test_what_cannot_be_is_refused(cli: Call, arguments: tuple[str, ...], words: str) -> None:
    refused = cli("schedule", "put", *arguments)
    assert refused.code != 0
    assert words in refused.err
