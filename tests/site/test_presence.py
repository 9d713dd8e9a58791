"""`docs/presence.md`, followed: its commands are run as they stand there."""

from __future__ import annotations

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
from tests.support.harness import Fleet, eventually
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
    said = await run_shell(commands, tmp_path)
    assert "healthy" in said
    assert "stopped" in said
    assert "a new model" in said
    said = await run_shell(
        await request_variables(database, await url_of(fleet, server)) + requests, tmp_path
    )
    assert said.count('{"order":null,"reason":null}') == 2, said
    async with grns.connect() as client:
        agent = await client.agents.get("shell-1")
    assert (agent.health, agent.stale_threshold_seconds) == ("stopped", 180)
    told = {f"evt.agent.coder.{event}" for event in ("registered", "started", "drain_requested", "stopped")}

    async def are_told() -> bool:  # the reaper writes some of them, at its next look
        rows = await fetch(database, "select distinct kind from grns.events")
        return told <= {row["kind"] for row in rows}

    await eventually(are_told)
