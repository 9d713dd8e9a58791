"""The agents of `docs/connect.md`: each runs as it stands there, and does its tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.site.page import blocks
from tests.support.harness import START_SECONDS, Fleet, eventually, put_key
from tests.support.store import fetch

TEXTS = ("one", "one two", "To be or not to be")
AGENTS = {
    "python": ("agent.py", [sys.executable, "agent.py"]),
    "sh": ("agent.sh", ["sh", "agent.sh"]),
    "js": ("agent.mjs", ["node", "agent.mjs"]),
    "perl": ("agent.pl", ["perl", "agent.pl"]),
    "java": ("Agent.java", ["java", "Agent.java"]),
}

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("language", AGENTS)
async def test_an_agent_does_its_tasks(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path, language: str
) -> None:
    await put_key(database, tmp_path)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    for text in TEXTS:
        await fetch(
            database,
            "select grns.submit_task('summarise', jsonb_build_object('text', $1::text),"
            " agent_type => 'writer')",
            text,
        )
    name, command = AGENTS[language]
    (tmp_path / name).write_text(blocks("connect.md", language)[-1])
    key = (tmp_path / ".grns" / "api_key").read_text().strip()
    environment = os.environ | {"GRNS_API_URL": url, "GRNS_API_KEY": key}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:

        async def are_done() -> bool:
            rows = await fetch(
                database,
                "select payload ->> 'text' as text, (result ->> 'words')::int as words from grns.tasks",
            )
            return {row["text"]: row["words"] for row in rows} == {text: len(text.split()) for text in TEXTS}

        await eventually(are_done, within_seconds=START_SECONDS)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
