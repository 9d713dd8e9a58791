"""The programs of the pages, run: pools, submissions in somebody's transaction, what is asked over NATS."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest

import grns
from grns.dev.servers import LocalNats
from grns.model.question import QuestionSummary
from grns.postgres.database import Database
from tests.site.page import blocks, commands, written
from tests.support.harness import Fleet, all_in, eventually, submit
from tests.support.store import fetch

LIMIT_SECONDS = 20


@pytest.fixture
async def bakery(
    fleet: Fleet,
    database: Database,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A directory with the bakery in it, whose worker runs."""
    written("pool.md", tmp_path)
    async with database.connection() as connection:
        await connection.execute("create table orders (bread text)")
    fleet.start("server")
    fleet.start(*shlex.split(commands("pool.md")[0])[1:])
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    return tmp_path


async def test_the_bakery(bakery: Path) -> None:
    async with grns.connect() as client:

        async def ended(task_type: str, payload: dict[str, Any]) -> grns.Task:
            made = await client.submit(task_type, payload, pool="baker")
            return await client.wait(made.id, timeout=LIMIT_SECONDS)

        assert (await ended("bake", {"bread": "white", "loaves": 3})).result == {"baked": 3}
        rye = await ended("bake", {"bread": "rye"})
        assert (rye.status, rye.attempt) == ("succeeded", 2)
        assert (await ended("bake", {"bread": "oat", "loaves": 101})).status == "failed"
        assert (await ended("bake", {"loaves": 1})).status == "failed"
        assert (await ended("knead", {})).result == {"turns": 20}


async def test_pools_with_resources_and_of_several_modules(bakery: Path, fleet: Fleet) -> None:
    for pool in ("crawler:pool", "shop:pool"):
        fleet.start("worker", "start", pool)
    async with grns.connect() as client:
        title = await client.submit("read_title", {"url": "https://example.org"}, pool="crawler")
        sent = await client.submit("send_mail", {"to": "ann"}, pool="shop")
        assert await title.result(timeout=LIMIT_SECONDS) == "the title of https://example.org"
        assert await sent.result(timeout=LIMIT_SECONDS) == "sent to ann"


async def followed_by(client: grns.Client, database: Database, url: str) -> Any:
    """Fetch a page, and return what its follow-up says."""
    fetched = await client.submit("fetch_page", {"url": url}, pool="press")

    async def found() -> Any:
        return await fetch(database, "select id from grns.tasks where payload ->> 'task_id' = $1", fetched.id)

    ((task_id,),) = await eventually(found)
    return await client.handle(task_id).result(timeout=LIMIT_SECONDS)


async def test_workflows(fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path) -> None:
    written("workflows.md", tmp_path)
    fleet.start("server")
    for pool in ("words:pool", "batch:pool", "press:pool"):
        fleet.start("worker", "start", pool, PYTHONPATH=str(tmp_path))
    sys.path.insert(0, str(tmp_path))
    try:
        module, orders = importlib.import_module("words"), importlib.import_module("order")
        after, batch = importlib.import_module("after"), importlib.import_module("batch")
    finally:
        sys.path.remove(str(tmp_path))
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:
        assert await asyncio.wait_for(module.count_letters(client), LIMIT_SECONDS) == 9
        await orders.order(client)
        for rows, status in ((("a", "b"), "succeeded"), (("a", ""), "failed")):
            (tmp_path / "rows.csv").write_text("sku,name\n" + "".join(f"{sku},x\n" for sku in rows))
            assert await batch.read_file(client, str(tmp_path / "rows.csv")) == status
        assert await followed_by(client, database, "https://example.org") == "indexed Example"
        failed = await followed_by(client, database, "ftp://example.org")
        assert failed == "news: ftp://example.org: no safe address"
        measured = await client.submit(module.measure, {"word": "few"})
        published, called, cleaned = await after.follow_up(client, measured.id)
        await measured.wait(timeout=LIMIT_SECONDS)
        assert (await called.wait(timeout=LIMIT_SECONDS)).status == "cancelled"

        async def are_queued() -> bool:
            return {await published.status(), await cleaned.status()} == {"queued"}

        await eventually(are_queued)
    (code,) = blocks("workflows.md", "sql")
    connection = await asyncpg.connect(database.url)
    try:
        assert [row["name"] for row in await connection.fetch(code)] == ["fetch", None]
    finally:
        await connection.close()
    (document,) = blocks("workflows.md", "json")
    done = subprocess.run(  # noqa: ASYNC221 - it is short
        [sys.executable, "-m", "grns", "workflow", "submit", document],
        env=os.environ | {"GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("wf-")


async def test_schedules(fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path) -> None:
    written("schedules.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "reports:pool", PYTHONPATH=str(tmp_path))
    sys.path.insert(0, str(tmp_path))
    try:
        nightly = importlib.import_module("nightly")
    finally:
        sys.path.remove(str(tmp_path))
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:

        async def are_declared() -> bool:
            names = [one.name for one in (await client.schedules.list()).rows]
            return names == ["reports-sweep_files", "reports-write_report"]

        await eventually(are_declared)
        await nightly.put(client)
        async with database.connection() as connection:
            await connection.execute(
                # On a Sunday, the last working day is longer ago than a day.
                "update grns.schedules set anchor_at = anchor_at - interval '4 days',"
                " window_seconds = 4 * 86400, next_at = date_trunc('hour', now()) - interval '3 days'"
            )

        async def submitted() -> bool:
            done = [one.last_task_id for one in (await client.schedules.list()).rows]
            return None not in done

        await eventually(submitted)
        report = await client.schedules.get("reports-write_report")
        assert (await client.wait(report.last_task_id or "", timeout=LIMIT_SECONDS)).result == 1


async def test_limits(fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path) -> None:
    written("limits.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "agents:pool", PYTHONPATH=str(tmp_path))
    sys.path.insert(0, str(tmp_path))
    try:
        limits = importlib.import_module("limits")
    finally:
        sys.path.remove(str(tmp_path))
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:

        async def declared() -> bool:
            return [one.name for one in (await client.limits.list()).rows] == ["model", "tenant"]

        await eventually(declared)
        tasks = [
            await client.submit("summarize", {"tenant_id": tenant, "text": "long"}, pool="agents")
            for tenant in "aaaaaaaabc"
        ]
        assert [await one.result(timeout=LIMIT_SECONDS) for one in tasks] == [4] * 10
        assert (await client.get(tasks[0].id)).limits == ["model", "tenant:a"]
        await limits.put(client)
        assert await declared()


async def test_unique_tasks(fleet: Fleet, database: Database, in_environment: None, tmp_path: Path) -> None:
    _, save = written("unique.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "search:pool", PYTHONPATH=str(tmp_path))
    assert (await program(save)).splitlines() == ["False True", "final"]


async def test_steps(fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path) -> None:
    written("steps.md", tmp_path)
    async with database.connection() as connection:
        await connection.execute("create table bookings (number integer)")
    fleet.start("server")
    for pool in ("research:pool", "bookings:pool", "travel:pool", "offers:pool", "audit:pool"):
        fleet.start("worker", "start", pool, PYTHONPATH=str(tmp_path))
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:
        topic = {"question": "why", "pause_seconds": 3}
        answer = await client.submit("answer", topic, pool="research")
        assert await answer.result(timeout=LIMIT_SECONDS) == "; ".join(
            f"found: why, part {number}" for number in (1, 2, 3)
        )
        assert (await answer.get()).attempt == 3
        shops = [{"price": price} for price in (3, 1, 2)]
        choice = await client.submit("choose", {"shops": shops}, pool="offers")
        assert await choice.result(timeout=LIMIT_SECONDS) in (1, 2)
        trip = await client.submit("book_trip", {"name": "bob"}, pool="travel")
        assert await trip.signal("approved", {"by": "ann"}) in ("kept", "woken")
        assert await trip.result(timeout=LIMIT_SECONDS) == "booked for bob, approved by ann"
        report = await client.submit("report_import", {"task_type": "order"}, pool="audit")
        order = await client.submit("order", {"number": 7}, pool="bookings")
        assert await report.result(timeout=LIMIT_SECONDS) == f"{order.id} has succeeded"
        assert await order.result(timeout=LIMIT_SECONDS) == 7


async def test_progress(fleet: Fleet, database: Database, in_environment: None, tmp_path: Path) -> None:
    _, save = written("progress.md", tmp_path)
    short = {"PYTHONPATH": str(tmp_path), "GRNS_LEASE_SECONDS": "3"}
    fleet.start("server", **short)
    worker = fleet.start("worker", "start", "pages:pool", **short)
    assert await program(save) == "900\n"
    async with grns.connect() as client:
        handle = await client.submit("read_pages", {"pages": 5, "seconds": 1.0}, pool="pages")

        async def has_read_two() -> bool:
            return bool((await handle.get()).checkpoint_data == {"page": 2, "words": 600})

        await eventually(has_read_two, within_seconds=LIMIT_SECONDS)
        worker.kill()
        fleet.start("worker", "start", "pages:pool", **short)
        watched = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "grns", "task", "watch", handle.id,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await watched.communicate()
        task = await handle.get()
    assert (task.status, task.result, task.attempt) == ("succeeded", 1500, 2)
    assert "40 %, page 3 of 5 (40 of 100)" in said.decode()
    assert task.checkpoint_data == {"page": 5, "words": 1500}


async def test_labels_and_logs(fleet: Fleet, in_environment: None, tmp_path: Path) -> None:
    (labelled,) = written("labels.md", tmp_path)
    assert await program(labelled) == "The front page ['relaunch', 'site:main'] {'ticket': 4711}\n"
    _, read = written("logs.md", tmp_path)
    fleet.start("worker", "start", "import_orders:pool", PYTHONPATH=str(tmp_path))
    async with grns.connect() as client:
        handle = await client.submit("import_orders", {"shop": "x"}, pool="importer")
        assert await handle.result(timeout=LIMIT_SECONDS) == 17
    shown = subprocess.run(  # noqa: ASYNC221 - it is short
        [sys.executable, "-m", "grns", "task", "logs", handle.id], capture_output=True, text=True, check=True
    ).stdout
    assert "begins shop=" in shown
    assert "orders without an address" in shown
    shown = subprocess.check_output([sys.executable, str(read), handle.id], text=True)  # noqa: ASYNC221
    assert shown == "WARN orders without an address {'shop': 'x', 'skipped': 3}\n"


async def test_output(fleet: Fleet, in_environment: None, tmp_path: Path) -> None:
    _, read = written("output.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "writer:pool", PYTHONPATH=str(tmp_path))
    assert await program(read) == "Once upon a time, a cat slept. | succeeded\n"
    async with grns.connect() as client:
        handle = await client.submit("write_story", {"hero": "a dog"}, pool="writer")
        tailed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "grns", "task", "tail", handle.id,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, notes = await tailed.communicate()
    assert said.decode() == 'begins: {"model": "tiny", "words": 7}\nOnce upon a time, a dog slept. \n'
    assert "the task is succeeded: no more comes" in notes.decode()
    assert tailed.returncode == 0


async def test_questions_to_people(
    fleet: Fleet, database: Database, in_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("people.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "refunds:pool", PYTHONPATH=str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (commands,) = blocks("people.md", "bash")
    async with grns.connect() as client:
        handle = await client.submit("refund_order", {"number": 7}, pool="refunds")

        async def has_asked() -> list[QuestionSummary]:
            return (await client.questions.list()).rows

        await eventually(has_asked, within_seconds=LIMIT_SECONDS)
        done = await asyncio.create_subprocess_exec("bash", "-ec", commands, stdout=asyncio.subprocess.PIPE)
        said, _ = await done.communicate()
        assert done.returncode == 0, said
        assert "Refund order 7?" in said.decode()
        result = await handle.result(timeout=LIMIT_SECONDS)
    assert result.startswith("30.0 euro for cli:")


async def test_what_is_submitted(bakery: Path, database: Database, database_url: str) -> None:
    for path in written("submit.md", bakery):
        printed = await program(path)
        assert "{'baked': 1}" in printed or "2000 tasks" in printed, (path, printed)
    (code,) = blocks("submit.md", "sql")
    connection = await asyncpg.connect(database_url)
    try:
        for _ in range(2):  # the same key is the same task
            await connection.execute(code)
        rows = await connection.fetch("select bread, count(*) from orders group by 1 order by 1")
        assert [tuple(row) for row in rows] == [("oat", 2), ("rye", 1), ("white", 1)]
        made = await connection.fetch("select id from grns.tasks where idempotency_key = 'oat-1'")
    finally:
        await connection.close()
    (row,) = (await all_in(database, [made[0]["id"]], within_seconds=LIMIT_SECONDS)).values()
    assert row["status"] == "succeeded"


async def test_a_task_is_asked_for_in_any_language(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    (code,) = blocks("languages.md")
    known = await submit(database, "bake")
    seen: list[str] = []
    async with grns.connect(database_url=database.url, nats_url=broker.url) as client:

        async def note(event: grns.Event, _connection: Any) -> None:
            seen.append(event.task_id or "")

        fleet.start("server")
        await from_nats(broker.url, code, known.id)
        subscription = await client.subscribe("seen", note)

        async def is_told() -> bool:
            return known.id in seen

        await eventually(is_told, within_seconds=LIMIT_SECONDS)
        await subscription.stop()


def test_what_is_said_of_guarantees_is_a_pool() -> None:
    names: dict[str, Any] = {"grns": grns, "pool": grns.Pool("worker")}
    for code in blocks("guarantees.md", "python"):
        exec(code, names)  # noqa: S102 - it is our own page
    assert set(names["pool"].handlers) == {"charge", "order_paper"}


def test_every_program_can_be_read() -> None:
    from tests.site.page import names

    for page in names():
        for code in blocks(page, "python"):
            ast.parse(code)


async def program(path: Path) -> str:
    """Run a program to its end, and return what it wrote; it has to end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def from_nats(url: str, code: str, task_id: str) -> None:
    """Publish what a page gives to `nats pub`."""
    words = shlex.split(code.replace("TASK_ID", task_id))
    assert words[:2] == ["nats", "pub"]
    json.loads(words[3])
    client = await nats.connect(url)
    try:
        await client.publish(words[2], words[3].encode())
        await client.flush()
    finally:
        await client.close()
