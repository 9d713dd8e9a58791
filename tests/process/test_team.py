"""A team of agents in processes of their own, and everything that can go wrong with it in one run.

A planner (a pool), two coders over HTTP (one on `grns-client`, one a shell script), and a reviewer over MCP,
who is away first and rejects once. One coder is killed with SIGKILL, the other hangs and is terminated.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient

import grns
from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.mcp.host import called, host
from tests.process.test_api import url_of
from tests.support.harness import ROOT, Fleet, eventually, ready
from tests.support.store import ACTOR, fetch

pytestmark = pytest.mark.timeout(180)

PLANNER = """
import grns

pool = grns.Pool("planner")


@pool.task
async def merge(order: dict, ctx: grns.Context) -> dict:
    parts = await ctx.results()
    code = " ".join(parts[name]["code"] for name in sorted(parts))
    for turn in (1, 2, 3):
        review = await ctx.ask_agent("reviewer", "review_request", {"code": code, "turn": turn}, timeout=60)
        if review.payload["approved"]:
            return {"code": code, "turns": turn, "reviewer": review.from_agent}
        fix = await ctx.fan_out(
            f"fix {turn}", "write_code", [{"name": "fix", "feedback": review.payload["feedback"]}],
            pool="coder", agent="coder-py",
        )
        (fixed,) = await ctx.join(fix)
        code = f"{code} {fixed['code']}"
    raise grns.Fail("no review approves it")
"""
CODER = """
import asyncio, os, sys
import grns


def note(text):
    with open("log", "a") as log:
        log.write(f"{text}\\n")


async def think(name):
    note(f"thinks {name}")
    return f"{name}.py"


async def write_code(payload, task):
    name = payload["name"]
    note(f"begins {name} {task.attempt}")
    code = await task.step("think", think, name)
    if os.environ.get("HANGS") == name:
        note(f"hangs {name}")
        await asyncio.sleep(600)
    return {"code": code}


async def main():
    handlers = {"write_code": write_code}
    async with grns.AgentClient(
        os.environ["GRNS_API_URL"], key=os.environ["GRNS_API_KEY"], agent_type="coder", task_types=handlers,
        name="coder-py", lease_seconds=2,
    ) as client:
        await client.run(handlers)


asyncio.run(main())
"""
SCRIPT = """
while true; do
    CLAIM=$(grns-agent next --pool coder --type write_code --agent coder-sh --wait 1 --lease 600)
    CODE=$?
    [ $CODE = 9 ] && continue
    [ $CODE = 0 ] || { echo "ends $CODE" >> log; exit; }
    eval "$CLAIM"
    echo "script begins $GRNS_ATTEMPT" >> log
    while [ "$HANGS" = yes ] && [ ! -f go ]; do sleep 0.1; done
    grns-agent done '{"code": "schema.sql"}' 2>> refused && echo "script done" >> log
done
"""


@asynccontextmanager
async def program(
    arguments: list[str], place: Path, **environment: str
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a program; it does not outlive the block."""
    output = (place / "output").open("ab")
    process = subprocess.Popen(  # noqa: ASYNC220
        arguments, cwd=place, env=os.environ | environment, stdout=output, stderr=output
    )
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        output.close()


async def key(database: Database, agent: str) -> str:
    """Make a key that is one agent's."""
    made, _ = await create_key(
        database, workspace="default", name=agent, scopes=["work"], agents=[agent], actor=ACTOR
    )
    return made.reveal()


class Team:
    """What the test asks about: the log of the coders, tasks and mail."""

    def __init__(self, database: Database, place: Path) -> None:
        self.database = database
        self.place = place

    @property
    def log(self) -> list[str]:
        """What the coders have written, in order."""
        path = self.place / "log"
        return path.read_text().splitlines() if path.exists() else []

    async def until_logged(self, line: str) -> None:
        """Wait until a coder has written a line."""
        await eventually(self._has(lambda: line in self.log), within_seconds=30)

    @staticmethod
    def _has(look: Callable[[], bool]) -> Any:
        async def ask() -> bool:
            return look()

        return ask

    async def events(self, pattern: str) -> list[str]:
        """Return the kinds of events, in order."""
        rows = await fetch(
            self.database, "select kind from grns.events where kind like $1 order by seq", pattern
        )
        return [row["kind"] for row in rows]


async def review(client: McpClient, *, approved: bool, feedback: str, reads: int) -> dict[str, Any]:
    """Read the request so often, answer it, and acknowledge it; return what was asked."""
    for _ in range(reads):
        found: list[dict[str, Any]] = []
        while not found:
            found = (await called(client, "message_read", agent="reviewer", wait_seconds=5))["items"]
        (request,) = found
    said = {"approved": approved, "feedback": feedback}
    await called(client, "message_send", type="review_result", payload=said, reply_to=request["id"])
    assert await called(client, "message_ack", agent="reviewer", ids=[request["id"]]) == {"acked": 1}
    payload: dict[str, Any] = request["payload"]
    return payload


async def test_a_team_does_its_work_whatever_happens_to_it(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    team = Team(database, tmp_path)
    (tmp_path / "plan.py").write_text(PLANNER)
    (tmp_path / "coder.py").write_text(CODER)
    (tmp_path / "grns-agent").write_text(f'#!/bin/sh\nexec {sys.executable} -m grns.agent.shell "$@"\n')
    (tmp_path / "grns-agent").chmod(0o755)
    server = fleet.start("server", "--api", GRNS_API_PORT="0", GRNS_AGENT_GRACE_SECONDS="1")
    planner = fleet.start("worker", "start", "plan:pool", "--agent", "planner", PYTHONPATH=str(tmp_path))
    url = await url_of(fleet, server)
    await ready(database, planner)
    settings = {"GRNS_API_URL": url, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    python = [sys.executable, "coder.py"]
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:
        await client.agents.put("coder-py", pool="coder", capabilities=["python"])
        await client.agents.put("coder-sh", pool="coder", capabilities=["sql"])
        await client.agents.put("reviewer", pool="reviewer")
        by_py = settings | {"GRNS_API_KEY": await key(database, "coder-py")}
        by_sh = settings | {"GRNS_API_KEY": await key(database, "coder-sh")}
        workflow = client.workflow("form")
        one = workflow.task("write_code", {"name": "api"}, name="api", pool="coder", requires=["python"])
        two = workflow.task("write_code", {"name": "schema"}, name="schema", pool="coder", requires=["sql"])
        last = workflow.task("merge", {}, name="merge", pool="planner", needs=[one, two])
        run = await workflow.submit()

        async with program(python, tmp_path, **by_py, HANGS="api") as first:
            await team.until_logged("hangs api")
            first.kill()
        async with (
            program(python, tmp_path, **by_py),
            program(["sh", "-c", SCRIPT], tmp_path, **by_sh, HANGS="yes"),
        ):
            await team.until_logged("script begins 1")
            told = await client.agents.terminate("coder-sh", graceful=False, reason="it hangs")
            assert told.order == "stop"
            async with program(["sh", "-c", SCRIPT], tmp_path, **by_sh, HANGS="no"):
                await team.until_logged("script begins 2")
                await team.until_logged("script done")
                # It wakes up, and is refused what another one has done since.
                (tmp_path / "go").touch()
                await eventually(team._has(lambda: (tmp_path / "refused").read_text().strip() != ""))
                # The reviewer is away: its mail waits.
                waiting = await _asked(database)
                assert (waiting["to_agent"], waiting["deliveries"]) == ("reviewer", 0)
                async with host(url, await key(database, "reviewer")) as reviewer:
                    asked = await review(reviewer, approved=False, feedback="no tests", reads=2)
                    assert asked == {"code": "api.py schema.sql", "turn": 1}
                    asked = await review(reviewer, approved=True, feedback="", reads=1)
                    assert asked == {"code": "api.py schema.sql fix.py", "turn": 2}
                result: Any = await client.handle(last.id).result(timeout=60)
        assert result == {"code": "api.py schema.sql fix.py", "turns": 2, "reviewer": "reviewer"}
        assert (await run.wait(timeout=30)).status == "succeeded"

    # The step of the first attempt was not run again, and each part was written once.
    assert [line for line in team.log if line.startswith("thinks")] == ["thinks api", "thinks fix"]
    assert [line for line in team.log if line.startswith("begins")] == [
        "begins api 1",
        "begins api 2",
        "begins fix 1",
    ]
    assert team.log.count("script done") == 1
    assert (
        "stale_token" in (tmp_path / "refused").read_text() or "lease" in (tmp_path / "refused").read_text()
    )
    rows = await fetch(database, "select * from grns.tasks order by created_at, id")
    ends = {row["id"]: (row["status"], row["attempt"], row["uncounted_attempts"]) for row in rows}
    assert ends[one.id] == ("succeeded", 2, 1), "an attempt that has recorded a step does not count"
    assert ends[two.id] == ("succeeded", 2, 1), "what is taken from an agent that hangs does not count"
    assert len(ends) == 4
    mail = await fetch(database, "select * from grns.mail order by seq")
    assert [(one["to_agent"], one["from_agent"], one["deliveries"]) for one in mail] == [
        ("reviewer", None, 2), (None, "reviewer", 1), ("reviewer", None, 1), (None, "reviewer", 1),
    ]  # fmt: skip
    assert all(one["acked_at"] is not None for one in mail)
    assert {one["from_task"] for one in mail if one["to_agent"]} == {last.id}
    order = [row["task_type"] for row in await _ended(database)]
    assert sorted(order[:2]) == ["write_code", "write_code"]
    assert order[2:] == ["write_code", "merge"], "the fix before what needs it"
    kinds = await team.events("evt.agent.coder.%")
    assert kinds.count("evt.agent.coder.stop_requested") == 1
    assert kinds.count("evt.agent.coder.started") >= 2


async def _asked(database: Database) -> dict[str, Any]:
    """Wait for the request to the reviewer."""
    found: list[Any] = []

    async def is_sent() -> bool:
        found[:] = await fetch(database, "select * from grns.mail")
        return bool(found)

    await eventually(is_sent, within_seconds=30)
    return dict(found[0])


async def _ended(database: Database) -> list[dict[str, Any]]:
    rows = await fetch(
        database,
        "select t.task_type from grns.events e join grns.tasks t on t.id = e.task_id"
        " where e.kind = 'evt.task.completed' order by e.seq",
    )
    return [dict(row) for row in rows]
