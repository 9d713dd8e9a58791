"""Another server is noticed once, whoever asks; what the log does not have is told by number and id."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from grns.maintenance.failovers import failovers, note_server, unlogged, unnoted_failover
from grns.maintenance.janitor import Janitor
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.settings.groups import JanitorSettings
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import PostgresFailedOver
from grns.telemetry.signal import Signal
from tests.support.harness import eventually, settings_for, submit
from tests.support.store import fetch

# As the row is where it was written by the server that was.
OTHER_TIMELINE = "update grns.server set timeline = timeline + 1, seen_at = now() - interval '1 min'"
OTHER_CLUSTER = "update grns.server set system_identifier = '1', seen_at = now() - interval '1 min'"


async def test_the_same_server_is_no_failover(database: Database) -> None:
    assert [await note_server(database) for _ in range(3)] == [None] * 3
    (row,) = await fetch(database, "select * from grns.server")
    assert row["timeline"] == 1
    assert row["system_identifier"].isdigit()
    assert await failovers(database, 0) == []


@pytest.mark.parametrize("wound", [OTHER_TIMELINE, OTHER_CLUSTER], ids=["timeline", "cluster"])
async def test_another_server_is_noticed_by_one_of_many(database: Database, wound: str) -> None:
    await note_server(database)
    await fetch(database, wound)
    (before,) = await fetch(database, "select * from grns.server")
    told = [one for one in await asyncio.gather(*(note_server(database) for _ in range(8))) if one]
    (failover,) = told
    assert await failovers(database, 0) == [failover]
    assert failover.id is not None
    assert await failovers(database, failover.id) == []
    assert (failover.old_timeline, failover.new_timeline) == (before["timeline"], 1)
    assert failover.is_same_cluster is (wound == OTHER_TIMELINE)
    assert failover.last_seen_at == before["seen_at"]
    assert await note_server(database) is None


@pytest.mark.parametrize("wound", [OTHER_TIMELINE, OTHER_CLUSTER], ids=["timeline", "cluster"])
async def test_one_that_nobody_has_noted_is_seen_and_not_noted(database: Database, wound: str) -> None:
    assert await unnoted_failover(database) is None, "no server was ever noted"
    await note_server(database)
    assert await unnoted_failover(database) is None
    await fetch(database, wound)
    seen = [await unnoted_failover(database) for _ in range(2)]
    assert await failovers(database, 0) == [], "it only reads"
    noted = await note_server(database)
    assert noted is not None
    assert noted.id is not None
    for one in seen:
        assert one is not None
        assert one.id is None
        assert replace(one, id=noted.id, noticed_at=noted.noticed_at) == noted
    assert await unnoted_failover(database) is None


async def test_any_role_may_ask(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("create role plain_one; set role plain_one")
        try:
            here = await connection.fetchrow(
                "select pg_walfile_name(pg_current_wal_lsn()), system_identifier from pg_control_system()"
            )
        finally:
            await connection.execute("reset role; drop role plain_one")
    assert here is not None


async def test_the_janitor_tells_of_it(database: Database) -> None:
    await note_server(database)
    await fetch(database, OTHER_TIMELINE)
    metrics = MetricsListener()
    told: list[Signal] = []

    def emit(signal: Signal) -> None:
        metrics.receive(signal)
        told.append(signal)

    janitor = Janitor(
        database=database,
        transport=JetStream(settings_for(database.url), name="test"),
        settings=JanitorSettings(janitor_interval_seconds=0.05),
        emit=emit,
    )
    running = asyncio.create_task(janitor.run())

    async def has_told() -> list[PostgresFailedOver]:
        return [signal for signal in told if isinstance(signal, PostgresFailedOver)]

    (signal,) = await eventually(has_told)
    janitor.stop()
    await running
    assert (signal.level, signal.old_timeline, signal.new_timeline) == ("warning", 2, 1)
    assert metrics.registry.get_sample_value("grns_postgres_failovers_total") == 1


async def test_what_the_log_does_not_have_is_told(database: Database) -> None:
    task_id = (await submit(database)).id
    rows = await fetch(database, "select * from grns.events where task_id = $1", task_id)
    seqs = [row["seq"] for row in rows]
    ids: list[UUID] = [row["message_id"] for row in rows]
    assert await unlogged(database, seqs, ids, [task_id] * len(rows)) == []
    strange = uuid4()
    found = await unlogged(
        database, [*seqs, seqs[0], 10**17], [*ids, strange, ids[0]], [*[task_id] * len(rows), task_id, "gr-x"]
    )
    assert [(one.place, one.status) for one in found] == [(len(rows), "queued"), (len(rows) + 1, None)]


async def test_of_what_stood_in_partitions_that_are_gone_nothing_is_told(database: Database) -> None:
    (first,) = await fetch(database, "select name from grns.log_partitions order by lower_seq limit 1")
    await fetch(database, f"alter table grns.events detach partition grns.{first['name']}")
    assert await unlogged(database, [5], [uuid4()], [None]) == []
    assert len(await unlogged(database, [2_000_005], [uuid4()], [None])) == 1
