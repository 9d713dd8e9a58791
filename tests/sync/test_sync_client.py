"""The synchronous client: with and without a connection of the caller, after a fork, at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import django
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from pydantic import BaseModel
from sqlalchemy import orm

import grns
from grns import sync
from grns.errors import ConflictError, InvalidInputError
from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.telemetry import current
from grns.worker.finishes import Finish, Finishes
from tests.support.store import claim, fetch, forged

CAUSE = UUID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
NOWHERE = "nats://127.0.0.1:1"


class Page(BaseModel):
    url: str


pool = grns.Pool("worker")


@pool.task("noop")
async def handle(page: Page) -> Page:
    """Return what it gets."""
    return page


@pytest.fixture
def client(shared: Database) -> Iterator[sync.Client]:
    """A client that has no broker."""
    with sync.Client(database_url=shared.url, nats_url=NOWHERE, actor="shop") as client:
        yield client


# ---------------------------------------------------------------- on its own connection


async def test_result_of_a_task_in_its_type(client: sync.Client, shared: Database) -> None:
    made = await asyncio.to_thread(client.submit, handle, Page(url="x"))
    waiting = asyncio.create_task(asyncio.to_thread(made.result, timeout=30))
    owner = await claim(shared, made.id)
    assert await asyncio.to_thread(made.status) == "running"
    succeeded = Finish(owner, Outcome(Verb.SUCCEED, result='{"url": "y"}'), uuid4())
    await Finishes(shared, batch_limit=1).finish(succeeded)
    assert await waiting == Page(url="y")
    assert await asyncio.to_thread(client.handle(made.id).result) == {"url": "y"}


def test_every_method_answers(client: sync.Client) -> None:
    one, two, again = client.submit_many(
        [
            {"task": handle, "payload": Page(url="x"), "idempotency_key": "one"},
            {"task": "other", "pool": "worker"},
            {"task": "other", "pool": "worker", "idempotency_key": "one"},
        ]
    )
    assert isinstance(again, ConflictError)
    assert isinstance(one, sync.TaskHandle)
    assert isinstance(two, sync.TaskHandle)
    assert client.get(one.id).payload == {"url": "x"}
    assert [event.kind for event in one.events()] == ["evt.task.queued"]
    assert [(line.level, line.source) for line in one.logs(limit=1)] == [("INFO", "grns")]
    assert one.cancel(reason="not needed") == "cancelled"
    assert client.wait(one.id, timeout=0).status == "cancelled"
    with pytest.raises(grns.TaskCancelledError):
        one.result(timeout=1)
    assert one.redrive() == "redriven"
    assert client.cancel_many([one.id, two.id]) == {one.id: "cancelled", two.id: "cancelled"}
    assert client.redrive_many([one.id]) == {one.id: "redriven"}
    assert (client.cancel(one.id), client.redrive(one.id)) == ("cancelled", "redriven")
    assert client.list("type:other").rows[0].id == two.id
    assert client.count("pool:worker").number == 2
    assert client.pause("worker", reason="deploy").paused_by == "shop"
    assert client.resume("worker") is not None
    assert client.issues().rows == []
    assert two.redrive() == "redriven"
    assert (two.pause(reason="later"), two.status(), two.resume()) == ("paused", "waiting", "resumed")
    with pytest.raises(grns.NotFoundError):
        client.pause_task("gr-nothing")
    with pytest.raises(grns.WaitTimeoutError):
        two.wait(timeout=0)


def test_workflow_and_schedule_without_await(client: sync.Client, shared: Database) -> None:
    flow = client.workflow("report")
    page = flow.task(handle, Page(url="x"), name="page")
    flow.task("other", pool="worker", name="report", needs=[page])
    run = flow.submit()
    assert (list(run.tasks), run.tasks["page"].id) == (["page", "report"], page.id)
    assert (run.get().status, run.get().total) == ("running", 2)
    assert run.pause(reason="closed").pause_reason == "closed"
    assert run.resume().paused_at is None
    assert [one.id for one in client.workflows("running").rows] == [run.id]
    with pytest.raises(grns.WaitTimeoutError):
        run.wait(timeout=0)
    assert run.cancel().filter.endswith(f"workflow:{run.id}")
    with pytest.raises(ConflictError, match="is being cancelled"):
        run.redrive()
    with client.batch("rows", on_end={"task": handle, "payload": Page(url="x")}) as batch:
        added = batch.submit(handle, Page(url="x"), name="row")
        assert client.workflow_handle(batch.id).get().sealed_at is None
        assert [one.id for one in batch.submit_many([{"task": handle, "payload": Page(url="x")}])] != [
            added.id
        ]
    assert batch.seal().sealed_at is not None
    call = grns.Escalate(handle, Page(url="x"), priority=1)
    import_ = client.workflow("import", fail_after=grns.Failures(count=1, then=["pause", call]))
    import_.task("other", pool="worker")
    assert import_.submit().get().escalation_task_id is None
    lost = client.workflow("lost")
    lost.task(handle, Page(url="x"))
    with psycopg.connect(shared.url) as connection:
        undone = lost.submit(connection=connection)
        connection.rollback()
    with pytest.raises(grns.NotFoundError):
        undone.get()
    made = client.schedules.put("daily", handle, Page(url="x"), every=3600)
    assert [one.name for one in client.schedules.list().rows] == ["daily"]
    assert (client.schedules.get("daily").next_at, client.schedules.runs("daily").rows) == (made.next_at, [])
    assert client.schedules.pause("daily").paused_at is not None
    assert client.schedules.resume("daily").paused_at is None
    span = made.anchor_at - timedelta(hours=2), made.anchor_at
    assert client.schedules.backfill("daily", *span, dry_run=True).times == 0, "an interval begins with it"
    assert client.schedules.prune(dry_run=True).schedules == []
    client.schedules.delete("daily")
    assert client.limits.put("export", pool="agents", max=2).max_tasks == 2
    assert [one.name for one in client.limits.list().rows] == ["export"]
    assert (client.limits.get("export").rate, list(client.limits.keys("export"))) == (None, [])
    assert client.limits.pause("export").paused_at is not None
    assert client.limits.resume("export").paused_at is None
    client.limits.delete("export")


def test_handler_submits_with_either_client(client: sync.Client) -> None:
    made = handle.submit(client, Page(url="x"), priority=0)
    assert isinstance(made, sync.TaskHandle)
    assert made.get().priority == 0


def test_what_an_attempt_submits_belongs_to_its_trace(client: sync.Client) -> None:
    owner = forged("gr-1", attempt=1)
    current.begin(owner)
    try:
        made = client.submit(handle, Page(url="x"))
    finally:
        current.end()
    task = made.get()
    assert (task.trace_id, task.causation_id) == (owner.trace_id, owner.causation_id)


# ---------------------------------------------------------------- on a connection of the caller


@contextmanager
def of_psycopg(url: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    with psycopg.connect(url) as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def of_psycopg_with_dicts(url: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection, connection.commit, connection.rollback


def _sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


@contextmanager
def of_sqlalchemy(url: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    engine = sqlalchemy.create_engine(_sqlalchemy_url(url))
    with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    engine.dispose()


@contextmanager
def of_sqlalchemy_session(url: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    engine = sqlalchemy.create_engine(_sqlalchemy_url(url))
    with orm.Session(engine) as session:
        yield session, session.commit, session.rollback
    engine.dispose()


@contextmanager
def of_django(url: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    from django.db import connections, transaction

    if not django_settings.configured:
        django_settings.configure()
        django.setup()
    place = sqlalchemy.make_url(url)
    connections.databases["grns_test"] = connections.configure_settings(
        {
            "default": {},
            "grns_test": {
                "ENGINE": "django.db.backends.postgresql", "NAME": place.database, "USER": place.username,
                "PASSWORD": place.password, "HOST": place.host, "PORT": place.port,
            },
        }
    )["grns_test"]  # fmt: skip
    connection = connections["grns_test"]
    transaction.set_autocommit(False, using="grns_test")
    yield (
        connection,
        lambda: transaction.commit(using="grns_test"),
        lambda: transaction.rollback(using="grns_test"),
    )
    connection.close()
    del connections["grns_test"]  # the next database is another one


DRIVERS = [of_psycopg, of_psycopg_with_dicts, of_sqlalchemy, of_sqlalchemy_session, of_django]


@pytest.mark.parametrize("driver", DRIVERS)
def test_task_exists_if_the_caller_commits(
    client: sync.Client, shared: Database, driver: Callable[[str], AbstractContextManager[Any]]
) -> None:
    with driver(shared.url) as (connection, commit, rollback):
        lost = client.submit(handle, Page(url="100 %"), connection=connection)
        rollback()
        kept = client.submit(
            handle, Page(url="100 %"), connection=connection, idempotency_key="k", priority=0, delay=60,
            max_attempts=7, causation_id=CAUSE,
        )  # fmt: skip
        again = client.submit(handle, Page(url="100 %"), connection=connection, idempotency_key="k")
        with pytest.raises(ConflictError):
            client.submit(handle, Page(url="other"), connection=connection, idempotency_key="k")
        many = client.submit_many(
            [{"task": handle, "payload": Page(url=str(n))} for n in range(3)], connection=connection
        )
        commit()
    assert (again.id, again.created) == (kept.id, False)
    with pytest.raises(grns.NotFoundError):
        lost.get()
    task = kept.get()
    assert (task.payload, task.priority, task.max_attempts) == ({"url": "100 %"}, 0, 7)
    assert (task.status, task.causation_id) == ("waiting", CAUSE)
    assert [one.get().payload for one in many if isinstance(one, sync.TaskHandle)] == [
        {"url": str(n)} for n in range(3)
    ]
    assert kept.events()[0].actor == "shop"


@pytest.mark.parametrize("driver", DRIVERS)
def test_submit_without_the_schema_says_what_to_run(
    client: sync.Client, shared: Database, driver: Callable[[str], AbstractContextManager[Any]]
) -> None:
    elsewhere = sqlalchemy.make_url(shared.url).set(database="postgres")
    with driver(elsewhere.render_as_string(hide_password=False)) as (connection, _, rollback):
        with pytest.raises(grns.UnavailableError, match="run `grns admin db upgrade`"):
            client.submit(handle, Page(url="x"), connection=connection)
        rollback()


def test_with_a_connection_the_client_opens_none(shared: Database) -> None:
    client = sync.Client(database_url="postgresql://127.0.0.1:1/nowhere", nats_url=NOWHERE)
    with psycopg.connect(shared.url) as connection:
        client.submit("noop", pool="worker", connection=connection)


async def test_connection_of_the_wrong_kind_is_refused(client: sync.Client, shared: Database) -> None:
    theirs = await asyncpg.connect(shared.url)
    with pytest.raises(InvalidInputError, match="asynchronous ones"):
        client.submit(handle, Page(url="x"), connection=theirs)
    await theirs.close()
    with pytest.raises(InvalidInputError, match="not int"):
        client.submit(handle, Page(url="x"), connection=7)
    async with grns.connect(database_url=shared.url, nats_url=NOWHERE) as other:
        with (
            psycopg.connect(shared.url) as connection,
            pytest.raises(InvalidInputError, match="synchronous one"),
        ):
            await other.submit(handle, Page(url="x"), connection=connection)


# ---------------------------------------------------------------- its thread


FORK = """
import os, sys
from grns import sync
client = sync.Client(database_url=sys.argv[1], nats_url="nats://127.0.0.1:1")
client.submit("noop", pool="worker")
if (pid := os.fork()) == 0:
    client.submit("noop", pool="worker")
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
client.submit("noop", pool="worker")
"""


async def test_client_connects_again_after_a_fork_and_holds_up_no_exit(shared: Database) -> None:
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", FORK, shared.url], capture_output=True, timeout=30, check=False
    )
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert len(await fetch(shared, "select from grns.tasks")) == 3


def test_closed_client_opens_again(client: sync.Client) -> None:
    first = client.submit(handle, Page(url="x"))
    client.close()
    client.close()
    assert first.status() == "queued"


def test_thread_that_waits_is_told_of_the_end(client: sync.Client) -> None:
    made = client.submit(handle, Page(url="x"))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(made.wait)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        client.close()
        with pytest.raises(CancelledError):
            waiting.result(timeout=10)


def test_client_that_cannot_connect_says_so_and_tries_again() -> None:
    client = sync.Client(database_url="postgresql://127.0.0.1:1/nowhere", nats_url=NOWHERE)
    for _ in range(2):
        with pytest.raises(grns.UnavailableError):
            client.submit(handle, Page(url="x"))


def test_close_beside_calls_of_other_threads_leaves_none_waiting(client: sync.Client) -> None:
    is_over = threading.Event()

    def ask() -> int:
        asked = 0
        while not is_over.is_set():
            with suppress(grns.GrnsError, CancelledError):  # some are cut off
                client.count()
                asked += 1
        return asked

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(4)]
        for _ in range(20):
            time.sleep(0.02)
            client.close()
        is_over.set()
        assert all(future.result(timeout=20) for future in asking)


def test_client_may_be_closed_from_its_own_thread(client: sync.Client) -> None:
    """A finalizer runs in whichever thread collects it."""
    client.count()
    background = client._background
    assert background is not None

    async def close(_: grns.Client) -> None:
        background.close()

    began_at = time.monotonic()
    client.ask(close)
    background._thread.join(5)
    assert (background._thread.is_alive(), time.monotonic() - began_at < 5) == (False, True)
    assert client.count() is not None


@pytest.mark.parametrize(
    ("module", "names"),
    [("gevent.monkey", {"is_module_patched"}), ("eventlet.patcher", {"is_monkey_patched"})],
)
def test_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch, module: str, names: set[str]) -> None:
    patched = SimpleNamespace(**dict.fromkeys(names, lambda _: True))
    monkeypatch.setitem(sys.modules, module, patched)
    with pytest.raises(InvalidInputError, match="run the application with threads"):
        sync.Client(database_url="postgresql://localhost/none", nats_url=NOWHERE).get("gr-1")
