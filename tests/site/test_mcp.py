"""`docs/mcp.md`, followed: its programs and commands are run as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.mcp.host import host
from tests.process.test_api import url_of
from tests.site.page import blocks, written
from tests.site.shell import run_shell
from tests.support.harness import Fleet, eventually, ready
from tests.support.store import ACTOR

pytestmark = pytest.mark.timeout(180)


async def test_an_agent_submits_a_task_and_works_on_it(
    fleet: Fleet, database: Database, broker: LocalNats, database_url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    written("mcp.md", tmp_path)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    _, command = blocks("mcp.md", "sh")
    assert re.search(r"grns_[0-9a-f]{20}_", await run_shell(command, tmp_path))
    made, _ = await create_key(
        database, workspace="default", name="all", scopes=["submit", "read", "work"], actor=ACTOR
    )
    variables = f"export GRNS_API_KEY={made.reveal()} GRNS_MCP_URL={url}/mcp\n"
    said = await run_shell(f"{variables}python coder.py", tmp_path)
    assert said.startswith("works on a login form\n")
    assert "'status': 'succeeded', 'result': {'commit': 'a1b2c3'}" in said
    worker = fleet.start("worker", "start", "desk:pool", PYTHONPATH=str(tmp_path))
    await ready(database, worker)
    async with host(url, made.reveal()) as client:

        async def is_published() -> bool:
            return "refund" in {one.name for one in (await client.list_tools()).tools}

        await eventually(is_published)
        answer = await client.call_tool("refund", {"order": "1", "amount": 5})
        assert answer.structured_content["result"] == {"refunded": 5.0}
