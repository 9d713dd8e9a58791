"""Postgres is failed over to a standby: work goes on, no outcome twice, and what was lost is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from grns.dev.servers import LocalNats, LocalPostgres
from grns.model.outcome import Finished
from grns.postgres import migrate
from grns.postgres.database import Database
from grns.worker.claims import Claimant
from tests.chaos.proxy import Proxy
from tests.faults.standby import (
    has_received_all,
    make_standby,
    promote,
    receive_no_more,
    wait_for_standby,
)
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_everything,
    check_stories,
    committed,
    eventually,
    is_relayed,
    lines_with,
    read_stream,
    ready,
    submit,
    submit_many,
)
from tests.support.store import claim, fetch, finish

pytestmark = pytest.mark.timeout(180)

Journal = Callable[[], list[str]]

LEASE_SECONDS = 3.0
SHORT = {
    "GRNS_LEASE_SECONDS": str(LEASE_SECONDS),
    "GRNS_JANITOR_INTERVAL_SECONDS": "0.5",
    "GRNS_SHUTDOWN_GRACE_SECONDS": "1",
}
# An agent type of the test's own: it is the worker, and nobody else takes its task.
ZOMBIE = Claimant("zombie", "default", "zombie", {"noop": 3}, 600.0)


class Pair:
    """A primary and its standby, behind one address."""

    def __init__(self, primary: LocalPostgres, standby: LocalPostgres, proxy: Proxy) -> None:
        self.primary, self.standby = primary, standby
        self._proxy = proxy

    async def fail_over(self) -> None:
        """Lose the primary, and let the standby take its place and its address."""
        await asyncio.to_thread(self.primary.kill)
        self._proxy.cut()
        await promote(self.standby)
        self._proxy.target_port = self.standby.port


@pytest.fixture
async def pair(directory: Path) -> AsyncIterator[Pair]:
    """Two servers of the test's own."""
    place = directory / f"failover-{uuid.uuid4().hex}"
    named = os.environ.get("GRNS_TEST_POSTGRES")
    programs = Path(named) if named else None
    with LocalPostgres(place / "primary", bin_directory=programs) as primary:
        await migrate.upgrade(primary.url)
        standby = await make_standby(primary, place / "standby", bin_directory=programs)
        proxy = Proxy(primary.port)
        await proxy.start()
        yield Pair(primary, standby, proxy)
        await proxy.stop()
        await asyncio.to_thread(standby.stop)


@pytest.fixture
def database_url(pair: Pair) -> str:
    """The address at which the primary is found, whichever server that is."""
    return pair.primary.url.replace(f":{pair.primary.port}/", f":{pair._proxy.port}/")


async def verified(database_url: str, nats_url: str, *options: str) -> tuple[int | None, Any, str]:
    """Run `grns admin verify`; returns its exit code, what it found, and what it said beside."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grns", "admin", "verify", "-o", "json", *options,
        env=os.environ | {"GRNS_DATABASE_URL": database_url, "GRNS_NATS_URL": nats_url},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await process.communicate()
    return process.returncode, json.loads(out), said.decode()


async def server_is_noted(database: Database) -> None:
    """Wait until a janitor has noted which server this is."""

    async def look() -> bool:
        return bool(await fetch(database, "select from grns.server where seen_at is not null"))

    await eventually(look, within_seconds=START_SECONDS)


async def failover_is_noticed(database: Database) -> None:
    """Wait until a janitor has noticed that this is another server."""

    async def look() -> bool:
        return bool(await fetch(database, "select from grns.failovers"))

    await eventually(look)


async def is_published(database: Database) -> None:
    """Wait until all that is committed has been published."""
    await eventually(lambda: is_relayed(database))


async def test_with_commits_that_the_standby_lacks(
    pair: Pair, fleet: Fleet, database: Database, database_url: str, broker: LocalNats, journal: Journal,
    tmp_path: Path,
) -> None:  # fmt: skip
    """What is lost is done again under the same numbers, old attempts write nothing, and all is listed."""
    server = fleet.start("server", **SHORT)
    await server_is_noted(database)
    file = tmp_path / "file"
    early = await submit_many(database, 5, task_type="effect")
    late = (await submit(database, "until", payload={"file": str(file)})).id
    held = (await submit(database, agent_type="zombie")).id
    await is_published(database)
    await has_received_all(pair.primary, pair.standby)
    await receive_no_more(pair.standby)
    low = (await fetch(database, "select low from grns.relay_cursor"))[0]["low"]

    # None of this reaches the standby: claims, ends, and whole lives; but all of it is published.
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20", **SHORT)
    await ready(database, worker)
    never = await submit_many(database, 20, task_type="effect")
    await all_in(database, [*early, *never], within_seconds=20)
    old = await claim(database, held, who=ZOMBIE)

    async def has_begun() -> bool:
        return bool(lines_with(journal(), "begin", late))

    await eventually(has_begun)
    await is_published(database)
    before = {one.headers["Nats-Msg-Id"]: one for one in await read_stream(broker.url, "GRNS_EVT")}

    await pair.fail_over()
    await failover_is_noticed(database)

    # The number of the attempt is handed out again: only the lease tells the two apart.
    new = await claim(database, held, who=ZOMBIE)
    assert (new.attempt, old.attempt) == (1, 1)
    assert await finish(database, old) == Finished("lost", None)
    assert (await finish(database, new)).status == "succeeded"
    assert await finish(database, old) == Finished("lost", None)

    async def has_begun_again() -> bool:
        return lines_with(journal(), "begin", late) == 2 * [f"begin {late} 1"]

    await eventually(has_begun_again)

    async def is_cancelled() -> bool:  # the old attempt; perhaps after the new one has begun
        return lines_with(journal(), "cancelled", late) == [f"cancelled {late} 1"]

    await eventually(is_cancelled)
    file.touch()
    ids = [*early, late, held]
    more = await submit_many(database, 20, task_type="effect")
    await all_in(database, [*ids, *more], within_seconds=20)
    stories = await check_stories(database, [*ids, *more])
    for task_id in ids:
        kinds = [one["kind"].rpartition(".")[2] for one in stories[task_id]]
        assert kinds == ["queued", "claimed", "completed"], "what was undone has never been"
    assert len(lines_with(journal(), "end", early[0])) == 2, "the work was done twice, its outcome is one"

    # The relay goes on from what it reads in its row.
    await is_published(database)
    assert (await fetch(database, "select low from grns.relay_cursor"))[0]["low"] > low
    heard = {one.headers["Nats-Msg-Id"]: one for one in await read_stream(broker.url, "GRNS_EVT")}
    logged = await committed(database, "evt.")
    assert logged <= heard.keys()
    lost = {id for id in heard if id not in logged}
    assert lost <= before.keys()
    assert {before[id].headers["Grns-Task"] for id in lost} >= {*early, *never, late, held}
    numbers = {heard[id].headers["Grns-Seq"] for id in lost}
    assert numbers & {heard[id].headers["Grns-Seq"] for id in logged}, "numbers are given out again"

    (fact,) = fleet.facts_of(server, "postgres_failed_over")
    assert (fact["level"], fact["old_timeline"], fact["new_timeline"]) == ("warning", 1, 2)
    assert fact["is_same_cluster"] is True
    assert "grns admin verify" in fact["detail"]

    code, found, said = await verified(database_url, broker.url)
    assert code == 1, said
    assert found["is_sound"] is True
    assert {one["message_id"] for one in found["lost"]} == lost
    for one in found["lost"]:
        told = heard[one["message_id"]]
        assert (one["task_id"], str(one["version"]), one["kind"]) == (
            told.headers["Grns-Task"], told.headers["Grns-Version"], told.body["kind"],
        )  # fmt: skip
        assert one["happened_at"] == told.body["emitted_at"]
        assert one["status"] == (None if one["task_id"] in never else "succeeded")
    assert [one["old_timeline"] for one in found["failovers"]] == [1]
    assert f"lost {len(lost)} messages" in said
    assert "--known-failovers 1" in said

    code, found, _ = await verified(database_url, broker.url, "--known-failovers", "1")
    assert (code, found["failovers"], found["lost"]) == (0, [], None)


async def test_without_lost_commits(
    pair: Pair, fleet: Fleet, database: Database, database_url: str, broker: LocalNats, journal: Journal
) -> None:
    """Where the standby has every commit, the failover is noticed, and nothing is lost or told twice."""
    server = fleet.start("server", **SHORT)
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "5", **SHORT)
    await server_is_noted(database)
    await ready(database, worker)
    await wait_for_standby(pair.primary)
    ids = await submit_many(database, 100, task_type="effect", payload={"seconds": 0.05})

    async def many_have_ended() -> bool:
        return len(lines_with(journal(), "end")) > 30

    await eventually(many_have_ended, every=0.005)
    await pair.fail_over()
    await failover_is_noticed(database)
    rows = await all_in(database, ids, within_seconds=30)
    assert max(row["attempt"] for row in rows.values()) <= 2
    await check_everything(database, broker.url)
    assert len(fleet.facts_of(server, "postgres_failed_over")) == 1

    code, found, said = await verified(database_url, broker.url)
    assert code == 0, said
    assert (found["is_sound"], found["lost"], len(found["failovers"])) == (True, [], 1)
    assert found["failovers"][0]["new_timeline"] == 2

    # Without the broker the rest is looked at all the same, and what could not be is said.
    code, found, said = await verified(database_url, "nats://127.0.0.1:1")
    assert (code, found["is_sound"], found["lost"]) == (5, True, None)
    assert found["tasks"] == 100
    assert "was not looked for" in said
