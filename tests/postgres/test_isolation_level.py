"""Whatever isolation the user's server gives to a transaction: ours are `read committed`."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from grns.postgres.database import Database
from grns.worker.finishes import finish_in
from grns.worker.renewals import HeldLease, renew
from tests.support.harness import eventually, submit
from tests.support.store import LEASE_SECONDS, cancel, claim, ending, is_waiting_for_lock, row_of, stranger


@pytest.fixture(params=["repeatable read", "serializable"])
async def strict_url(database_url: str, request: pytest.FixtureRequest) -> str:
    """A database whose owner wants more isolation, whoever connects."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            f"alter database {database_url.rsplit('/', 1)[1]}"
            f" set default_transaction_isolation = '{request.param}'"
        )
    finally:
        await connection.close()
    return database_url


@pytest.mark.parametrize(
    "options",
    [{"for_handlers": True}, {"is_tuned": False}, {}],
    ids=["handlers", "behind_a_pooler", "tuned"],
)
async def test_a_transaction_that_outlives_a_renewal_commits(
    strict_url: str, options: dict[str, Any]
) -> None:
    """Each renewal writes the row; a snapshot from before it could never finish the task."""
    database, theirs = Database(strict_url, name="test"), Database(strict_url, name="theirs", **options)
    async with database.opened(), theirs.opened():
        held = await claim(database, (await submit(database)).id)
        async with theirs.transaction() as connection:
            await connection.fetch("select from grns.tasks")
            await renew(database, [HeldLease(held.id, held.attempt, held.lease_id)], LEASE_SECONDS)
            assert (await finish_in(connection, ending(held))).status == "succeeded"
        assert (await row_of(database, held.id))["status"] == "succeeded"


async def test_a_statement_that_has_waited_for_a_row_sees_what_became_of_it(strict_url: str) -> None:
    database = Database(strict_url, name="test")
    async with database.opened():
        task_id = (await submit(database)).id
        async with stranger(database) as connection:
            await connection.execute("update grns.tasks set updated_at = now() where id = $1", task_id)
            cancelling = asyncio.create_task(cancel(database, task_id))
            await eventually(lambda: is_waiting_for_lock(database))
            await connection.execute("commit")
            assert await cancelling == {task_id: "cancelled"}
