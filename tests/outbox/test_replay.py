"""`grns events replay`: what was published goes out again, once and in order, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from grns.bootstrap.app import App
from grns.cli import run
from grns.dev.servers import LocalNats
from grns.nats import JetStream, provision
from grns.nats.messages import Message, Receipt
from grns.outbox import log as stretch
from grns.outbox import replay
from grns.outbox.replay import Replayer
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.settings import load
from grns.telemetry.service_signals import ReplayDone, ReplayTaken
from grns.telemetry.signal import Emit, Signal
from tests.maintenance.test_consistency import lived
from tests.support.harness import (
    Fleet,
    Heard,
    committed,
    events_of,
    eventually,
    is_relayed,
    manage,
    read_stream,
    submit,
    submit_many,
)
from tests.support.relays import knows_the_streams, relaying
from tests.support.store import fetch, stranger

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("in_environment")]

_SHORT_WINDOW = provision.NANOSECONDS // 10  # the shortest that the broker takes


@asynccontextmanager
async def relayed(database: Database) -> AsyncIterator[tuple[JetStream, list[Signal]]]:
    """Run a relay meanwhile, once it has published all there is; shows a connection, and what it tells."""
    async with relaying() as note, App(load()).connections("test") as (_, transport):
        await eventually(lambda: is_relayed(database))
        yield transport, note.emitted


async def replayed(capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any, str]:
    """Run the command; returns its exit code, what it found, and what it said beside."""
    capfd.readouterr()
    code = await asyncio.to_thread(run, ["events", "replay", "-o", "json", "--timeout", "30", *options])
    out, said = capfd.readouterr()
    return code, json.loads(out) if out else None, said


async def window_has_passed(transport: JetStream) -> None:
    """Wait until the broker does not remember the ids of what it has stored so far."""
    for subject in ("evt.agent.probe.probe.v1", "dlq.task.probe.v1"):
        probe = Message(subject, b"{}", f"probe {subject}", {})
        await transport.publish(probe)

        async def is_forgotten(probe: Message = probe) -> bool:
            return not (await transport.publish(probe)).duplicate

        await eventually(is_forgotten, every=0.2)


async def purge(url: str) -> None:
    """Do what an administrator should not have done."""
    await manage(url, "STREAM.PURGE.GRNS_EVT")
    await manage(url, "STREAM.PURGE.GRNS_DLQ")


def in_order(heard: Sequence[Heard]) -> list[str]:
    """Return the message ids of a stream; fails where first copies of a task's are out of order."""
    latest: dict[str, int] = {}
    ids: list[str] = []
    for one in heard:
        id, task_id = one.headers["Nats-Msg-Id"], one.headers["Grns-Task"]
        if id not in ids:
            assert int(one.headers["Grns-Version"]) > latest.get(task_id, 0), task_id
            latest[task_id] = int(one.headers["Grns-Version"])
        ids.append(id)
    return ids


async def test_after_a_purge_everything_is_there_again_exactly_once(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(provision, "MINUTE", _SHORT_WINDOW // 5)
    await submit_many(database, 700)
    for _ in range(5):
        await lived(database)
    async with relayed(database) as (transport, emitted):
        events, letters = await committed(database, "evt."), await committed(database, "dlq.")
        assert len(events) > 700
        assert len(letters) == 5
        await window_has_passed(transport)
        await purge(broker.url)
        code, found, said = await replayed(capfd, "--since", "1h")
        assert code == 0, said
        assert (found["stored"], found["duplicates"]) == (len(events) + len(letters), 0)
        told = [each for each in emitted if isinstance(each, (ReplayTaken, ReplayDone))]
    for stream, wanted in (("GRNS_EVT", events), ("GRNS_DLQ", letters)):
        ids = in_order(await read_stream(broker.url, stream))
        assert len(ids) == len(wanted), "each exactly once"
        assert set(ids) == wanted
    assert [type(each) for each in told] == [ReplayTaken, ReplayDone]
    assert re.search(r"\d+ stored anew", said)


async def test_what_the_broker_remembers_it_drops(
    database: Database, broker: LocalNats, capfd: pytest.CaptureFixture[str]
) -> None:
    await submit_many(database, 20)
    async with relayed(database):
        code, found, _ = await replayed(capfd, "--since", "1h")
        assert (code, found["stored"], found["duplicates"]) == (0, 0, 20)
        assert await asyncio.to_thread(run, ["events", "replay", "--since", "1h"]) == 0
        out, said = capfd.readouterr()
        assert "0 stored anew, 20 dropped by the broker as duplicates" in out
        assert "duplicate window" in said
    assert len(await read_stream(broker.url, "GRNS_EVT")) == 20


async def test_only_what_was_asked_for_goes_out(
    database: Database, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    old, young, other = [(await submit(database)).id for _ in range(3)]
    task_id = await lived(database)
    await fetch(
        database, "update grns.events set created_at = now() - interval '3 h' where task_id = $1", old
    )
    await fetch(database, "update grns.events set workspace = 'other' where task_id = $1", other)
    async with relayed(database):

        async def count(*options: str) -> int:
            code, found, said = await replayed(capfd, *options)
            assert code == 0, said
            assert found["stored"] == 0
            return int(found["duplicates"])

        history = len((await events_of(database, [task_id]))[task_id])
        assert await count("--since", "1h") == 1 + history + 1, "and a dead letter"
        assert await count("--since", "4h") == 2 + history + 1
        assert await count("--since", "4h", "--until", "2h") == 1
        assert await count("--since", "4h", "--until", datetime.now(UTC).isoformat()) == 2 + history + 1
        assert await count("--since", "1h", "--all-workspaces") == 2 + history + 1
        assert await count("--since", "1h", "--kind", "evt.task.failed") == 1
        assert await count("--since", "1h", "--kind", "dlq.task.*") == 1
        assert await count("--since", "1h", "--kind", "dlq.task.*", "--kind", "evt.task.failed") == 2
        assert await count("--since", "1h", "--kind", "evt.task.*") == 1 + history
        assert await count("--since", "1h", "--kind", "evt.*.*.*") == 0
        monkeypatch.setenv("GRNS_WORKSPACE", "other")
        assert await count("--since", "1h") == 1
    assert young


async def test_what_handlers_have_forgotten_is_replayed_only_on_demand(
    database: Database, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They know by what they remember that they have handled it."""
    await submit_many(database, 3)
    await fetch(database, "update grns.events set created_at = now() - interval '9 d 1 h'")
    (moment,) = await fetch(database, "select now() - interval '10 d' as past")
    async with relayed(database):
        assert (await replayed(capfd, "--since", "30d"))[0] == 0, "the whole log is remembered"
        assert (await replayed(capfd, "--since", "31d"))[0] == 4
        monkeypatch.setenv("GRNS_PROCESSED_RETENTION_DAYS", "9.5")
        assert (await replayed(capfd, "--since", "9.5d"))[0] == 0
        for since in ("10d", moment["past"].isoformat()):
            asked = await fetch(database, "select from grns.replays")
            code, found, said = await replayed(capfd, "--since", since)
            assert (code, found) == (4, None)
            assert "event handlers remember which events they have handled: 9.5 days" in said
            assert "try: grns events replay --since 9.5d" in said
            assert len(await fetch(database, "select from grns.replays")) == len(asked)
        code, found, said = await replayed(capfd, "--since", "10d", "--include-forgotten")
        assert (code, found["duplicates"]) == (0, 3)
        assert "event handlers handle again what they handled more than 9.5 days ago" in said


async def test_a_transaction_that_was_open_for_long_hides_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its rows are as old as they are, not as old as it is: so the beginning of the stretch is found."""
    monkeypatch.setattr(stretch, "MARGIN_ROWS", 10)
    await submit_many(database, 50)
    async with stranger(database) as connection:
        since = await connection.fetchval("select clock_timestamp()")
        await submit_many(database, 50)
        await connection.fetch("select grns.submit_task('noop') from generate_series(1, 200)")
        await connection.execute("commit")
    await submit_many(database, 5)
    async with relayed(database):
        await eventually(lambda: is_relayed(database))  # what is not goes out by itself
        code, found, said = await replayed(capfd, "--since", since.isoformat())
    assert code == 0, said
    assert found["duplicates"] == 50 + 200 + 5


async def test_a_relay_that_dies_in_the_middle_is_followed_by_one_that_goes_on(
    fleet: Fleet,
    database: Database,
    broker: LocalNats,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(provision, "MINUTE", _SHORT_WINDOW // 5)
    await submit_many(database, 1500)
    for _ in range(5):
        await lived(database)
    async with relayed(database) as (transport, _):
        await eventually(lambda: knows_the_streams(database))
        await window_has_passed(transport)
    await purge(broker.url)
    wanted = len(await committed(database, "evt."))
    alone = {"GRNS_NATS_MANAGE": "verify", "GRNS_RELAY_LEASE_SECONDS": "1"}
    first = fleet.start("daemon", "relay", GRNS_FAILPOINTS="relay.acknowledged=kill#800", **alone)
    asking = asyncio.create_task(replayed(capfd, "--since", "1h"))

    async def is_dead() -> bool:
        return first.poll() is not None

    await eventually(is_dead, within_seconds=60)
    assert first.returncode == -signal.SIGKILL
    (row,) = await fetch(database, "select * from grns.replays")
    assert row["ended_at"] is None
    assert row["first_seq"] <= row["after_seq"] < row["up_to_seq"], "it was in the middle"
    fleet.start("daemon", "relay", **alone)
    code, found, said = await asking
    assert code == 0, said
    assert found["stored"] + found["duplicates"] >= wanted
    for stream, kind in (("GRNS_EVT", "evt."), ("GRNS_DLQ", "dlq.")):
        ids = in_order(await read_stream(broker.url, stream))
        assert set(ids) == await committed(database, kind)
        assert len(ids) < len(set(ids)) + 600, "only the page that was under way goes out twice"


async def test_who_does_not_wait_any_longer_withdraws(
    database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    await submit_many(database, 3)
    code, found, said = await replayed(capfd, "--since", "1h", "--timeout", "0.5")
    assert (code, found) == (6, None)
    assert "withdrawn" in said
    (row,) = await fetch(database, "select * from grns.replays")
    assert (row["outcome"], row["started_at"]) == ("withdrawn", None)
    async with relayed(database):
        assert (await replayed(capfd, "--since", "1h"))[1]["duplicates"] == 3


async def test_ctrl_c_withdraws_what_is_not_done(fleet: Fleet, database: Database) -> None:
    command = fleet.start("events", "replay", "--since", "1h")

    async def is_asked_for() -> bool:
        return bool(await fetch(database, "select from grns.replays"))

    await eventually(is_asked_for, within_seconds=60)
    command.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(command.wait, 20) == 130
    (row,) = await fetch(database, "select * from grns.replays")
    assert row["outcome"] == "withdrawn"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("", "Missing option"),
        ("--since yesterday", "neither a duration nor a time"),
        ("--since 2026-01-01T00:00:00", "has no zone"),
        ("--since 0001-01-01T00:00:00+14:00", "neither a duration nor a time"),
        ("--since 99999d", "more than ten years ago"),
        ("--since 1h --until 2h", "before --until"),
        ("--since 2026-01-02T00:00Z --until 2026-01-01T00:00Z", "before --until"),
        ("--since 1h --kind cmd.task.execute", "is not a kind"),
        ("--since 1h --kind >", "is not a kind"),
        ("--since 2999-01-01T00:00Z", "begin in the past"),
        ("--since 1h --until 2001-01-01T00:00Z", "before it ends"),
    ],
)
def test_bad_arguments_are_told_with_a_hint(
    options: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["events", "replay", *options.split()]) == 2
    said = capfd.readouterr().err
    assert sentence in said
    assert "try: grns events replay" in said


# ---------------------------------------------------------------- page by page


@asynccontextmanager
async def leading(database: Database, emit: Emit) -> AsyncIterator[Replayer]:
    """Hold the lead, as the relay does."""
    async with database.session() as session:
        lease = LeaderLease("relay", str(uuid4()), 0.0)
        assert await lease.acquire(session)
        yield Replayer(session=session, epoch=lease.epoch, emit=emit)


async def asked(database: Database) -> int:
    """Ask for everything."""
    return await replay.request(
        database, workspace=None, patterns=["^evt"], since=3600.0, until=0.0, remembered_seconds=None
    )


async def high(database: Database) -> int:
    """Return the highest number."""
    return int((await fetch(database, "select max(seq) as n from grns.events"))[0]["n"])


def acknowledge(replays: Replayer, count: int, *, duplicate: bool = False) -> None:
    """Answer as the broker does."""
    for number in range(count):
        replays.note(Receipt("GRNS_EVT", number, duplicate))


async def test_a_loss_meanwhile_begins_it_anew(database: Database) -> None:
    await submit_many(database, 600)
    number, top = await asked(database), await high(database)
    told: list[Signal] = []
    async with leading(database, told.append) as replays:
        first = await replays.next(top, is_held=False)
        assert 0 < len(first) < 600
        assert await replays.next(top, is_held=False) == [], "one page at a time"
        assert await replays.next(top, is_held=True) == []
        acknowledge(replays, len(first))
        assert await replays.next(top, is_held=True) == []
        assert await replays.next(top, is_held=False) == first
        sent = list(first)
        while (await replay.progress(database, number))["outcome"] is None:
            acknowledge(replays, len(first), duplicate=len(sent) > 500)
            first = await replays.next(top, is_held=False)
            sent += first
        row = await replay.progress(database, number)
    assert [entry.seq for entry in sent] == sorted(entry.seq for entry in sent)
    assert {entry.message_id for entry in sent} == await committed(database, "evt.")
    assert row["outcome"] == "done"
    assert row["stored"] + row["duplicates"] == 600
    assert row["duplicates"] > 0
    assert told == [
        ReplayTaken(number, 0, top),
        ReplayDone(number, row["stored"], row["duplicates"]),
    ]


async def test_what_was_withdrawn_goes_no_further(database: Database) -> None:
    await submit_many(database, 600)
    number, top = await asked(database), await high(database)
    async with leading(database, lambda _: None) as replays:
        first = await replays.next(top, is_held=False)
        assert await replay.withdraw(database, number)
        assert not await replay.withdraw(database, number)
        acknowledge(replays, len(first))
        assert await replays.next(top, is_held=False) == []
        assert (await replay.progress(database, number))["outcome"] == "withdrawn"
        other = await asked(database)
        assert len(await replays.next(top, is_held=False)) == len(first)
        assert (await replay.progress(database, other))["started_at"] is not None


async def test_who_has_lost_the_lead_notes_nothing(database: Database) -> None:
    await submit_many(database, 600)
    number, top = await asked(database), await high(database)
    async with leading(database, lambda _: None) as old:
        page = await old.next(top, is_held=False)
        acknowledge(old, len(page))
        async with leading(database, lambda _: None) as new:
            assert await old.next(top, is_held=False) == []
            assert (await replay.progress(database, number))["after_seq"] == 0
            assert await new.next(top, is_held=False) == page, "the next one goes on from what is noted"


async def test_what_the_relay_has_not_seen_yet_goes_out_by_itself_first(database: Database) -> None:
    ids = [*await submit_many(database, 50), *await submit_many(database, 50)]
    number, top = await asked(database), await high(database)
    async with leading(database, lambda _: None) as replays:
        page = await replays.next(top, is_held=False)
        assert {entry.task_id for entry in page} == set(ids)
    async with leading(database, lambda _: None) as replays:  # it has read less of the log so far
        page = await replays.next(top // 2, is_held=False)
        assert max(entry.seq for entry in page) <= top // 2
        acknowledge(replays, len(page))
        assert await replays.next(top // 2, is_held=False) == []
        row = await replay.progress(database, number)
    assert (row["outcome"], row["up_to_seq"]) == ("done", top // 2), (
        "the relay sends the rest with what is new"
    )


@pytest.mark.parametrize(
    ("first", "after", "sent"),
    [(1, 0, 50), (1, 20_000, 0), (15_000, 15_099, 0)],
    ids=["not_begun", "beyond_the_log", "all_beyond_the_log"],
)
async def test_one_that_a_failover_took_the_log_from_ends_where_the_log_does(
    database: Database, first: int, after: int, sent: int
) -> None:
    """Its end was taken from the log that was; whoever waits behind it has his turn."""
    await submit_many(database, 50)
    number, top = await asked(database), await high(database)
    await fetch(
        database,
        "update grns.replays set started_at = now(), first_seq = $1, after_seq = $2, up_to_seq = 20000",
        first,
        after,
    )
    behind = await asked(database)
    async with leading(database, lambda _: None) as replays:
        pages = []
        while (await replay.progress(database, behind))["outcome"] is None:
            page = await replays.next(top, is_held=False)
            acknowledge(replays, len(page))
            pages.append(len(page))
            assert len(pages) < 10, "it never ends"
        row = await replay.progress(database, number)
    assert (row["outcome"], row["stored"], row["up_to_seq"]) == ("done", sent, top)
    assert row["first_seq"] - 1 <= row["after_seq"] == top, "and how far it is can be told"
    assert sum(pages) == sent + 50
