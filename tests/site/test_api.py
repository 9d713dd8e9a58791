"""`docs/api.md` and `docs/agents.md`, followed: their commands and programs are run as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.site.page import blocks
from tests.support.harness import ROOT, START_SECONDS, Fleet, all_in, eventually, put_key, submit
from tests.support.operations import dead_tasks
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)

SERVED = "http://127.0.0.1:8080"
# Each answer behind a line of its own, with its status: no example is refused.
_PROLOGUE = 'set -eu\ncurl() { command curl -w "\\n%{http_code} $*\\n" "$@"; }\n'


@pytest.mark.parametrize(("page", "unseen"), [("api.md", 9), ("agents.md", 4)])
async def test_every_command_of_the_page_works(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path, page: str, unseen: int
) -> None:
    await put_key(database, tmp_path)
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    script = "\n".join(blocks(page))
    # What the page looks at: somebody's failure, and a message that is none.
    await dead_tasks(database, 1)
    await store_rejected(
        database,
        [RejectedMessage("bad_json", "it ends early", "cmd.task.execute.v1", "GRNS_CMD", 7, 2, {}, b"{")],
    )

    async def is_counted() -> bool:
        return bool(await fetch(database, "select from grns.issues"))

    await eventually(is_counted, within_seconds=START_SECONDS)  # before that there is no issue to look at
    told = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", _PROLOGUE + script.replace(SERVED, url)],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert page != "api.md" or "event: evt.task." in told.stdout, "its streams have told of something"
    answers = re.findall(r"^([0-9]{3}) (.*)$", told.stdout, re.M)
    assert len(answers) >= script.count("curl ") - unseen, (
        "those whose output goes elsewhere, or that are cut"
    )
    wrong = [answer for answer in answers if not answer[0].startswith("2")]
    assert [one for one in wrong if one[0] != "409" or not one[1].endswith("/cancel")] == [], (
        "it may have ended"
    )


async def test_the_agent_of_the_page_does_its_tasks_and_ends(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    (program,) = blocks("agents.md", "python")
    path = tmp_path / "agent.py"
    path.write_text(program.replace(SERVED, url))
    await put_key(database, tmp_path)
    key = (tmp_path / ".grns/api_key").read_text()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "AGENT_KEY": key}
    agent = await asyncio.create_subprocess_exec(
        sys.executable, path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        fields = {"agent_type": "writer", "payload": {"text": "To be or not"}}
        made = await submit(database, "summarise", **fields)
        rows = await all_in(database, [made.id], within_seconds=START_SECONDS)
        assert json.loads(rows[made.id]["result"]) == {"words": 4}
        agent.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            told, _ = await agent.communicate()
        assert agent.returncode == 0, told.decode()
    finally:
        if agent.returncode is None:
            agent.kill()
            await agent.wait()
