"""`grns-client`, installed alone into an environment of its own: a worker without Postgres and NATS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from grns.access.keys import create_key
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.support.harness import ROOT, Fleet, all_in, submit
from tests.support.store import ACTOR, row_of

pytestmark = pytest.mark.timeout(180)

MOST_PACKAGES = 8
HEAVY = ("asyncpg", "nats", "sqlalchemy", "pydantic", "orjson")
WORKER = """
import asyncio, os, sys
import grns

async def one():
    return {"n": 1}

async def work(payload, task):
    task.progress(50, "half")
    task.checkpoint({"page": 1})
    task.stream("hello")
    value = await task.step("one", one)
    await task.sleep(2.5)
    answer = await task.approve("go", title="Go on?", timeout=0.1, default=True)
    return {"value": value, "payload": payload, "attempt": task.attempt, "approved": answer.value}

async def main():
    key = os.environ["GRNS_API_KEY"]
    async with grns.AgentClient(os.environ["GRNS_API_URL"], key=key, task_types=["noop"]) as client:
        async for task in client.tasks():
            async with task:
                task.result = await work(task.payload, task)
            if task.status == "succeeded":
                client.stop()

asyncio.run(main())
print([name for name in os.environ["HEAVY"].split() if name in sys.modules])
"""


def run(*arguments: str | Path, **environment: str) -> str:
    """Run a program, and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    found = subprocess.run(
        [str(one) for one in arguments], capture_output=True, text=True, timeout=150, env=clean | environment
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


async def test_a_worker_needs_nothing_else(fleet: Fleet, database: Database, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT / "client")
    (wheel,) = (tmp_path / one for one in os.listdir(tmp_path) if one.endswith(".whl"))
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    names = {one["name"] for one in listed} - {"pip", "setuptools"}
    assert len(names) <= MOST_PACKAGES, names
    key, _ = await create_key(database, workspace="default", name="worker", scopes=["work"], actor=ACTOR)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    settings = {"GRNS_API_URL": await url_of(fleet, server), "GRNS_API_KEY": key.reveal()}
    made = await submit(database, payload={"text": "é"})
    (tmp_path / "worker.py").write_text(WORKER)
    assert run(python, tmp_path / "worker.py", **settings, HEAVY=" ".join(HEAVY)) == "[]\n"
    row = await row_of(database, made.id)
    result = json.loads(row["result"])
    assert result == {"value": {"n": 1}, "payload": {"text": "é"}, "attempt": 3, "approved": True}
    other = await submit(database)
    text = 'set -e; CLAIM=$(grns-agent next --type noop); eval "$CLAIM"; grns-agent beat; grns-agent done 5'
    run("sh", "-c", text, **settings, PATH=f"{python.parent}:/usr/bin:/bin")
    await all_in(database, [other.id], within_seconds=10)
