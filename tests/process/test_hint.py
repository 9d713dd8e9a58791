"""A task starts on the word of its submitter, before its command comes."""

from __future__ import annotations

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.model.subjects import task_nudge
from grns.nats import JetStream
from grns.postgres.database import Database
from tests.support.harness import Fleet, all_in, check_stories, eventually, manage, ready, settings_for

pytestmark = pytest.mark.timeout(120)
# Without a relay no command comes; a poll would find a task after so long.
_LATE = {"GRNS_POLL_AFTER_SECONDS": "60", "GRNS_POLL_MAX_SECONDS": "60"}


async def test_submitted_task_runs_without_a_relay_and_its_command_is_settled_later(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    worker = fleet.start("worker", "start", "tests.support.pools:pool", **_LATE)
    await ready(database, worker)

    async def opened() -> bool:
        if "GRNS_CMD" not in ((await manage(broker.url, "STREAM.NAMES"))["streams"] or ()):
            return False
        state = (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]
        return bool(state["consumer_count"] >= 5)

    await eventually(opened)
    connecting = grns.connect(database_url=database.url, nats_url=broker.url)
    async with connecting as client:
        await client._transport.wait_connected()  # a hint that cannot be sent is not sent later
        ids = []
        for _ in range(5):
            ids.append((await client.submit("noop", pool="worker")).id)
            await all_in(database, ids, within_seconds=10)
        transport = JetStream(settings_for(database.url, broker.url), name="liar")
        await transport.connect()
        for body in (b"", b"gr-nothing", b"\x00" * 100, b"x" * 100_000, ids[0].encode(), b"*.>"):
            await transport.nudge(task_nudge("default", "worker"), body)
        await transport.close()
        fleet.start("daemon", "relay")

        async def settled() -> bool:
            state = (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]
            published = (await manage(broker.url, "STREAM.INFO.GRNS_EVT"))["state"]["messages"]
            return bool(published >= 3 * len(ids) and state["messages"] == 0)

        await eventually(settled)
        ids.append((await client.submit("noop", pool="worker")).id)
        await all_in(database, ids, within_seconds=10)
    stories = await check_stories(database, ids)
    assert {len(events) for events in stories.values()} == {3}
