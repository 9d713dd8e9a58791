"""The README, followed: its pool, its programs and its commands run as they stand there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shlex
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import grns
from grns import cli
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import ROOT, Fleet, eventually

README = (ROOT / "README.md").read_text()
EVENTS = (ROOT / "docs" / "events.md").read_text()
LIMIT_SECONDS = 20
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)


def block(language: str, containing: str, text: str = README) -> str:
    """Return the only code block of this language that contains these words."""
    found = [code for name, code in FENCE.findall(text) if name == language and containing in code]
    assert len(found) == 1, (language, containing)
    code: str = found[0]
    return code


def commands(code: str) -> list[str]:
    """Return the commands of a shell block without their comments."""
    return [line for line in re.sub(r"\s+#.*", "", code).splitlines() if line]


def test_readme_is_short() -> None:
    prose = re.sub(r"<[^>]*>|\]\([^)]*\)", "", FENCE.sub("", README))
    assert len(README.splitlines()) <= 130
    assert len(re.findall(r"[A-Za-z][\w'-]*", prose)) <= 700
    assert len(FENCE.findall(README)) <= 5


async def test_readme_followed_from_submit_to_redrive(
    fleet: Fleet,
    database: Database,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "pages.py").write_text(block("python", "# pages.py"))
    async with database.connection() as connection:
        await connection.execute(
            "create table orders (url text); create table invoices (task_id text, kind text)"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    work, *submits = commands(block("sh", "grns worker"))
    fleet.start("server")
    fleet.start(*shlex.split(work)[1:])

    async with grns.connect(database_url=database_url, nats_url=broker.url) as client:
        subscription = await subscribe(client)
        printed, failed = [await typed(line) for line in submits]
        assert "succeeded" in printed
        assert "https://example.org" in printed
        task_id = failed.strip()
        assert (await client.wait(task_id, timeout=LIMIT_SECONDS)).status == "failed"

        ordered = await from_an_app(client, database_url)
        done = await client.wait(ordered, timeout=LIMIT_SECONDS)
        assert done.result == {"fetched": "https://example.org/7", "attempt": 1}
        by_sql = await from_sql(database_url)
        await client.wait(by_sql, timeout=LIMIT_SECONDS)

        listing, explaining, redriving_one, redriving = commands(block("sh", "grns issue list"))
        assert redriving_one == "grns task redrive TASK_ID"
        await eventually(lambda: shows(listing, "only https"))
        assert "only https" in await typed(explaining.replace("TASK_ID", task_id))
        await typed(f"{redriving} --yes")
        assert (await client.wait(task_id, timeout=LIMIT_SECONDS)).status == "succeeded"

        await eventually(lambda: invoiced(database, {ordered, by_sql, task_id}))
        await subscription.stop()
    async with database.connection() as connection:
        assert await connection.fetchval("select array_agg(url) from orders") == ["https://example.org/7"]


async def from_an_app(client: grns.Client, url: str) -> str:
    """Call the README's `place_order` with a connection of its own."""
    names: dict[str, Any] = {"grns": grns, "asyncpg": asyncpg}
    exec(block("python", "place_order"), names)  # noqa: S102 - it is our own README
    place_order: Callable[..., Awaitable[str]] = names["place_order"]
    connection = await asyncpg.connect(url)
    try:
        return await place_order(client, connection, "https://example.org/7")
    finally:
        await connection.close()


async def from_sql(url: str) -> str:
    """Run the README's SQL, and return the task's id."""
    (code,) = re.findall(r"`(select grns\.submit_task\(.*?\))`", README, re.S)
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval(code))
    finally:
        await connection.close()


async def subscribe(client: grns.Client) -> grns.Subscription:
    """Run the subscription of the page about events."""
    code = "async def subscribed(client):\n" + textwrap.indent(block("python", "on_event", EVENTS), "    ")
    names: dict[str, Any] = {"grns": grns}
    exec(code + "    return subscription\n", names)  # noqa: S102 - it is our own page
    subscription: grns.Subscription = await names["subscribed"](client)
    return subscription


async def typed(line: str) -> str:
    """Run one command line of grns in this process, and return what it printed; it must succeed."""
    name, *words = shlex.split(line)
    assert name == "grns"

    def run() -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = cli.run(words)
        return code, printed.getvalue()

    code, printed = await asyncio.to_thread(run)
    assert code == 0, (line, printed)
    return printed


async def shows(line: str, text: str) -> bool:
    """Tell whether a command prints this."""
    return text in await typed(line)


async def invoiced(database: Database, wanted: set[str]) -> bool:
    """Tell whether the subscription has written these tasks, and each once."""
    async with database.connection() as connection:
        rows = [row["task_id"] for row in await connection.fetch("select task_id from invoices")]
    assert len(rows) == len(set(rows))
    return wanted <= set(rows)


def test_readme_links_exist() -> None:
    named = r"`((?:[a-z]+/)+[A-Za-z_.]*|[A-Z]+\.md|docker-compose\.yml)`"
    for path in [*re.findall(named, README), *re.findall(r"\]\(([a-zA-Z/.-]+)\)", README)]:
        assert (ROOT / path).exists(), path


def test_make_targets_in_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", text, re.M):
            assert re.search(rf"^{''.join(target)}:", makefile, re.M), target
