"""`docs/mail.md` and `docs/routing.md`, followed: their programs and commands are run as they stand there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.site.page import blocks, written
from tests.site.shell import request_variables, run_shell
from tests.support.harness import Fleet, all_in, ready
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def place(tmp_path: Path, database_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which commands and programs find the servers."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    return tmp_path


async def test_mail_is_sent_read_and_answered(fleet: Fleet, database: Database, place: Path) -> None:
    written("mail.md", place)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    said = await run_shell("python review.py", place)
    assert said.splitlines() == ["coder-1 asks for a review of fix-1", "fine: True, about fix-1"]
    commands, requests = blocks("mail.md", "sh")
    said = await run_shell(commands, place)
    assert "1 acknowledged" in said
    assert said.count("review_request") == 2, "one of the program, and one of the shell"
    said = await run_shell(await request_variables(database, url, "read") + requests, place)
    assert '{"acked":1}' in said
    assert '"type":"hello"' in said


async def test_tasks_go_to_the_agents_that_may_run_them(
    fleet: Fleet, database: Database, place: Path
) -> None:
    written("presence.md", place)
    written("routing.md", place)
    fleet.start("server")
    async with grns.connect() as client:
        await client.agents.put("coder-1", pool="coder", capabilities=["python", "sql"])
    (commands,) = blocks("routing.md", "sh")
    said = await run_shell(f"python assign.py\n{commands}", place)
    rows = await fetch(database, "select id, route from grns.tasks order by route")
    assert [row["route"] for row in rows] == ["a:coder-1", "a:coder-1", "c:python,sql", "c:sql"], said
    other = fleet.start("worker", "start", "coder:pool", PYTHONPATH=str(place))
    await ready(database, other)
    await asyncio.sleep(3)
    assert await fetch(database, "select from grns.tasks where attempt > 0") == []
    fleet.start("worker", "start", "coder:pool", "--agent", "coder-1", PYTHONPATH=str(place))
    await all_in(database, [row["id"] for row in rows], within_seconds=30)
    owners = await fetch(
        database,
        "select distinct payload ->> 'agent_id' as life from grns.events where kind = 'evt.task.claimed'",
    )
    (agent,) = await fetch(database, "select agent_id from grns.agents where name = 'coder-1'")
    assert [row["life"] for row in owners] == [agent["agent_id"]]
