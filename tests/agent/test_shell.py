"""`grns-agent`: a shell script that is an agent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx2
import pytest

import grns
from grns.agent.listener import WakeupListener
from grns.client.client import Client
from grns.postgres.database import Database
from tests.agent.test_client import url as url
from tests.support.api import Door
from tests.support.harness import LIMIT_SECONDS, eventually, submit
from tests.support.store import cancel, fetch, row_of

NEXT = 'CLAIM=$(grns-agent next --type noop --wait 10) && eval "$CLAIM"\n'


async def script(text: str, url: str, key: str, tmp_path: Path) -> tuple[int, str, str]:
    """Run a shell script; return its exit code and what it printed."""
    program = tmp_path / "grns-agent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m grns.agent.shell "$@"\n')
    program.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", text,
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "GRNS_API_URL": url, "GRNS_API_KEY": key},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_script_claims_a_task_and_ends_it(
    url: str, door: Door, shared: Database, tmp_path: Path
) -> None:
    made = await submit(shared, payload={"text": 'it\'s "é" $HOME'})
    key = await door.key("work", workspace="default")
    text = f"""{NEXT}
        echo "$GRNS_PAYLOAD"
        grns-agent beat --percent 50 --step reads --checkpoint '{{"page": 1}}'
        grep -c x /dev/null
        echo '{{"words": 4}}' | grns-agent done -
    """
    code, out, err = await script(text, url, key, tmp_path)
    assert (code, err) == (0, "")
    payload, renewed, _, done = out.splitlines()
    assert json.loads(payload) == {"text": 'it\'s "é" $HOME'}
    assert json.loads(renewed)["cancel_requested"] is False
    assert json.loads(done) == {"status": "succeeded"}
    row = await row_of(shared, made.id)
    assert json.loads(row["result"]) == {"words": 4}


@pytest.mark.parametrize(
    ("command", "status", "error_class"),
    [
        ("fail 'no page'", "retry_wait", "AgentError"),
        ("fail 'no page' --class NoPage --final", "failed", "NoPage"),
        ("fail 'no page' --after 3600", "retry_wait", "AgentError"),
        ("release --reason deploy", "queued", None),
    ],
)
async def test_a_script_ends_a_task_otherwise(
    url: str, door: Door, shared: Database, tmp_path: Path, command: str, status: str, error_class: str | None
) -> None:
    made = await submit(shared)
    key = await door.key("work", workspace="default")
    code, out, _ = await script(f"{NEXT}grns-agent {command}", url, key, tmp_path)
    assert (code, json.loads(out)) == (0, {"status": status})
    error = (await row_of(shared, made.id))["last_error"]
    assert (None if error is None else json.loads(error)["class"]) == error_class


async def test_a_script_learns_that_its_task_was_cancelled(
    url: str, door: Door, shared: Database, tmp_path: Path
) -> None:
    made = await submit(shared)
    key = await door.key("work", workspace="default")
    code, out, _ = await script("grns-agent next --type noop --json", url, key, tmp_path)
    assert code == 0
    token = json.loads(out)["token"]
    await cancel(shared, made.id)
    code, _, _ = await script(f"GRNS_TOKEN={token} grns-agent beat", url, key, tmp_path)
    assert code == 1


async def test_exit_codes(url: str, door: Door, tmp_path: Path) -> None:
    key = await door.key("work", workspace="default")
    assert (await script("grns-agent next --type noop --wait 0", url, key, tmp_path))[0] == 9
    code, _, err = await script("grns-agent done", url, key, tmp_path)
    assert (code, "GRNS_TOKEN is not set" in err) == (2, True)
    code, _, err = await script("GRNS_TOKEN=x grns-agent done '{'", url, key, tmp_path)
    assert (code, "not JSON" in err) == (2, True)
    code, _, err = await script("grns-agent next --type noop", url, "grns_nonsense", tmp_path)
    assert (code, "grns_nonsense" in err) == (7, False)
    code, _, err = await script("grns-agent read none", url, key, tmp_path)
    assert (code, "there is no agent none" in err) == (3, True)
    code, _, err = await script(
        "GRNS_API_URL=http://127.0.0.1:1 grns-agent next --type noop", url, key, tmp_path
    )
    assert (code, "does not answer" in err) == (5, True)


async def test_scripts_write_to_each_other(
    url: str, door: Door, client: Client, shared: Database, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        await client.agents.put(name, pool="worker")
    made = await submit(shared)
    key = await door.key("work", workspace="default")
    text = f'{NEXT}grns-agent send review --to two --from one --about fix-1 --payload \'{{"branch": "b"}}\''
    assert (await script(text, url, key, tmp_path))[0] == 0
    (row,) = await fetch(shared, "select from_task, from_attempt from grns.mail")
    assert (row["from_task"], row["from_attempt"]) == (made.id, 1), "it is fenced by the attempt"
    code, out, _ = await script("grns-agent read two", url, key, tmp_path)
    mail = json.loads(out)
    assert (code, mail["type"], mail["payload"], mail["from_agent"]) == (0, "review", {"branch": "b"}, "one")
    assert (await script(f"grns-agent ack two {mail['id']}", url, key, tmp_path))[1] == '{"acked": 1}\n'
    assert (await script("grns-agent read two", url, key, tmp_path))[0] == 9


async def test_a_wakeup_wakes_the_loop(url: str, door: Door, shared: Database) -> None:
    key = await door.key("work", workspace="default")
    done = asyncio.Event()

    async def work(_payload: dict[str, object]) -> None:
        done.set()

    async with (
        grns.AgentClient(url, key=key, task_types=["noop"]) as client,
        WakeupListener(client) as listener,
    ):

        async def rest() -> None:
            async for task in client.tasks(wait_seconds=0, pause_seconds=600):
                async with task:
                    await work(task.payload)

        running = asyncio.create_task(rest())
        await asyncio.sleep(0.7)  # it has asked, and rests
        await submit(shared)
        async with httpx2.AsyncClient() as server:
            place = f"http://127.0.0.1:{listener.port}"
            assert (await server.post(f"{place}/other")).status_code == 404
            assert (await server.get(f"{place}/task")).status_code == 501
            assert not done.is_set()

            async def is_woken() -> bool:
                assert (await server.post(f"{place}/task", json={"agent": "one"})).status_code == 202
                return done.is_set()

            await eventually(is_woken)
        client.stop()
        client.nudged()
        await asyncio.wait_for(running, LIMIT_SECONDS)


async def test_a_life_is_one_run_of_a_script(tmp_path: Path) -> None:
    """Its subshells and pipes have that life, too; a script that is started again has another one."""
    life = f"{sys.executable} -c 'from grns.agent.shell import _life; print(_life())'"
    (tmp_path / "agent.sh").write_text(
        f'{life}\nA=$({life}); echo "$A"; {life} | cat; ( true; {life}; true )\n'
    )
    said = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "sh ./agent.sh; true", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert len(out.split()) == 4
        said.append(set(out.split()))
    assert [len(one) for one in said] == [1, 1]
    assert said[0] != said[1]
