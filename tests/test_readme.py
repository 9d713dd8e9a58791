"""The README, followed: its pool, its programs and its commands are run as they stand there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest

import grns
from grns import cli
from grns.dev.servers import LocalNats
from grns.dev.servers.port import free_port
from grns.postgres.database import Database
from grns.settings import Settings
from tests.harness import ROOT, Fleet, all_in, eventually, put_key, submit

README = (ROOT / "README.md").read_text()
LIMIT_SECONDS = 20


def block(language: str, containing: str) -> str:
    """Return the only block of this language in which these words stand."""
    found = [
        code for code in re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M) if containing in code
    ]
    assert len(found) == 1, (language, containing)
    code: str = found[0]
    return code


def commands(code: str) -> list[str]:
    """Return the commands of a shell block, without what stands behind them."""
    return [line for line in re.sub(r"\s+#.*", "", code).splitlines() if line and not line.startswith("#")]


async def program(path: Path) -> str:
    """Run a program to its end, and return what it wrote; it has to end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_the_pool_and_all_ways_to_use_it(
    fleet: Fleet,
    database: Database,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "shop.py").write_text(block("python", "# shop.py"))
    (tmp_path / "ask.py").write_text(block("python", "async def main()"))
    async with database.connection() as connection:
        await connection.execute(
            "create table payments (order_id text); create table invoices (task_id text, kind text)"
        )
    await put_key(database, tmp_path)
    port = free_port()
    fleet.start("server", "--api", GRNS_API_PORT=str(port))
    fleet.start(*shlex.split(commands(block("sh", "--concurrency 20"))[0])[1:])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)

    async with grns.connect(database_url=database_url, nats_url=broker.url) as client:
        subscription = await subscribe(client)
        printed = await program(tmp_path / "ask.py")
        assert printed.split(maxsplit=1)[0].lower().endswith("succeeded")
        assert "'fetched': 'https://example.org'" in printed

        charged = await client.submit("charge", {"id": "order-7"})
        done = await client.wait(charged.id, timeout_seconds=LIMIT_SECONDS)
        assert (done.status, done.result) == ("succeeded", {"paid": True})

        again = await from_sql(database_url, block("sql", "grns.submit_task"))
        assert (await client.get(again)).task_type == "fetch_page", "the same key is the same task"

        failed = await from_the_shell()
        assert "only https" in str((await client.get(failed)).last_error)

        await from_curl(port, client)

        known = await submit(database, "fetch_page", payload={"url": "https://example.org/nats"})
        await from_nats(broker.url, block("sh", "nats pub"), known.id)
        await all_in(database, [known.id], within_seconds=LIMIT_SECONDS)

        await eventually(lambda: invoiced(database, {again, charged.id, known.id}))
        await subscription.stop()
    async with database.connection() as connection:
        assert await connection.fetchval("select array_agg(order_id) from payments") == ["order-7"]


async def subscribe(client: grns.Client) -> grns.Subscription:
    """Run the README's subscription."""
    code = "async def subscribed(client):\n" + textwrap.indent(block("python", "on_event"), "    ")
    names: dict[str, Any] = {"grns": grns}
    exec(code + "    return subscription\n", names)  # noqa: S102 - it is our own README
    subscription: grns.Subscription = await names["subscribed"](client)
    return subscription


async def from_sql(url: str, code: str) -> str:
    """Run the README's SQL, and return the task's id."""
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval(code))
    finally:
        await connection.close()


def typed(*words: str) -> tuple[int, str]:
    """Run one command line of grns, in this process; returns its exit code and what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = cli.run(words)
    return code, printed.getvalue()


async def from_the_shell() -> str:
    """Type the README's commands; returns the id of the task that failed."""
    lines = commands(block("sh", "grns task list"))
    assert [line for line in lines if "tail" in line] == ["grns events tail"]  # has a test of its own
    task_id = ""
    for line in lines:
        if "tail" in line:
            continue
        name, *words = shlex.split(line.replace("TASK_ID", task_id))
        assert name == "grns"
        code, printed = await asyncio.to_thread(typed, *words)
        assert code == 0, (line, printed)
        if "ftp:" in line:
            task_id = printed.strip()
            ended, _ = await asyncio.to_thread(typed, "task", "wait", task_id, "--timeout", "20")
            assert ended == 1
    return task_id


async def from_curl(port: int, client: grns.Client) -> None:
    """Type the README's curl commands; each has to be answered well, and with what is said of it."""
    api, auth, json_type, *lines = commands(block("sh", "API=http").replace("8080", str(port)))
    said: dict[str, dict[str, Any]] = {}
    task_id = key = ""
    for line in lines:
        asked = line.replace("TASK_ID", task_id).replace("KEY", key)
        answer = await curl(
            f"{api}\n{auth}\n{json_type}\n{asked.replace('curl ', 'curl --fail-with-body ', 1)}"
        )
        if "ftp:" in line:
            task_id = answer["id"]
            assert (await client.wait(task_id, timeout_seconds=LIMIT_SECONDS)).status == "failed"
        key = answer.get("key", key)
        said[line.split("$API")[1].split()[0]] = answer
    assert task_id in {row["id"] for row in said["/tasks"]["items"]}
    assert said["/tasks/TASK_ID/redrive"]["answer"] == "redriven"
    assert (await client.wait(task_id, timeout_seconds=LIMIT_SECONDS)).status == "succeeded"
    assert said["/pools/worker/resume"]["reason"] == "deploy"
    assert said["/counts"]["total"] >= 1


async def curl(script: str) -> dict[str, Any]:
    """Run a script whose last line asks the API, and return the answer; `curl` has to be installed."""
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-euc", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, (script, done.stdout)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def from_nats(url: str, code: str, task_id: str) -> None:
    """Publish what the README gives to `nats pub`."""
    words = shlex.split(code.replace("TASK_ID", task_id))
    assert words[:2] == ["nats", "pub"]
    json.loads(words[3])
    client = await nats.connect(url)
    try:
        await client.publish(words[2], words[3].encode())
        await client.flush()
    finally:
        await client.close()


async def invoiced(database: Database, wanted: set[str]) -> bool:
    """Tell whether the subscription has written these tasks, and each once."""
    async with database.connection() as connection:
        rows = [row["task_id"] for row in await connection.fetch("select task_id from invoices")]
    assert len(rows) == len(set(rows))
    return wanted <= set(rows)


def test_its_links_lead_somewhere() -> None:
    named = r"`((?:[a-z]+/)+[A-Za-z_.]*|[A-Z]+\.md|docker-compose\.yml)`"
    for path in [*re.findall(named, README), *re.findall(r"\]\(([a-zA-Z/.]+)\)", README)]:
        assert (ROOT / path).exists(), path


def test_its_make_targets_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", text, re.M):
            assert re.search(rf"^{''.join(target)}:", makefile, re.M), target


def test_its_commands_and_settings_are_there() -> None:
    for line in commands(block("sh", "grns retry-scheduler")):
        words = shlex.split(line)
        if words[0] == "export":
            assert words[1].partition("=")[0] in ("GRNS_DATABASE_URL", "GRNS_NATS_URL")
            continue
        code, helped = typed(words[1], *words[2:3] * (words[1] == "db"), "--help")
        assert code == 0
        for flag in (word for word in words if word.startswith("--")):
            assert flag in helped
    elsewhere = {"POSTGRES_PASSWORD"}  # docker-compose.yml's
    for name in re.findall(r"\bGRNS_([A-Z_]+[A-Z])\b", README):
        assert name.lower() in Settings.model_fields or name in elsewhere, name
