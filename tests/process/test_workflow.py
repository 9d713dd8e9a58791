"""A workflow with real daemons and workers: fetch, parse many, report."""

from __future__ import annotations

from pathlib import Path

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import Fleet, ready

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
