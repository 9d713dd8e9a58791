"""`docs/presence.md`, followed: its commands are run as they stand there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import grns
from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.site.page import blocks, written
from tests.support.harness import Fleet
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)


async def test_an_agent_is_registered_works_and_ends(
    fleet: Fleet, database: Database, database_url: str, broker: LocalNats, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    written("presence.md", tmp_path)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    commands, requests = blocks("presence.md", "sh")
    said = await _shell(commands, tmp_path)
    assert "healthy" in said
    assert "stopped" in said
    assert "a new model" in said
    key, _ = await create_key(database, workspace="default", name="shell", scopes=["work"], actor="cli:test")
    variables = (
        f"API={await url_of(fleet, server)}/api/v1\nAUTH='Authorization: Bearer {key.reveal()}'\n"
        "JSON='Content-Type: application/json'\n"
    )
    said = await _shell(variables + requests, tmp_path)
    assert said.count('{"order":null,"reason":null}') == 2, said
    async with grns.connect() as client:
        agent = await client.agents.get("shell-1")
    assert (agent.health, agent.stale_threshold_seconds) == ("stopped", 180)
    kinds = [row["kind"] for row in await fetch(database, "select kind from grns.events order by seq")]
    for event in ("registered", "started", "drain_requested", "stopped"):
        assert f"evt.agent.coder.{event}" in kinds


async def _shell(script: str, directory: Path) -> str:
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=directory, start_new_session=True,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            said, _ = await shell.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return said.decode()
