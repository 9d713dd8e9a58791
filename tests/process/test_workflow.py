"""A workflow with real daemons and workers: fetch, parse many, report."""

from __future__ import annotations

from pathlib import Path

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import Fleet, ready
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(120)

POOL = """
import grns

pool = grns.Pool("worker")


@pool.task
async def split(text: dict) -> list:
    return text["text"].split()


@pool.task
async def measure(word: dict) -> int:
    return len(word["word"])


@pool.task
async def report(ctx: grns.Context) -> int:
    return sum((await ctx.results()).values())
"""


async def test_a_workflow_runs_through(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    (tmp_path / "words.py").write_text(POOL)
    fleet.start("server", "--only", "relay,scheduler")
    worker = fleet.start("worker", "start", "words:pool", PYTHONPATH=str(tmp_path))
    await ready(database, worker)
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:
        flow = client.workflow("words")
        first = flow.task("split", {"text": "a few words"}, pool="worker")
        words = [
            flow.task("measure", {"word": word}, pool="worker", needs=[first])
            for word in ("a", "few", "words")
        ]
        flow.task("report", pool="worker", needs=words)
        run = await flow.submit()
        assert (await run.wait(timeout=30)).status == "succeeded"
        assert await run.tasks["report"].result(timeout=5) == 9


async def test_next_task_of_a_chain_starts_at_once(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    """The follower is woken by each end: a pause between its readings (it was 50 ms once) would show."""
    (tmp_path / "words.py").write_text(POOL)
    fleet.start("server", "--only", "relay,scheduler")
    await ready(database, fleet.start("worker", "start", "words:pool", PYTHONPATH=str(tmp_path)))
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:
        flow = client.workflow("chain")
        last = flow.task("split", {"text": "a"}, pool="worker")
        for _ in range(60):
            last = flow.task("split", {"text": "a"}, pool="worker", needs=[last])
        run = await flow.submit()
        assert (await run.wait(timeout=60)).status == "succeeded"
    hops = await fetch(
        database,
        "select extract(epoch from n.started_at - t.finished_at) * 1000 as ms"
        " from grns.needs e join grns.tasks t on t.id = e.needs join grns.tasks n on n.id = e.task_id",
    )
    assert len(hops) == 60
    # Most may be as slow as this machine happens to be; with a pause, each would wait for its end.
    tenth = sorted(float(hop["ms"]) for hop in hops)[6]
    assert tenth < 20, f"nine tenths of the hops took {tenth:.1f} ms or more"
