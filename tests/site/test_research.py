"""The tutorial of the research agent, followed; and the program of the page of pydantic-ai."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.site.page import blocks, written
from tests.support.harness import LIMIT_SECONDS, START_SECONDS, Fleet, eventually

pytestmark = pytest.mark.timeout(240)

LEASE = "3"
MINUTES = 2 * 60


@pytest.fixture
def typed_here(database_url: str, broker: LocalNats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which `grns` is found, with the addresses of the servers."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    return tmp_path


async def test_the_agent_is_killed_after_each_step_and_calls_each_tool_once(
    fleet: Fleet, database: Database, typed_here: Path
) -> None:
    written("research.md", typed_here)
    fleet.start("server", GRNS_LEASE_SECONDS=LEASE)
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", "\n".join(blocks("research.md", "bash")), cwd=typed_here, start_new_session=True,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(MINUTES):
            said, _ = await shell.communicate()
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
    calls = (typed_here / "calls.txt").read_text().splitlines()
    assert sorted(calls) == ["plan", "report", "search honey", "search lease", "search work"], said.decode()
    assert (typed_here / "report.md").read_text() == (
        "# What is work?\na queue keeps work\nwork that is lost is work done twice\na lease ends\n"
        "bees make honey\nWell found."
    )
    async with grns.connect() as client:
        (task,) = (await client.list("type:research")).rows
    assert (task.status, task.attempt, task.uncounted_attempts) == ("succeeded", 7, 6)
    assert "Publish: What is work?" in said.decode()


async def test_an_agent_of_pydantic_ai_asks_a_person(
    fleet: Fleet, database: Database, typed_here: Path
) -> None:
    written("pydantic-ai.md", typed_here)
    fleet.start("server")
    fleet.start("worker", "start", "support:pool", PYTHONPATH=str(typed_here))
    async with grns.connect() as client:
        handle = await client.submit("answer_ticket", {"text": "my parcel is late"}, pool="support")

        async def has_asked() -> bool:
            return bool((await client.questions.list()).rows)

        await eventually(has_asked, within_seconds=START_SECONDS)
        (found,) = (await client.questions.list(asked_of="role:support")).rows
        question = await client.questions.get(found.id)
        assert question.evidence == {"order": 7, "euro": 30.0}
        await client.questions.answer(question.id, {"approved": True}, digest=question.digest)
        assert await handle.result(timeout=LIMIT_SECONDS) == "Done: refunded 30.0 for order 7"
        steps = (await client.steps(handle.id)).rows
    assert [step.kind for step in steps].count("step") >= 4
