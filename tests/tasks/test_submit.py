"""Submitting: once per key, in whoever's transaction, and nothing of what was undone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from grns.errors import (
    ConflictError,
    ContendedError,
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
)
from grns.model.json import DEFAULT_LIMITS
from grns.model.submission import submission
from grns.postgres.database import Database
from grns.postgres.errors import translated
from grns.tasks.submit import Prepared, Submissions, Submitted, prepare, submit_in
from tests.support.harness import eventually
from tests.support.store import fetch, is_waiting_for_lock, kinds_of, log_of, row_of, stranger


def made(**fields: Any) -> Prepared:
    """Return a submission that is ready to be sent."""
    return prepare(submission(**{"task_type": "noop"} | fields), DEFAULT_LIMITS)


async def submit(database: Database, **fields: Any) -> Submitted:
    """Submit one task, with no other one in its batch."""
    return await Submissions(database, batch_limit=10).submit(made(**fields))


async def submit_many(database: Database, *batch: Prepared) -> list[Submitted | ConflictError]:
    """Submit many in one statement."""
    return await Submissions(database, batch_limit=10).submit_many(batch)


def new(answers: list[Submitted | ConflictError]) -> list[bool | None]:
    """Return, for each answer, whether it created a task; None for a conflict."""
    return [answer.created if isinstance(answer, Submitted) else None for answer in answers]


async def count_of(database: Database, table: str = "tasks") -> int:
    """Return how many rows a table has."""
    return int((await fetch(database, f"select count(*) as n from grns.{table}"))[0]["n"])


# ---------------------------------------------------------------- one key, one task


async def test_the_same_key_and_payload_return_the_same_task(shared: Database) -> None:
    first = await submit(shared, idempotency_key="k", payload={"a": [1, 2.0], "b": None})
    again = await submit(shared, idempotency_key="k", payload={"b": None, "a": [1, 2.0]}, priority=0)
    assert (first.created, again.created) == (True, False)
    assert (again.id, again.trace_id) == (first.id, first.trace_id), "the task's own"
    row = await row_of(shared, first.id)
    assert (row["version"], row["priority"]) == (1, 2), "the first submission stands"
    assert len(await log_of(shared, first.id)) == 2


@pytest.mark.parametrize(
    "other", [{"payload": {"n": 2}}, {"task_type": "other"}, {"agent_type": "other"}], ids=str
)
async def test_another_task_under_the_same_key_is_a_conflict(shared: Database, other: dict[str, Any]) -> None:
    said = {"idempotency_key": "k", "payload": {"n": 1}}
    first = await submit(shared, **said)
    with pytest.raises(ConflictError, match=first.id):
        await submit(shared, **said | other)
    assert await count_of(shared) == 1


async def test_a_key_belongs_to_its_workspace(shared: Database) -> None:
    ours = await submit(shared, idempotency_key="k")
    theirs = await submit(shared, idempotency_key="k", payload={"n": 1}, workspace="elsewhere")
    assert theirs.created
    assert ours.id != theirs.id


async def test_a_key_counts_after_its_task_has_ended(shared: Database) -> None:
    first = await submit(shared, idempotency_key="k")
    await shared.run("cancel", [first.id], "not needed", "default", None)
    assert not (await submit(shared, idempotency_key="k")).created
    assert (await row_of(shared, first.id))["status"] == "cancelled"


async def test_a_key_twice_in_one_batch_creates_one_task(shared: Database) -> None:
    answers = await submit_many(
        shared,
        made(idempotency_key="k", payload={"n": 1}),
        made(),
        made(idempotency_key="k", payload={"n": 1}),
        made(idempotency_key="k", payload={"n": 2}),
    )
    assert new(answers) == [True, True, False, None]
    first, _, again, _ = answers
    assert isinstance(first, Submitted)
    assert isinstance(again, Submitted)
    assert again.id == first.id
    assert await count_of(shared) == 2


async def test_in_a_batch_only_the_conflict_is_refused(shared: Database) -> None:
    await submit(shared, idempotency_key="taken")
    answers = await submit_many(
        shared, made(), made(idempotency_key="taken", payload={"n": 1}), made(idempotency_key="taken"), made()
    )
    assert new(answers) == [True, None, False, True]
    assert await count_of(shared) == 3


async def test_a_batch_sent_again_creates_nothing_new(shared: Database) -> None:
    """After an unknown outcome: the ids are the same."""
    batch = [made(payload={"n": n}) for n in range(3)]
    assert new(await submit_many(shared, *batch)) == [True] * 3
    again = await submit_many(shared, *batch)
    assert [one.id for one in again if isinstance(one, Submitted)] == [one.id for one in batch]
    assert await count_of(shared) == 3
    assert await count_of(shared, "events") == 3


async def test_many_who_ask_for_one_key_at_once_get_one_task(shared: Database) -> None:
    answers = await asyncio.gather(*(submit(shared, idempotency_key="k") for _ in range(20)))
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1


async def test_a_key_that_a_stranger_is_taking_is_waited_for(shared: Database) -> None:
    """The one who waited has a snapshot in which the other's task is not; it is read by a second one."""
    async with stranger(shared) as connection:
        ours = made(idempotency_key="k", payload={"n": 1})
        (theirs,) = await submit_in(connection, [made(idempotency_key="k", payload={"n": 1})])
        asked = asyncio.create_task(submit_many(shared, ours, made(idempotency_key="k", payload={"n": 2})))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        same, other = await asked
    assert isinstance(theirs, Submitted)
    assert isinstance(same, Submitted)
    assert (same.id, same.created) == (theirs.id, False)
    assert isinstance(other, ConflictError)
    assert theirs.id in str(other)


async def test_a_key_that_a_stranger_gives_up_is_ours(shared: Database) -> None:
    async with stranger(shared) as connection:
        await submit_in(connection, [made(idempotency_key="k", payload={"n": 1})])
        asked = asyncio.create_task(submit(shared, idempotency_key="k"))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("rollback")
        assert (await asked).created


async def test_a_key_that_a_stranger_keeps_is_not_waited_for_without_end(shared: Database) -> None:
    async with stranger(shared) as connection:
        await submit_in(connection, [made(idempotency_key="k")])
        with pytest.raises(ContendedError):
            await submit(shared, idempotency_key="k")
    assert (await submit(shared, idempotency_key="k")).created


async def test_a_key_that_a_stranger_keeps_fails_nobody_else(shared: Database) -> None:
    """They were asked for in one moment: those without a key do not even wait for it."""
    submissions = Submissions(shared, batch_limit=100)
    await submissions.submit(made())  # which reads what is declared as secret
    keys = [f"k{place}" for place in range(20)]
    async with stranger(shared) as connection:
        await submit_in(connection, [made(idempotency_key="k7")])
        keyed = [asyncio.create_task(submissions.submit(made(idempotency_key=key))) for key in keys]
        plain = await asyncio.gather(*(submissions.submit(made()) for _ in keys))
        assert not any(one.done() for one in keyed)
        answers = await asyncio.gather(*keyed, return_exceptions=True)
    assert all(one.created for one in plain)
    failed = [key for key, answer in zip(keys, answers, strict=True) if not isinstance(answer, Submitted)]
    assert failed == ["k7"]
    assert isinstance(answers[7], ContendedError)
    assert await count_of(shared) == 40


async def test_the_lock_is_given_up_before_the_statement_is(shared: Database) -> None:
    """However short the time for an answer: what has waited for a lock is told that it did, and why."""
    hurried = Database(shared.url, name="hurried", answer_seconds=2.0)
    async with hurried.opened(), stranger(shared) as connection:
        await submit_in(connection, [made(idempotency_key="k")])
        with pytest.raises(ContendedError):
            await submit(hurried, idempotency_key="k")


async def sleep_for_a_minute(database: Database) -> None:
    """Run a statement that nobody should wait for."""
    async with database.connection() as connection:
        with translated():
            await connection.execute("select pg_sleep(60)")


async def test_a_statement_that_was_given_up_ends_on_the_server(shared: Database) -> None:
    hurried = Database(shared.url, name="hurried", answer_seconds=0.5)
    async with hurried.opened():
        with pytest.raises(OutcomeUnknownError):
            await sleep_for_a_minute(hurried)

        async def is_over() -> bool:
            return not await fetch(
                shared, "select from pg_stat_activity where state = 'active' and query like '%pg_sleep(60)'"
                " and pid <> pg_backend_pid()"
            )  # fmt: skip

        await eventually(is_over, within_seconds=5.0)


async def test_where_all_is_locked_not_each_one_is_waited_for(shared: Database) -> None:
    hurried = Database(shared.url, name="hurried", answer_seconds=1.0)
    submissions = Submissions(hurried, batch_limit=100)
    async with hurried.opened(), stranger(shared) as connection:
        await connection.execute("lock table grns.tasks in access exclusive mode")
        asked = [submissions.submit(made(idempotency_key=f"k{place}")) for place in range(60)]
        async with asyncio.timeout(10):  # one by one, two at a time, they would take 15 s
            answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    assert await count_of(shared) == 0


async def test_a_key_that_cannot_be_seen_ends_the_callers_transaction(shared: Database) -> None:
    """It looks at the world as it was before somebody took the key: Postgres says that it must begin anew."""
    async with stranger(shared) as connection:
        await connection.execute("rollback; begin isolation level repeatable read; select 1 from grns.tasks")
        await submit(shared, idempotency_key="k")
        with pytest.raises(asyncpg.SerializationError):
            await submit_in(connection, [made(idempotency_key="k")])
        await connection.execute("rollback; begin isolation level repeatable read")
        assert new(await submit_in(connection, [made(idempotency_key="k"), made()])) == [False, True]


# ---------------------------------------------------------------- in the caller's own transaction


@asynccontextmanager
async def lent(database: Database, kind: str) -> AsyncIterator[Any]:
    """Open a transaction as users have them; the caller ends it with SQL of its own."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(database.url)
        try:
            yield connection
        finally:
            await connection.close()
        return
    engine = create_async_engine(database.url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with (AsyncSession if kind == "session" else AsyncConnection)(engine) as user:
            yield user
    finally:
        await engine.dispose()


async def begin(user: Any) -> Any:
    """Begin a transaction in the manner of whoever lent the connection."""
    if isinstance(user, asyncpg.Connection):
        transaction = user.transaction()
        await transaction.start()
        return transaction
    return await user.begin()


@pytest.mark.parametrize("kind", ["asyncpg", "connection", "session"])
async def test_what_the_caller_commits_is_there_and_what_it_undoes_is_not(
    shared: Database, kind: str
) -> None:
    async with lent(shared, kind) as user:
        undone = await begin(user)
        (gone,) = await submit_in(user, [made(payload={"n": 1}, idempotency_key="k")])
        assert await count_of(shared) == 0
        await undone.rollback()
        assert (await count_of(shared), await count_of(shared, "events")) == (0, 0)

        kept = await begin(user)
        answers = await submit_in(user, [made(payload={"n": 2}, idempotency_key="k"), made(delay_seconds=9)])
        assert await count_of(shared) == 0
        await kept.commit()
    assert isinstance(gone, Submitted)
    assert new(answers) == [True, True]
    first, second = [answer.id for answer in answers if isinstance(answer, Submitted)]
    assert await kinds_of(shared, first) == ["evt.task.queued", "cmd.task.execute"]
    assert await kinds_of(shared, second) == ["evt.task.waiting"]
    assert await count_of(shared) == 2


async def test_a_connection_that_encodes_json_itself_changes_nothing(shared: Database) -> None:
    """Applications often teach their connections to take and give values instead of JSON's text."""
    wanted = made(payload={"a": [1, "b"]}, idempotency_key="k")
    async with lent(shared, "asyncpg") as user:
        for name in ("json", "jsonb"):
            await user.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        (first,) = await submit_in(user, [wanted])
        again = await submit_in(user, [made(payload={"a": [1, "b"]}, idempotency_key="k")])
    assert isinstance(first, Submitted)
    assert json.loads((await row_of(shared, first.id))["payload"]) == {"a": [1, "b"]}
    assert new(again) == [False]


@pytest.mark.parametrize("kind", ["asyncpg", "connection", "session"])
async def test_a_conflict_does_not_break_the_callers_transaction(shared: Database, kind: str) -> None:
    await submit(shared, idempotency_key="k")
    async with lent(shared, kind) as user:
        transaction = await begin(user)
        answers = await submit_in(user, [made(idempotency_key="k", payload={"n": 1}), made()])
        await transaction.commit()
    assert new(answers) == [None, True]
    assert await count_of(shared) == 2


@pytest.mark.parametrize(
    "wrong", [None, 5, "postgresql://", object()], ids=lambda value: type(value).__name__
)
async def test_what_is_no_connection_is_said_to_be_none(wrong: Any) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await submit_in(wrong, [made()])
    assert raised.value.code == "bad_connection"


async def test_a_pool_is_no_connection(shared: Database) -> None:
    async with asyncpg.create_pool(shared.url, min_size=1, max_size=1) as connections:
        with pytest.raises(InvalidInputError, match="pass the connection whose transaction"):
            await submit_in(connections, [made()])
