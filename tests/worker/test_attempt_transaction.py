"""The transaction of an attempt: sessions of SQLAlchemy in it, and what is submitted in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import grns
from grns.errors import InvalidInputError
from grns.model.json import Limits
from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.telemetry import current
from grns.worker.context import Context
from grns.worker.leases import Lease
from tests.support.harness import submit
from tests.support.store import claim, fetch, row_of


class Base(DeclarativeBase):
    pass


class Invoice(Base):
    __tablename__ = "invoices"
    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[Claim]:
    """A claimed task, and a table of the user."""
    await fetch(database, "create table invoices (number integer primary key)")
    owner = await claim(database, (await submit(database)).id)
    current.begin(owner)
    yield owner
    current.end()


def context_of(owner: Claim, database: Database, client: grns.Client | None = None) -> Context:
    return Context(
        owner, Lease(owner, 0, 1), agent_id="a", workspace="default", database=database,
        result_limits=Limits(), client=client,
    )  # fmt: skip


async def invoices(database: Database) -> list[int]:
    return [row["number"] for row in await fetch(database, "select number from invoices order by 1")]


async def test_session_commits_with_the_task(owner: Claim, database: Database) -> None:
    async with context_of(owner, database).transaction() as tx:
        session = await tx.session(expire_on_commit=False)
        session.add(Invoice(number=1))
        await tx.connection.execute("insert into invoices values (2)")
        tx.complete({"number": 1})
    assert await invoices(database) == [1, 2]
    assert (await row_of(database, owner.id))["status"] == "succeeded"


async def test_session_is_undone_with_the_attempt(owner: Claim, database: Database) -> None:
    async def break_off() -> None:
        async with context_of(owner, database).transaction() as tx:
            session = await tx.session()
            session.add(Invoice(number=1))
            await session.commit()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await break_off()
    assert await invoices(database) == []
    assert (await row_of(database, owner.id))["status"] == "running"


async def test_session_that_is_rolled_back_undoes_its_own_writes_alone(
    owner: Claim, database: Database
) -> None:
    async with context_of(owner, database).transaction() as tx:
        await tx.connection.execute("insert into invoices values (1)")
        session = await tx.session()
        session.add(Invoice(number=1))
        with pytest.raises(IntegrityError):
            await session.flush()
        await session.rollback()
        session.add(Invoice(number=2))
    assert await invoices(database) == [1, 2]


async def test_connection_of_a_session_serves_others_afterwards(owner: Claim, database: Database) -> None:
    """It is one of a pool: the session must neither close it nor leave it in a state of its own."""
    async with context_of(owner, database).transaction() as tx:
        session = await tx.session()
        assert (await session.execute(text("select '{\"a\": 1}'::jsonb"))).scalar() == {"a": 1}
    again = await claim(database, (await submit(database)).id)
    async with context_of(again, database).transaction() as tx:
        assert await tx.connection.fetchval("select 1") == 1


async def test_what_an_attempt_submits_belongs_to_its_trace(owner: Claim, database: Database) -> None:
    connecting = grns.connect(database_url=database.url, nats_url="nats://127.0.0.1:1")
    async with connecting as client:
        ctx = context_of(owner, database, client)
        async with ctx.transaction() as tx:
            by_sql = await tx.connection.fetchval("select grns.submit_task('by_sql')")
            theirs = await tx.connection.fetchval("select grns.submit_task('theirs', trace_id => 'mine')")
            inside = await ctx.client.submit("inside", pool="worker", connection=tx.connection)
        outside = await ctx.client.submit("outside", pool="worker")
        named = await ctx.client.submit("named", pool="worker", trace_id="mine")
    for task_id in (by_sql, inside.id, outside.id):
        row = await row_of(database, task_id)
        assert (row["trace_id"], row["causation_id"]) == (owner.trace_id, owner.causation_id)
    for task_id in (theirs, named.id):
        assert (await row_of(database, task_id))["trace_id"] == "mine"
    other = await fetch(database, "select grns.submit_task('other') as id")
    row = await row_of(database, other[0]["id"])
    assert row["trace_id"] != owner.trace_id, "the name of the attempt ends with its transaction"


async def test_context_without_a_client_says_how_to_get_one(owner: Claim, database: Database) -> None:
    with pytest.raises(InvalidInputError, match="pass a client"):
        context_of(owner, database).client  # noqa: B018
