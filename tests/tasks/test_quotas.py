"""Quotas of pools: how many tasks may be queued before submissions are refused."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from grns.errors import BacklogFullError, InvalidInputError
from grns.postgres.database import Database
from grns.tasks.quotas import list_quotas, put_quota
from grns.tasks.submit import Submissions
from tests.support.store import claim, fetch
from tests.tasks.test_submit import made, submit

WHO = {"workspace": "default", "actor": "tests"}


async def look(database: Database) -> None:
    """Look which pools are full, as the scheduler does."""
    await database.run("fill_quotas")


async def test_a_full_pool_takes_no_task_until_there_is_room(shared: Database) -> None:
    await put_quota(shared, "worker", 2, **WHO)
    first, _ = await submit(shared), await submit(shared)
    await look(shared)
    with pytest.raises(BacklogFullError, match="the pool worker is full: 2 of its tasks are queued"):
        await submit(shared)
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await fetch(shared, "select grns.submit_task('noop')")
    assert (await submit(shared, agent_type="other")).created
    assert (await submit(shared, workspace="other")).created
    await claim(shared, first.id)
    await look(shared)
    (quota,) = await list_quotas(shared, workspace="default")
    assert quota.full_since is None
    assert (await submit(shared)).created


async def test_those_of_other_pools_in_the_same_statement_are_created(shared: Database) -> None:
    await put_quota(shared, "worker", 1, **WHO)
    await submit(shared)
    await look(shared)
    submissions = Submissions(shared, batch_limit=10)
    batch = [made(agent_type=one) for one in ("worker", "other", "worker", "other")]
    answers = await asyncio.gather(*(submissions.submit(one) for one in batch), return_exceptions=True)
    assert [isinstance(one, BacklogFullError) for one in answers] == [True, False, True, False]


async def test_a_quota_can_be_taken_away(shared: Database) -> None:
    assert await put_quota(shared, "worker", None, **WHO) is None
    await put_quota(shared, "worker", 1, **WHO)
    await submit(shared)
    await look(shared)
    assert await put_quota(shared, "worker", None, **WHO) is not None
    assert (await submit(shared)).created
    for wrong in (0, 100_001, True, "10"):
        with pytest.raises(InvalidInputError, match="max_queued"):
            await put_quota(shared, "worker", wrong, **WHO)  # type: ignore[arg-type]
