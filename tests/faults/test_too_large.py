"""A broker that takes only small messages: what is larger goes out as a reference, and delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_everything,
    eventually,
    is_relayed,
    read_stream,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(120)

_MAX_PAYLOAD = 16 * 1024


@pytest.fixture
def narrow(broker: LocalNats) -> Iterator[LocalNats]:
    """The same broker with a smaller `max_payload`: to be started where the other one was stopped."""
    config = f"max_payload: {_MAX_PAYLOAD}"
    server = LocalNats(broker.data, port=broker.port, extra_config=config)
    yield server
    server.stop()


async def test_broker_that_takes_less_than_before(
    fleet: Fleet, database: Database, broker: LocalNats, narrow: LocalNats
) -> None:
    """Rows that it would have taken are on their way when it comes back narrower."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    await ready(database, worker)
    await all_in(database, await submit_many(database, 10), within_seconds=START_SECONDS)
    await asyncio.to_thread(broker.stop)
    before = await submit_many(database, 50)
    filling = {"filling": "x" * 3 * _MAX_PAYLOAD}
    large = [await submit(database, "fail_once", payload=filling, max_attempts=1) for _ in range(5)]
    after = await submit_many(database, 50)
    await all_in(database, [*before, *after], within_seconds=20)
    await all_in(database, [one.id for one in large], "dead", within_seconds=20)
    await asyncio.to_thread(narrow.start)
    await eventually(lambda: is_relayed(database))
    letters = await read_stream(broker.url, "GRNS_DLQ")
    async with database.connection() as connection:
        rows = await connection.fetch("select seq, task_id from grns.events where kind = 'dlq.task.dead'")
    seqs = {row["task_id"]: row["seq"] for row in rows}
    assert {letter.headers["Grns-Task"] for letter in letters} == {one.id for one in large}
    for letter in letters:
        task_id = letter.headers["Grns-Task"]
        assert letter.body["payload"] == {
            "truncated": True,
            "ref": f"db://events/{seqs[task_id]}",
            "task_id": task_id,
            "message_id": letter.headers["Nats-Msg-Id"],
        }
    # It keeps its connections: nothing was sent that it would have hung up on.
    assert not [fact for fact in fleet.facts_of(fleet.processes[0]) if "maximum payload" in str(fact).lower()]
    await check_everything(database, broker.url)
