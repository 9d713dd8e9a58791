"""A server that goes away, or holds still, around a transaction and not within a statement of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from grns.access.isolation import as_tenant
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.dead_letters import listing
from grns.errors import OutcomeUnknownError
from grns.model.filter import parse
from grns.operations.model import State
from grns.postgres.database import Database
from grns.tasks import search as task_page
from tests.support.cut_proxy import way_to
from tests.support.harness import eventually, settings_for
from tests.support.operations import SignalRecorder, asked, dead_tasks, redrives, seen


async def _list(database: Database) -> None:
    await task_page.list_tasks(database, workspace="default", wanted=parse(""), limit=5)


async def _list_as_tenant(database: Database) -> None:
    async with as_tenant(database, "default") as session:
        await task_page.list_tasks(session, workspace="default", wanted=parse(""), limit=5)


async def _ask_the_time(database: Database) -> None:
    await listing.now(database)


async def _write(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("select 1")


ASK: dict[str, Callable[[Database], Awaitable[Any]]] = {
    "list": _list,
    "list as tenant": _list_as_tenant,
    "the time": _ask_the_time,
    "write": _write,
}


@pytest.mark.parametrize("asking", ASK)
@pytest.mark.parametrize("word", [b"BEGIN", b"set local", b"COMMIT", b"SAVEPOINT"])
async def test_what_is_cut_there_is_unknown_and_no_bug(shared: Database, asking: str, word: bytes) -> None:
    """Whoever asked may ask again: daemons go on, and a request is answered with 503."""
    async with way_to(shared.url) as way:
        database = Database(way.url, name="cut", size=1)
        async with database.opened():
            await ASK[asking](database)  # the statements are known by now
            way.word = word
            try:
                await ASK[asking](database)
            except OutcomeUnknownError:
                assert way.met
            else:
                assert not way.met, "it does not come along here"
            way.word = None
            await ASK[asking](database)


@pytest.mark.parametrize("word", [b"BEGIN", b"COMMIT"])
@pytest.mark.parametrize("asking", ["list", "write"])
async def test_an_answer_that_comes_too_late_there_is_unknown(
    shared: Database, asking: str, word: bytes
) -> None:
    """A server that was frozen answers again by the time in which the connection is made ready."""
    async with way_to(shared.url) as way:
        database = Database(way.url, name="held up", size=1, answer_seconds=0.4)
        async with database.opened():
            await ASK[asking](database)
            way.word, way.delay_seconds = word, 0.6
            with pytest.raises(OutcomeUnknownError):
                await ASK[asking](database)
            way.word = None
            await eventually(lambda: _is_well(database, asking))


async def _is_well(database: Database, asking: str) -> bool:
    try:
        await ASK[asking](database)
    except OutcomeUnknownError:
        return False
    return True


async def test_what_a_borrower_has_raised_stays_what_it_is(shared: Database) -> None:
    with pytest.raises(TimeoutError):
        async with shared.transaction():
            raise TimeoutError


async def test_a_runner_outlives_a_server_that_goes_away_as_it_reads_a_page(shared: Database) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared)
    async with way_to(shared.url) as way:
        app = App(settings_for(way.url), (SignalRecorder(),))
        database = Database(way.url, name="runner")
        async with database.opened():
            runner = daemons.operation_runner(app, database, app.transport("runner"))
            way.word = b"BEGIN"
            running = asyncio.create_task(runner.run())

            async def has_met_it() -> bool:
                return way.met > 1 or running.done()

            await eventually(has_met_it)
            assert not running.done(), "it has ended the process"
            way.word = None

            async def is_done() -> bool:
                return (await seen(shared, made)).state is State.DONE

            await eventually(is_done)
            runner.stop()
            await running
    assert await redrives(shared) == dict.fromkeys(ids, 1)
