"""What the relay does about a broker that has lost something: whatever else keeps it busy or in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import nats.errors
import nats.js.errors
import pytest

from grns.bootstrap.app import App
from grns.dev.servers import LocalNats
from grns.nats import JetStream
from grns.nats.messages import Message, Receipt, StreamState
from grns.outbox import replay
from grns.outbox.log import LastAcknowledged, LostRange, Mark
from grns.outbox.stream_loss import StreamLossDetector, StreamPosition, positions
from grns.postgres.database import Database, Session
from grns.settings import load
from grns.telemetry.service_signals import BrokerLost, EventsReplayed, RelayHeldUp, ReplayDone, TickFailed
from grns.telemetry.signal import Signal
from tests.chaos.proxy import Proxy
from tests.support.harness import committed, eventually, is_relayed, manage, read_stream, submit_many
from tests.support.relays import knows_the_streams, relaying
from tests.support.store import fetch

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("in_environment")]


async def holds_all(database: Database, url: str, stream: str = "GRNS_EVT", kind: str = "evt.") -> bool:
    """Tell whether a stream has all that was ever committed for it."""
    try:
        heard = await read_stream(url, stream)
    except (nats.errors.Error, nats.js.errors.Error):  # it is not there
        return False
    return await committed(database, kind) <= {one.headers["Nats-Msg-Id"] for one in heard}


async def test_a_full_relay_makes_a_stream_that_is_gone(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it full would never be acknowledged otherwise."""
    monkeypatch.setenv("GRNS_RELAY_WINDOW", "5")
    async with relaying() as note:
        await submit_many(database, 20)
        await eventually(lambda: is_relayed(database))
        await eventually(lambda: knows_the_streams(database))
        await manage(broker.url, "STREAM.DELETE.GRNS_EVT")
        await submit_many(database, 100)  # all of it is read at once, and is more than the window
        await eventually(lambda: holds_all(database, broker.url), every=0.2)
        await eventually(lambda: is_relayed(database))
        assert await note.has_told(BrokerLost)


async def test_what_is_rare_in_the_log_is_replayed_from_all_of_it(
    database: Database, broker: LocalNats
) -> None:
    """A few letters among more rows than are looked at in one tick, and none among the last of them."""
    await fetch(
        database,
        "insert into grns.events (version, workspace, kind, trace_id, payload)"
        " select 1, 'default', case n % 30000 when 7 then 'dlq.task.dead' else 'evt.agent.a.b' end,"
        " 'trace', '{}'"
        " from generate_series(1, 45000) as n",
    )
    await fetch(
        database,
        "update grns.relay_cursor set dlq_epoch = 'of another stream',"
        " low = (select max(seq) from grns.events)",
    )
    async with relaying() as note:
        await eventually(lambda: note.has_told(EventsReplayed))
        assert [signal.events for signal in note.emitted if isinstance(signal, EventsReplayed)] == [2]
        assert await holds_all(database, broker.url, "GRNS_DLQ", "dlq.")
        assert await read_stream(broker.url, "GRNS_EVT") == [], "that one has lost nothing"


@pytest.mark.parametrize("manage_as", ["verify", "apply"])
async def test_a_stream_that_is_not_as_it_should_be_hides_no_loss(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, manage_as: str
) -> None:
    """Where grns may change nothing, and where the server refuses what grns would change."""
    app = App(load())
    async with app.connections("test") as (_, transport):
        await transport.provision()
    commands = await config_of(broker, "GRNS_CMD")
    await manage(broker.url, "STREAM.DELETE.GRNS_CMD")
    await manage(broker.url, "STREAM.CREATE.GRNS_CMD", commands | {"storage": "memory"})  # for ever
    monkeypatch.setenv("GRNS_NATS_MANAGE", manage_as)
    async with relaying() as note:
        await submit_many(database, 20, delay_seconds=3600.0)
        await eventually(lambda: is_relayed(database))
        await eventually(lambda: knows_the_streams(database))
        assert await note.has_told(TickFailed), "and what differs is told"
        events = await config_of(broker, "GRNS_EVT")
        await manage(broker.url, "STREAM.DELETE.GRNS_EVT")
        await manage(broker.url, "STREAM.CREATE.GRNS_EVT", events | {"metadata": {"grns.epoch": "another"}})
        await submit_many(database, 1, delay_seconds=3600.0)
        await eventually(lambda: holds_all(database, broker.url), every=0.2)
        assert await note.has_told(BrokerLost)


async def test_a_stream_that_takes_nothing_keeps_no_other_from_what_is_new(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits for it; and all of that goes out, each task's in order, once it takes them."""
    app = App(load())
    async with app.connections("test") as (_, transport):
        await transport.provision()
    letters = await config_of(broker, "GRNS_DLQ")
    await manage(broker.url, "STREAM.DELETE.GRNS_DLQ")
    monkeypatch.setenv("GRNS_NATS_MANAGE", "verify")
    monkeypatch.setenv("GRNS_RELAY_WINDOW", "5")
    await insert_letters(database, 300)
    await submit_many(database, 5)
    async with relaying() as note:
        await eventually(lambda: holds_all(database, broker.url))
        await submit_many(database, 20)
        await eventually(lambda: holds_all(database, broker.url))
        assert not await is_relayed(database)
        assert not await note.has_told(RelayHeldUp)
        await manage(broker.url, "STREAM.CREATE.GRNS_DLQ", letters)
        await eventually(lambda: is_relayed(database))
    heard = await read_stream(broker.url, "GRNS_DLQ")
    assert {one.headers["Nats-Msg-Id"] for one in heard} == await committed(database, "dlq.")
    for task in {one.headers["Grns-Task"] for one in heard}:
        versions = [int(one.headers["Grns-Version"]) for one in heard if one.headers["Grns-Task"] == task]
        assert versions == sorted(versions)


async def test_where_too_much_waits_for_a_stream_that_is_told(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in memory, and that has an end; what the next leader finds undone it sends."""
    app = App(load())
    async with app.connections("test") as (_, transport):
        await transport.provision()
    letters = await config_of(broker, "GRNS_DLQ")
    await manage(broker.url, "STREAM.DELETE.GRNS_DLQ")
    monkeypatch.setenv("GRNS_NATS_MANAGE", "verify")
    monkeypatch.setattr("grns.outbox.ordered_publisher._MOST_HELD", 100)
    await insert_letters(database, 300)
    async with relaying() as note:
        await eventually(lambda: note.has_told(RelayHeldUp))
        await submit_many(database, 5)
    await manage(broker.url, "STREAM.CREATE.GRNS_DLQ", letters)
    async with relaying():
        await eventually(lambda: is_relayed(database))
    assert await holds_all(database, broker.url)
    assert await holds_all(database, broker.url, "GRNS_DLQ", "dlq.")


async def insert_letters(database: Database, count: int) -> None:
    """Put dead letters of a few tasks into the log."""
    await fetch(
        database,
        "insert into grns.events (version, workspace, task_id, kind, trace_id, payload)"
        " select n, 'default', 'gr-' || n % 40, 'dlq.task.dead', 'trace', '{}'"
        " from generate_series(1, $1::int) as n",
        count,
    )


async def test_a_broker_that_is_far_away_does_not_cost_the_lead(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look asks it five times or more, one after another: a standby would take the lead meanwhile."""
    network = Proxy(broker.port)
    await network.start()
    network.latency_seconds = 0.3
    monkeypatch.setenv("GRNS_NATS_URL", broker.url.replace(f":{broker.port}", f":{network.port}"))
    try:
        async with relaying(count=2):
            await submit_many(database, 20)
            await eventually(lambda: is_relayed(database))
            await eventually(lambda: knows_the_streams(database))
            await manage(broker.url, "STREAM.DELETE.GRNS_EVT")
            await submit_many(database, 20)
            await eventually(lambda: holds_all(database, broker.url), every=0.2)
            await eventually(lambda: is_relayed(database))
    finally:
        await network.stop()


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["what was lost", "what was asked for"])
async def test_a_postgres_that_is_far_away_does_not_cost_the_lead(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_asked_for: bool
) -> None:
    """Where little of a long stretch is replayed, a tick reads no more pages than the lead allows."""
    await fetch(
        database,
        "insert into grns.events (version, workspace, kind, trace_id, payload)"
        " select 1, 'default', 'evt.agent.a.b', 'trace', '{}' from generate_series(1, $1) as n",
        11_000 if is_asked_for else 22_000,
    )
    await fetch(
        database,
        "update grns.relay_cursor set low = (select max(seq) from grns.events),"
        " dlq_epoch = case when $1 then dlq_epoch else 'of another stream' end",
        is_asked_for,
    )
    if is_asked_for:
        await replay.request(
            database, workspace=None, patterns=["^dlq"], since=3600.0, until=0.0, remembered_seconds=None
        )
    network = Proxy(int(database.url.rpartition("/")[0].rpartition(":")[2]))
    await network.start()
    far = database.url.replace(f":{network.target_port}/", f":{network.port}/")
    monkeypatch.setenv("GRNS_DATABASE_URL", far)
    monkeypatch.setenv("GRNS_RELAY_LEASE_SECONDS", "1.5")
    network.latency_seconds = 0.05
    try:
        async with relaying(count=2) as note:
            ended = ReplayDone if is_asked_for else EventsReplayed
            await eventually(lambda: note.has_told(ended), within_seconds=40.0)
            await submit_many(database, 1)
            await eventually(lambda: is_relayed(database))
    finally:
        await network.stop()


# ---------------------------------------------------------------- one look


def watching(
    session: Session, transport: JetStream, told: list[Signal], places: Mapping[str, LastAcknowledged]
) -> StreamLossDetector:
    """Return what looks at streams that were in these places."""
    return StreamLossDetector(
        session=session,
        transport=transport,
        positions=positions(places),
        replay_seconds=3600.0,
        emit=told.append,
    )


async def has_found(watch: StreamLossDetector, told: list[Signal], low: int, high: int) -> BrokerLost:
    """Look until a loss is found."""

    async def look() -> BrokerLost | None:
        await watch.look(low, high)
        return next((signal for signal in told if isinstance(signal, BrokerLost)), None)

    return cast(BrokerLost, await eventually(look))


@pytest.mark.parametrize(
    ("last_row", "replay_from"),
    [(42_000, 22_000), (44_990, 0)],
    ids=["done before the look began", "perhaps sent after what was lost"],
)
async def test_only_what_was_done_before_a_look_says_what_survived(
    database: Database, last_row: int, replay_from: int
) -> None:
    """What is still on its way may be stored while the broker is looked at: behind what it has lost."""
    await insert_events(database, 45_000)
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        for row in (5, last_row):
            lines = {"Grns-Seq": str(row)}
            await transport.publish(Message("evt.agent.a.b.v1", b"{}", str(row), lines))
        state = await transport.state("GRNS_EVT")
        other = await transport.state("GRNS_DLQ")
        told: list[Signal] = []
        places = {
            "GRNS_EVT": LastAcknowledged(state.epoch, 1000),
            "GRNS_DLQ": LastAcknowledged(other.epoch, 0),
        }
        watch = watching(session, transport, told, places)
        lost = await has_found(watch, told, 44_900, 45_000)
        assert (lost.reason, lost.replay_from) == ("the stream lost its end", replay_from)


async def test_a_loss_that_was_only_suspected_is_not_forgotten_with_the_lead(database: Database) -> None:
    """By the time the next leader looks, there are more messages than the broker had when it lost some."""
    await insert_events(database, 100)
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        for row in range(1, 12):
            await transport.publish(Message("evt.agent.a.b.v1", b"{}", str(row), {"Grns-Seq": str(row)}))
        state = await transport.state("GRNS_EVT")
        other = await transport.state("GRNS_DLQ")
        told: list[Signal] = []
        places = {"GRNS_EVT": LastAcknowledged(state.epoch, 10), "GRNS_DLQ": LastAcknowledged(other.epoch, 0)}
        first = watching(session, transport, told, places)
        for seq in (9, 10, 11):
            first.note(Receipt("GRNS_EVT", seq, duplicate=False), seq)
        assert first.places["GRNS_EVT"].last_seq == 11
        assert first.places["GRNS_DLQ"] == places["GRNS_DLQ"]
        second = watching(session, transport, told, first.places)
        await has_found(second, told, 100, 100)
        assert second.is_replaying


async def has_looked(watch: StreamLossDetector) -> None:
    """Look until the streams have answered."""
    positions = watch.positions.values()
    await watch.look(100, 100)

    async def has_begun() -> bool:
        return all(position.low is not None for position in positions)

    await eventually(has_begun)

    async def look() -> bool:
        await watch.look(100, 100)
        return all(position.low is None and not position.doubted for position in positions)

    await eventually(look)


@pytest.mark.parametrize(
    ("marks", "is_lost"),
    [
        ([], False),
        ([Mark(8, 8), Mark(10, 10)], False),
        ([Mark(10, 99)], True),
        ([Mark(8, 8), Mark(10, 99)], True),
        ([Mark(8, 99), Mark(10, 10)], True),
    ],
)
async def test_another_message_where_the_last_one_was_is_a_loss(
    database: Database, marks: list[Mark], is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader saw the stream go back, filled it again beyond that, and died before it persisted anything."""
    monkeypatch.setattr("grns.outbox.stream_loss._PAUSE_SECONDS", 600.0)
    await insert_events(database, 100)
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        for number in range(1, 20):
            await transport.publish(
                Message("evt.agent.a.b.v1", b"{}", str(number), {"Grns-Seq": str(number)})
            )
        state, other = await transport.state("GRNS_EVT"), await transport.state("GRNS_DLQ")
        told: list[Signal] = []
        places = {
            "GRNS_EVT": LastAcknowledged(state.epoch, 10, None, tuple(marks)),
            "GRNS_DLQ": LastAcknowledged(other.epoch, 0),
        }
        watch = watching(session, transport, told, places)
        watch.note(Receipt("GRNS_EVT", 15, duplicate=False), 15)
        assert watch.places["GRNS_EVT"].marks == (*marks, Mark(15, 15)), "it may stand in the place of others"
        await has_looked(watch)
        assert [type(one) for one in told] == ([BrokerLost] if is_lost else [])
        assert watch.is_replaying is is_lost
        if not is_lost:
            assert watch.places["GRNS_EVT"] == LastAcknowledged(state.epoch, 15, None, (Mark(15, 15),))
            watch.note(Receipt("GRNS_EVT", 16, duplicate=True), 51)
            assert watch.places["GRNS_EVT"] == LastAcknowledged(state.epoch, 16, None, (Mark(16, 51),))
            watch.suspect()
            watch.note(Receipt("GRNS_EVT", 17, duplicate=False), 52)
            assert watch.places["GRNS_EVT"].marks == (Mark(16, 51), Mark(17, 52))


async def test_a_message_that_is_gone_from_the_end_is_a_loss(database: Database, broker: LocalNats) -> None:
    """After a power cut the broker may know its last number, and not have the message; a purge is no loss."""
    await insert_events(database, 100)
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        for row in range(1, 20):
            await transport.publish(Message("evt.agent.a.b.v1", b"{}", str(row), {"Grns-Seq": str(row)}))
        state, other = await transport.state("GRNS_EVT"), await transport.state("GRNS_DLQ")
        places = {
            "GRNS_EVT": LastAcknowledged(state.epoch, 19, None, (Mark(19, 19),)),
            "GRNS_DLQ": LastAcknowledged(other.epoch, 0),
        }
        told: list[Signal] = []
        await manage(broker.url, "STREAM.PURGE.GRNS_EVT", {"seq": 10})
        await has_looked(watching(session, transport, told, places))
        assert not told
        await manage(broker.url, "STREAM.MSG.DELETE.GRNS_EVT", {"seq": 19})
        config = await config_of(broker, "GRNS_EVT")
        await manage(broker.url, "STREAM.UPDATE.GRNS_EVT", config | {"max_msgs_per_subject": 100})
        await has_looked(watching(session, transport, told, places))
        assert not told, "such a stream deletes messages before older ones"
        await manage(broker.url, "STREAM.UPDATE.GRNS_EVT", config)
        await has_found(watching(session, transport, told, places), told, 100, 100)
        told.clear()
        await manage(broker.url, "STREAM.PURGE.GRNS_EVT", {})
        await has_looked(watching(session, transport, told, places))
        assert not told


def test_what_is_doubted_stays_so_until_the_stream_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is doubted anew: what came between two doubts may be lost, and nothing before it."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    position = StreamPosition("GRNS_EVT", "epoch", 0, None)
    position.doubt(now)

    def rows() -> list[int]:
        return [mark.row for mark in position.marks]

    assert rows() == [], "nothing was acknowledged"

    def acknowledge(*numbers: int) -> None:
        for number in numbers:
            position.note(Receipt("GRNS_EVT", number, duplicate=False), 100 + number)

    acknowledge(1, 2)
    position.doubt(now)
    now += 1
    position.doubt(now)
    acknowledge(3)
    assert rows() == [102, 103]
    asked = position.doubts
    position.doubt(now)
    acknowledge(4)
    now += 0.01
    position.doubt(now)
    assert rows() == [102, 104], "it is one trouble"
    acknowledge(5)
    assert rows() == [102, 104, 105]
    position.trust(asked)
    assert rows() == [104, 105]
    position.trust(position.doubts)
    assert rows() == [105]
    for number in range(6, 200):
        acknowledge(number)
        now += 1
        position.doubt(now)
    assert len(rows()) <= 65, "no more than can be asked for"
    assert (rows()[0], rows()[-1]) == (106, 299)
    assert any(120 < row < 250 for row in rows()), "some in between, too"
    assert not position.went_back


def test_a_message_before_a_pause_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing is sent, a broker may lose its end, and nothing fails."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    position = StreamPosition("GRNS_EVT", "epoch", 0, None)
    for number, pause in enumerate((0.0, 0.9, 1.1, 0.9), start=1):
        now += pause
        position.note(Receipt("GRNS_EVT", number, duplicate=False), 100 + number)
    assert [mark.row for mark in position.marks] == [102, 104]
    now += 1.1
    position.note(Receipt("GRNS_EVT", 5, duplicate=False), 105)
    position.doubt(now)
    assert [mark.row for mark in position.marks] == [102, 104, 105], "it is no part of what comes then"


def test_an_answer_that_comes_after_its_loss_was_found_is_no_other_loss() -> None:
    """The broker had stored the message before it was asked, and answers afterwards."""
    position = StreamPosition("GRNS_EVT", "epoch", 20, None)
    state = StreamState("epoch", 1, 12, 12, None, drops_oldest=True)
    assert position.loss(state) == "the stream lost its end"
    position.begin_anew(state)
    assert not position.note(Receipt("GRNS_EVT", 12, duplicate=False), 31)
    assert not position.note(Receipt("GRNS_EVT", 13, duplicate=False), 32)
    assert [mark.row for mark in position.marks] == [32]
    assert position.note(Receipt("GRNS_EVT", 12, duplicate=False), 33), "now it is"
    assert position.went_back


async def test_what_one_leader_has_not_sent_again_the_next_one_does(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where the broker has it; from the beginning, where it has lost something once more meanwhile."""
    monkeypatch.setattr("grns.outbox.log.MARGIN_ROWS", 5)
    await insert_events(database, 100)
    await fetch(database, "update grns.events set created_at = now() - interval '2 hours' where seq <= 80")
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        state, other = await transport.state("GRNS_EVT"), await transport.state("GRNS_DLQ")
        told: list[Signal] = []
        places = {
            "GRNS_EVT": LastAcknowledged(state.epoch, 0, LostRange(10, 60)),
            "GRNS_DLQ": LastAcknowledged(other.epoch, 0),
        }
        watch = watching(session, transport, told, places)
        assert watch.places == places
        await watch.look(100, 100)
        parcels = await watch.next_replay(is_settled=True)
        assert [parcel.entry.seq for parcel in parcels] == list(range(61, 101))
        assert watch.places["GRNS_EVT"].lost == LostRange(10, 60), "nothing of it is acknowledged"
        for place, parcel in enumerate(parcels, start=1):
            assert parcel.on_receipt is not None
            parcel.on_receipt(Receipt("GRNS_EVT", place, duplicate=False))
        assert watch.places["GRNS_EVT"].lost == LostRange(10, 100)
        assert watch.places["GRNS_DLQ"].lost is None
        await watch.end()
        places["GRNS_EVT"] = LastAcknowledged("of another stream", 0, LostRange(10, 60))
        again = watching(session, transport, told, places)
        lost = await has_found(again, told, 100, 100)
        assert lost.replay_from == 10, "long before the last hour"
        parcels = await again.next_replay(is_settled=True)
        assert [parcel.entry.seq for parcel in parcels] == list(range(11, 101))
        assert again.places["GRNS_EVT"] == LastAcknowledged(state.epoch, 0, LostRange(10, 10))


async def test_how_far_back_is_told_from_what_was_published_last(database: Database) -> None:
    """However long ago that was: the broker has been away since, and comes back empty."""
    await insert_events(database, 30_000)
    await fetch(database, "update grns.events set created_at = now() - interval '9 hours' where seq <= 21000")
    await fetch(database, "update grns.events set created_at = now() - interval '7 hours' where seq > 21000")
    async with App(load()).connections("test") as (_, transport), database.session() as session:
        await transport.provision()
        told: list[Signal] = []
        gone = LastAcknowledged("of another stream", 0)
        watch = watching(session, transport, told, {"GRNS_EVT": gone, "GRNS_DLQ": gone})
        lost = await has_found(watch, told, 29_000, 30_000)
        assert lost.replay_from == 1_000


async def insert_events(database: Database, count: int) -> None:
    """Put events into the log."""
    await fetch(
        database,
        "insert into grns.events (version, workspace, kind, trace_id, payload)"
        " select 1, 'default', 'evt.agent.a.b', 'trace', '{}' from generate_series(1, $1::int) as n",
        count,
    )


async def config_of(broker: LocalNats, stream: str) -> dict[str, Any]:
    """Return how a stream is set up."""
    found: dict[str, Any] = (await manage(broker.url, f"STREAM.INFO.{stream}"))["config"]
    return found
