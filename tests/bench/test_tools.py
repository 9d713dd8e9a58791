"""The tools of the bench: options, what processes use, and the bare loop, which does what a worker does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grns.postgres.database import Database
from tests.bench import bare
from tests.bench.__main__ import main
from tests.bench.pace import read_pace
from tests.bench.process import own_usage, usage_of
from tests.bench.result import COMMITTED
from tests.support.harness import check_stories, eventually, submit_many
from tests.support.store import fetch


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "199"], "--rows is 200"),
        (["--rows", "many"], "invalid int value"),
        (["--rows", "1000000000"], "--rows is 200"),
        (["--rounds", "0"], "--rounds is 1"),
        (["--only", "drain,dream"], "there is no 'dream'; there are whole_way, drain"),
        (["--result", "/nowhere/at/all.json"], "/nowhere/at/all.json is no place for a file"),
        (["--result", "/tmp"], "/tmp is no place for a file"),
        (["--plots", "/etc/hostname"], "/etc/hostname is no directory"),
        (["--check", "--rows", "500"], "--check measures the same thing each time"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_a_check_without_a_committed_result_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.__main__.COMMITTED", tmp_path / COMMITTED.name)
    assert main(["--check"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no committed result: run make bench RESULT=tests/bench/results/bench.json")


# ---------------------------------------------------------------- processes


def test_what_this_process_uses_grows_with_what_it_does() -> None:
    before = own_usage()
    filling = bytearray(os.urandom(1024)) * (64 * 1024)  # 64 MB that were written
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    after = own_usage()
    assert 0.15 < after.cpu_seconds - before.cpu_seconds < 5.0
    assert 50 < after.rss_megabytes - before.rss_megabytes < 100
    del filling


async def test_children_count_while_they_live_and_after_they_have_ended(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\n"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"open({str(tmp_path / 'ended')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])  # noqa: ASYNC220
    try:

        async def has_ended() -> bool:
            return (tmp_path / "ended").exists()

        await eventually(has_ended)
        assert usage_of(process.pid).cpu_seconds >= 0.45
        assert usage_of(process.pid).rss_megabytes > 1
    finally:
        process.kill()
        process.wait()
    assert usage_of(process.pid).cpu_seconds == 0.0
    assert usage_of(process.pid).rss_bytes == 0


# ---------------------------------------------------------------- the bare loop


async def test_the_bare_loop_leaves_what_a_worker_leaves(database: Database) -> None:
    ids = await submit_many(database, 25)
    await bare.run(database, ids, batch=10)
    stories = await check_stories(database, ids)
    for events in stories.values():
        kinds = [event["kind"] for event in events]
        assert kinds == ["evt.task.queued", "evt.task.claimed", "evt.task.completed"]
    rows = await fetch(database, "select status, result::text from grns.tasks")
    assert {(row["status"], row["result"]) for row in rows} == {("succeeded", "null")}


async def test_a_pace_is_of_what_was_written_after_a_row_of_the_log(database: Database) -> None:
    first, second = await submit_many(database, 3), await submit_many(database, 4)
    await bare.run(database, first, batch=2)
    (row,) = await fetch(database, "select max(seq) as seq from grns.events")
    await bare.run(database, second, batch=2)
    async with database.connection() as connection:
        everything, latest = await read_pace(connection), await read_pace(connection, row["seq"])
    assert (len(everything.finishes), len(latest.finishes)) == (7, 4)
    assert everything.began < latest.began < latest.finishes[0] <= latest.finishes[-1]
    assert latest.rate() > 0
