"""What is particular to JetStream: its names, its answers, and the ways in which nats-py fails."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse, urlsplit

import nats
import pytest
from nats import errors as nats_errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg

from grns.dev.servers import LocalNats
from grns.errors import (
    BrokerRefusedError,
    DriftError,
    GrnsError,
    OutcomeUnknownError,
    SettingsError,
    UnavailableError,
)
from grns.model import subjects
from grns.model.subjects import matches
from grns.nats import JetStream
from grns.nats.api import ApiError, Replies, read_answer
from grns.nats.connection import Connection, harmless, ignore
from grns.nats.delivery import UNKNOWN, Delivery, Origin, is_inbox, parse_reply
from grns.nats.messages import Message, Receipt, read_headers
from grns.nats.options import next_server, options
from grns.nats.provision import (
    drift,
    expected_durable,
    expected_streams,
    expected_subscriber,
    filters,
    merged,
)
from grns.nats.publisher import verdict
from grns.settings import Settings
from tests.support.cluster import cluster
from tests.support.rude_responder import RUDE, rude

PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
LIMIT = 10.0

Facts = list[tuple[str, dict[str, Any]]]
Connect = Callable[..., Awaitable[JetStream]]


async def eventually(fact: Callable[[], object], *, seconds: float = LIMIT) -> None:
    """Return as soon as `fact()` is true."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.005)


def freeze(server: LocalNats) -> None:
    """Freeze a server, and return when all its threads stand still: the signal arrives a little later."""
    server.freeze()
    deadline = time.monotonic() + LIMIT
    threads = f"{server.pid}/task/*/stat"
    while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in Path("/proc").glob(threads)):
        assert time.monotonic() < deadline, "it never stood still"
        time.sleep(0.001)


def message(subject: str = PRIORITY_SUBJECT, body: bytes = b"{}") -> Message:
    """Return a message with an id of its own."""
    return Message(subject, body, str(uuid.uuid4()), {})


def settings(**changes: Any) -> Settings:
    """Return settings; the lease makes the watchdog brisk."""
    return Settings(**({"lease_seconds": 1.0, "nats_startup_seconds": LIMIT} | changes))


@pytest.fixture
def extra_config() -> str:
    """What a test adds to the server's configuration."""
    return ""


@pytest.fixture
def server(tmp_path: Path, extra_config: str) -> Iterator[LocalNats]:
    """A server of this test's own."""
    has_token = "authorization" not in extra_config
    with LocalNats(tmp_path / "nats", extra_config=extra_config, has_token=has_token) as running:
        yield running
        running.thaw()


@pytest.fixture
def facts() -> Facts:
    """What the transports have told."""
    return []


@pytest.fixture
async def connect(server: LocalNats, facts: Facts) -> AsyncIterator[Connect]:
    """Make connected transports; keywords are settings."""
    async with AsyncExitStack() as stack:

        async def make(**changes: Any) -> JetStream:
            transport = JetStream(
                settings(**({"nats_url": server.url} | changes)),
                name="test",
                on_fact=lambda name, fields: facts.append((name, fields)),
            )
            await transport.connect()
            stack.push_async_callback(transport.close)
            return transport

        yield make
        server.thaw()


@pytest.fixture
async def transport(connect: Connect) -> JetStream:
    """A transport with its streams made."""
    made = await connect()
    await made.provision()
    return made


def client_of(transport: JetStream) -> Client:
    """Return the client of nats-py at the bottom of it."""
    line = transport._connection._client
    assert line is not None
    return line.client


async def manage(server: LocalNats, operation: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """Do what an administrator does."""
    client = await nats.connect(server.url)
    answer = await client.request(f"$JS.API.{operation}", json.dumps(request or {}).encode(), timeout=LIMIT)
    await client.close()
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, found
    return found


# Reply subjects


@pytest.mark.parametrize(
    ("reply", "origin"),
    [
        ("$JS.ACK.GRNS_CMD.execute.3.17.5.1700000000000000000.2", Origin("GRNS_CMD", "execute", 3, 17)),
        ("$JS.ACK._.ACCHASH.GRNS_CMD.execute.3.17.5.1700000000.2", Origin("GRNS_CMD", "execute", 3, 17)),
        ("$JS.ACK.hub.ACCHASH.GRNS_CMD.execute.3.17.5.1700000000.2", Origin("GRNS_CMD", "execute", 3, 17)),
        ("$JS.ACK.hub.ACCHASH.GRNS_CMD.execute.3.17.5.17000.2.rnd", Origin("GRNS_CMD", "execute", 3, 17)),
        ("$JS.ACK.GRNS_CMD.execute.x.17.5.1700000000000000000.2", UNKNOWN),
        ("$JS.ACK.GRNS_CMD.execute.3.17.5.2", UNKNOWN),
        ("_INBOX.1.2.3.4.5.6.7.8", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_the_reply_subject_is_read_in_both_forms(reply: str, origin: Origin) -> None:
    assert parse_reply(reply) == origin


@pytest.mark.parametrize("extra_config", ["", "feature_flags { js_ack_fc_v2: true }"], ids=["v1", "v2"])
async def test_deliveries_are_understood_and_acked_in_both_forms(
    transport: JetStream, extra_config: str
) -> None:
    receipt = await transport.publish(message())
    got: list[Delivery] = []
    await transport.consume(PRIORITY_SUBJECT, got.append, depth=1)
    await eventually(lambda: got)
    assert len(got[0].token.split(".")) == (11 if extra_config else 9)
    assert (got[0].stream, got[0].stream_seq, got[0].delivery_count) == ("GRNS_CMD", receipt.seq, 1)
    await got[0].ack()
    deadline = time.monotonic() + LIMIT
    while (await transport.state(subjects.CMD_STREAM)).messages:
        assert time.monotonic() < deadline


# Configurations


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("_INBOX.abc", True),
        ("_INBOX_acme.abc.1", True),
        ("_GR_.cluster.server._INBOX.abc.1", True),  # as it comes through a gateway
        ("_R_.abc.def", True),  # as it comes from another account
        ("_GR_.cluster.server.$JS.API.STREAM.PURGE.GRNS_CMD", False),
        ("_GR_._INBOX.abc", False),
        ("_INBOX", False),
        ("_INBOX.", False),
        ("_INBOX..abc", False),
        ("_INBOX.>", False),
        ("_INBOX.*.abc", False),
        ("_INBOX.a b", False),
        ("_inbox.abc", False),
        ("$SYS.REQ.SERVER.PING", False),
        ("", False),
    ],
)
def test_an_inbox_is_told_from_any_other_subject(reply: str, expected: bool) -> None:
    assert is_inbox(reply) is expected


def test_durables_are_named_by_what_they_serve() -> None:
    durable = expected_durable(PRIORITY_SUBJECT, settings(lease_seconds=60))
    assert durable["name"] == durable["durable_name"] == subjects.durable(PRIORITY_SUBJECT)
    assert durable["metadata"] == {"grns.subject": PRIORITY_SUBJECT}
    assert durable["ack_wait"] == 30_000_000_000
    assert (durable["max_deliver"], "backoff" in durable) == (-1, False)
    subscriber = expected_subscriber("billing", ["evt.b", "evt.a"], settings())
    assert subscriber["name"] == "billing"
    assert filters(subscriber) == ["evt.a", "evt.b"]
    assert filters({}) == [">"]


def test_drift_is_what_differs_and_nothing_else() -> None:
    expected = expected_streams(settings())[0]
    actual = expected | {"max_msg_size": 5, "metadata": {"grns.epoch": "e"}}
    assert drift(expected, actual) == []
    assert drift(expected, actual | {"max_age": 1, "subjects": ["x"]}) == [
        "GRNS_CMD: subjects is ['x'], grns expects ['cmd.>']",
        "GRNS_CMD: max_age is 1, grns expects 86400000000000",
    ]
    other_order = {"name": "n", "filter_subjects": ["a", "b"]}
    assert drift(other_order, {"name": "n", "filter_subjects": ["b", "a"]}) == []


def test_mending_keeps_what_others_have_set() -> None:
    actual = {"name": "S", "max_age": 1, "placement": "x", "metadata": {"grns.epoch": "e", "_nats.ver": "2"}}
    assert merged({"name": "S", "max_age": 2}, actual) == {
        "name": "S",
        "max_age": 2,
        "placement": "x",
        "metadata": {"grns.epoch": "e"},
    }


async def test_what_others_have_set_survives_on_the_server(transport: JetStream, server: LocalNats) -> None:
    epoch = (await transport.state(subjects.CMD_STREAM)).epoch
    config = (await manage(server, "STREAM.INFO.GRNS_CMD"))["config"]
    await manage(server, "STREAM.UPDATE.GRNS_CMD", config | {"max_msg_size": 1000, "max_age": 3_600 * 10**9})
    assert any("max_age" in found for found in await transport.differences())
    assert await transport.provision() is False
    mended = (await manage(server, "STREAM.INFO.GRNS_CMD"))["config"]
    assert (mended["max_msg_size"], mended["max_age"]) == (1000, 86_400 * 10**9)
    assert (await transport.state(subjects.CMD_STREAM)).epoch == epoch
    assert await transport.differences() == []


async def test_what_cannot_be_changed_is_drift(connect: Connect, server: LocalNats) -> None:
    transport = await connect()
    await manage(server, "STREAM.CREATE.GRNS_CMD", {"name": "GRNS_CMD", "subjects": ["cmd.>"]})
    with pytest.raises(DriftError, match="retention"):
        await transport.provision()
    for made in (subjects.EVT_STREAM, subjects.DLQ_STREAM):
        assert (await transport.state(made)).messages == 0, "the others are made all the same"


@pytest.mark.parametrize(
    "extra_config",
    [
        "authorization { users [ { user: admin, password: p },"
        ' { user: u, password: p, permissions: { publish: { deny: "$JS.API.STREAM.*.GRNS_CMD" } } } ] }'
    ],
)
@pytest.mark.parametrize("is_other_different", [False, True])
async def test_what_is_wrong_with_one_stream_keeps_no_other_from_being_made(
    connect: Connect, server: LocalNats, extra_config: str, is_other_different: bool
) -> None:
    """Also where it may pass by itself: such a stream may be without a leader for days."""
    admin = await connect(nats_url=server.url.replace("//", "//admin:p@"))
    letters = next(one for one in expected_streams(settings()) if one["name"] == "GRNS_DLQ")
    if is_other_different:
        await admin._api.call("STREAM.CREATE.GRNS_DLQ", letters | {"storage": "memory"})
    transport = await connect(nats_url=server.url.replace("//", "//u:p@"))
    with pytest.raises(UnavailableError, match="does not permit this user") as caught:
        await transport.provision()
    assert ("storage" in str(caught.value)) is is_other_different, "what is wrong with others is told too"
    assert (await transport.state("GRNS_EVT")).messages == 0
    assert (await transport.state("GRNS_DLQ")).messages == 0


async def test_a_stream_without_an_epoch_has_its_birth(connect: Connect, server: LocalNats) -> None:
    transport = await connect()
    made = await manage(server, "STREAM.CREATE.GRNS_EVT", {"name": "GRNS_EVT", "subjects": ["evt.>"]})
    assert (await transport.state(subjects.EVT_STREAM)).epoch == made["created"]


async def test_a_durable_is_mended_where_the_server_lets_it(
    connect: Connect, transport: JetStream, server: LocalNats
) -> None:
    await transport.consume(PRIORITY_SUBJECT, lambda _delivery: None, depth=1)
    other = await connect(lease_seconds=20)
    await other.consume(PRIORITY_SUBJECT, lambda _delivery: None, depth=1)
    info = await manage(server, f"CONSUMER.INFO.GRNS_CMD.{subjects.durable(PRIORITY_SUBJECT)}")
    assert info["config"]["ack_wait"] == 20 * 10**9
    config = {"name": "execute", "durable_name": "execute", "ack_policy": "explicit"}
    config["filter_subject"] = subjects.shared_execute()
    await manage(server, "CONSUMER.CREATE.GRNS_CMD.execute", {"stream_name": "GRNS_CMD", "config": config})
    with pytest.raises(DriftError, match="max waiting can not be updated"):
        await transport.consume(subjects.shared_execute(), lambda _delivery: None, depth=1)


async def test_an_overlapping_durable_is_drift(transport: JetStream, server: LocalNats) -> None:
    config = {"name": "all", "durable_name": "all", "ack_policy": "explicit", "filter_subject": "cmd.>"}
    await manage(server, "CONSUMER.CREATE.GRNS_CMD.all", {"stream_name": "GRNS_CMD", "config": config})
    with pytest.raises(DriftError, match="not unique"):
        await transport.consume(PRIORITY_SUBJECT, lambda _delivery: None, depth=1)


async def test_making_a_durable_changes_none_that_somebody_made_meanwhile(
    transport: JetStream, server: LocalNats
) -> None:
    theirs = expected_durable(PRIORITY_SUBJECT, settings())
    await transport._provisioner.durable(subjects.CMD_STREAM, theirs)
    ours = theirs | {"filter_subject": "cmd.other.v1"}
    await transport._provisioner._make_durable(subjects.CMD_STREAM, ours)
    info = await manage(server, f"CONSUMER.INFO.GRNS_CMD.{theirs['name']}")
    assert info["config"]["filter_subject"] == PRIORITY_SUBJECT


# Answers


def _refused(number: int, description: str, code: int = 503) -> dict[str, Any]:
    """Return an answer of JetStream's that is an error."""
    error = {"code": code, "err_code": number, "description": description}
    return {"error": error, "stream": subjects.CMD_STREAM, "seq": 0}


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"stream": "GRNS_CMD", "seq": 3}, Receipt("GRNS_CMD", 3, False)),
        ({"stream": "GRNS_CMD", "seq": 3, "duplicate": True}, Receipt("GRNS_CMD", 3, True)),
        ({"stream": "GRNS_CMD", "domain": "hub", "seq": 3}, Receipt("GRNS_CMD", 3, False)),
        (_refused(10077, "maximum bytes exceeded"), "full"),
        (_refused(10077, "maximum messages exceeded"), "full"),
        (_refused(10077, "maximum messages per subject exceeded"), "full"),
        (_refused(10054, "message size exceeds", 400), "too_large"),
        (_refused(10077, "no space left on device"), UnavailableError),
        ({"error": {"code": 400, "err_code": 10002, "description": "resource limits"}}, UnavailableError),
        *[(answer, None) for answer in RUDE],
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict | bytes) else None,
)
def test_what_an_answer_means(answer: object, wanted: object) -> None:
    found = verdict(PRIORITY_SUBJECT, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
    if isinstance(wanted, str):
        assert isinstance(found, BrokerRefusedError)
        assert found.code == wanted
    elif wanted is UnavailableError:
        assert isinstance(found, UnavailableError)
    else:
        assert found == wanted


async def test_where_nobody_listens_that_is_told_at_once(connect: Connect) -> None:
    transport = await connect()
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="no responders"):
        await transport.publish(message())
    assert time.monotonic() - began < 1


async def test_where_only_strangers_answer_nothing_is_known(
    connect: Connect, server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who sees a message sees where its answer is expected; the stream is missing, and is silent."""
    monkeypatch.setattr("grns.nats.client.ANSWER_SECONDS", 1.0)
    transport = await connect()
    async with rude(server.url, "evt.>") as answered:
        with pytest.raises(OutcomeUnknownError):
            await transport.publish(message("evt.task.queued.v1"))
        assert answered() == 1
        await transport.provision()
        assert isinstance(await transport.publish(message("evt.task.queued.v1")), Receipt)


@pytest.mark.parametrize("answer", RUDE)
def test_what_jetstream_has_not_said_is_no_answer_of_its_api(answer: bytes) -> None:
    assert read_answer("$JS.API.STREAM.INFO.GRNS_EVT", answer) is None


def test_what_jetstream_has_said_is_an_answer_of_its_api() -> None:
    kind = {"type": "io.nats.jetstream.api.v1.stream_info_response"}
    assert read_answer("", json.dumps(kind | {"config": {}}).encode()) == kind | {"config": {}}
    refused = {"code": 404, "err_code": 10059, "description": "stream not found"}
    found = read_answer("", json.dumps(kind | {"error": refused}).encode())
    assert isinstance(found, ApiError)
    assert (found.number, found.code, found.description) == (10059, 404, "stream not found")


@pytest.mark.parametrize("extra_config", ["jetstream: false"])
async def test_where_only_strangers_answer_for_jetstream_nothing_is_believed(
    connect: Connect, server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens to everything hears what its API is asked, and may be sooner: here it is silent."""
    monkeypatch.setattr("grns.nats.client.ANSWER_SECONDS", 1.0)
    transport = await connect()
    async with rude(server.url, ">") as answered:
        with pytest.raises(OutcomeUnknownError):
            await transport.provision()
        with pytest.raises(OutcomeUnknownError):
            await transport.state("GRNS_EVT")
        with pytest.raises(OutcomeUnknownError):
            await transport.last_message("GRNS_EVT")
        assert answered() >= 5


async def test_strangers_who_answer_everything_change_nothing(connect: Connect, server: LocalNats) -> None:
    transport = await connect()
    async with rude(server.url, ">"):
        assert await transport.provision()
        receipt = await transport.publish(message("evt.task.queued.v1"))
        assert (await transport.state("GRNS_EVT")).last_seq == receipt.seq
        last = await transport.last_message("GRNS_EVT")
        assert last is not None
        assert last.seq == receipt.seq


async def test_limits_of_the_stream_are_refusals(transport: JetStream, server: LocalNats) -> None:
    config = (await manage(server, "STREAM.INFO.GRNS_CMD"))["config"]
    await manage(server, "STREAM.UPDATE.GRNS_CMD", config | {"max_msg_size": 1000, "max_bytes": 3000})
    with pytest.raises(BrokerRefusedError) as caught:
        await transport.publish(message(body=b"x" * 2000))
    assert caught.value.code == "too_large"
    answers: list[Receipt | GrnsError] = []
    for _ in range(10):
        await transport.ready()
        transport.post(message(body=b"x" * 800), answers.append)
    await eventually(lambda: len(answers) == 10)
    assert {answer.code for answer in answers if isinstance(answer, BrokerRefusedError)} == {"full"}


async def test_silence_becomes_an_error(connect: Connect, server: LocalNats) -> None:
    connection = Connection(settings(nats_url=server.url), name="test", on_fact=ignore)
    await connection.open()
    replies = Replies(connection, timeout_seconds=0.3, on_fact=ignore)
    await replies.open()
    answers: list[dict[str, Any] | GrnsError] = []
    for _ in range(3):
        reply = replies.expect("nobody.answers", answers.append, read_answer)
    assert replies.forget(reply)
    await eventually(lambda: answers)
    await replies.close()
    await connection.close()
    assert [type(answer) for answer in answers] == [OutcomeUnknownError, OutcomeUnknownError]


@pytest.mark.parametrize(
    "extra_config",
    ['authorization { users [ { user: u, password: p, permissions: { publish: { deny: "evt.>" } } } ] }'],
)
async def test_what_the_user_may_not_do_is_told_at_once(
    server: LocalNats, connect: Connect, extra_config: str
) -> None:
    transport = await connect(nats_url=server.url.replace("//", "//u:p@"))
    await transport.provision()
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="does not permit this user"):
        await transport.publish(message("evt.task.queued.v1"))
    assert time.monotonic() - began < 1
    assert isinstance(await transport.publish(message()), Receipt)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="refused the user"):
        await connect(nats_url=server.url.replace("//", "//u:wrong@"))
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("extra_config", ['authorization { token: "right" }'])
async def test_a_token_is_not_told_to_anybody(
    server: LocalNats, connect: Connect, facts: Facts, extra_config: str
) -> None:
    await connect(nats_url=server.url.replace("//", "//right@"))
    with pytest.raises(UnavailableError, match="refused the user") as refused:
        await connect(nats_url=server.url.replace("//", "//wr0ng@"))
    server.stop()
    with pytest.raises(UnavailableError, match="no broker answered") as unanswered:
        await connect(nats_url=server.url.replace("//", "//wr0ng@"), nats_startup_seconds=0.3)
    told = f"{refused.value} {unanswered.value} {facts}"
    assert server.url.partition("//")[2] in told
    assert "wr0ng" not in told
    assert "right" not in told


# What nats-py does not survive by itself


async def works(transport: JetStream, got: list[bytes], body: bytes) -> None:
    """Wait until a message goes all the way."""
    deadline = time.monotonic() + LIMIT
    while body not in got:
        assert time.monotonic() < deadline
        try:
            await transport.publish(message(body=body))
        except UnavailableError:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.02)


@pytest.fixture
async def got(transport: JetStream) -> list[bytes]:
    """What a consumer of the lane has got; it acks everything."""
    bodies: list[bytes] = []
    acks: set[asyncio.Task[None]] = set()

    def take(delivery: Delivery) -> None:
        bodies.append(delivery.body)
        task = asyncio.create_task(delivery.ack())
        acks.add(task)
        task.add_done_callback(acks.discard)
        consumer.done()

    consumer = await transport.consume(PRIORITY_SUBJECT, take, depth=10)
    await works(transport, bodies, b"before")
    return bodies


async def times_out(client: Client) -> bool:
    """Say whether a flush gets no answer."""
    try:
        await client.flush(timeout=cast(int, 0.1))
    except nats_errors.FlushTimeoutError:
        return True
    return False


async def test_a_read_loop_that_ended_is_noticed(
    transport: JetStream, got: list[bytes], server: LocalNats, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(transport)
    freeze(server)
    while not await times_out(client):  # the server answers until it has really stopped
        pass
    with caplog.at_level(logging.CRITICAL, logger="nats.aio.client"):
        server.thaw()
        await eventually(lambda: not transport.is_connected)
    assert client.is_connected  # nats-py itself does not know
    await works(transport, got, b"after")
    assert transport.is_connected
    assert client_of(transport) is client


async def test_a_blocked_loop_is_no_deaf_server(connect: Connect, server: LocalNats) -> None:
    """The answer has come and so has the end of the patience: the answer counts."""
    line = (await connect(lease_seconds=60.0))._connection._client
    assert line is not None
    for blocked_seconds in (0.6, 1.5):
        freeze(server)
        asking = asyncio.create_task(line.ping(within_seconds=0.5))
        await eventually(lambda: line.client._pongs)
        server.thaw()
        time.sleep(blocked_seconds)  # noqa: ASYNC251 - what a handler does
        assert await asking


async def test_a_server_that_is_deaf_is_noticed_by_a_loop_that_is_blocked_again_and_again(
    connect: Connect, server: LocalNats
) -> None:
    line = (await connect(lease_seconds=60.0))._connection._client
    assert line is not None
    freeze(server)

    async def block() -> None:
        while True:
            time.sleep(0.6)  # noqa: ASYNC251 - what handlers do
            await asyncio.sleep(0)

    blocking = asyncio.create_task(block())
    assert not await asyncio.wait_for(line.ping(within_seconds=0.5), 30)
    blocking.cancel()


async def test_who_is_stopped_in_the_moment_of_connecting_leaves_no_connection(server: LocalNats) -> None:
    connection = Connection(settings(nats_url=server.url), name="test", on_fact=ignore)
    opening = asyncio.create_task(connection.open())
    async with asyncio.timeout(LIMIT):
        while (line := connection._newest) is None or not line.was_connected:  # noqa: ASYNC110 - each turn counts
            await asyncio.sleep(0)
    assert not opening.done(), "the line is there, and nobody has looked at it yet"
    opening.cancel()
    await asyncio.wait({opening})
    assert opening.cancelled()
    assert line.client.is_closed


async def test_an_error_that_closes_the_client_does_not_close_the_transport(
    transport: JetStream, got: list[bytes], facts: Facts
) -> None:
    client = client_of(transport)
    nudges: list[str] = []
    await transport.on_nudge("nudge.me.v1", lambda: nudges.append("nudge"))
    await client._send_command(b"NONSENSE\r\n")
    await client._flush_pending()
    await eventually(lambda: client.is_closed)
    await works(transport, got, b"after")
    assert client_of(transport) is not client
    await transport.nudge("nudge.me.v1")
    await eventually(lambda: nudges)
    assert "broker_client_rebuilt" in [name for name, _ in facts]


async def test_a_client_whose_reconnecting_died_is_replaced(
    transport: JetStream, got: list[bytes], server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(transport)

    async def fail() -> None:
        raise RuntimeError("a bug in nats-py")

    monkeypatch.setattr(client, "_process_connect_init", fail)
    await asyncio.to_thread(server.restart)
    await works(transport, got, b"after")
    assert client_of(transport) is not client


async def test_a_socket_that_is_not_read_is_given_up(
    transport: JetStream, got: list[bytes], server: LocalNats, facts: Facts
) -> None:
    client = client_of(transport)
    freeze(server)
    for _ in range(40):  # more than sockets hold
        transport._connection.publish("nobody.listens", b"x" * 300_000)
    await eventually(lambda: not client.is_connected, seconds=5)
    server.thaw()
    await works(transport, got, b"after")
    assert "broker_deaf" in [name for name, _ in facts]


async def test_closing_does_not_wait_for_a_server_that_does_not_read(
    transport: JetStream, server: LocalNats
) -> None:
    freeze(server)
    for _ in range(40):
        transport._connection.publish("nobody.listens", b"x" * 300_000)
    began = time.monotonic()
    await transport.close()
    assert time.monotonic() - began < 8


async def test_closing_ends_an_attempt_that_misses_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `asyncio.wait_for` does where the connection is refused in just that moment."""
    attempts: list[None] = []

    async def connect_to_server(_client: Client, _server: Server) -> None:
        attempts.append(None)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if len(attempts) == 1:
                raise ConnectionRefusedError from None
            raise

    monkeypatch.setattr(Client, "_connect_to_server", connect_to_server)
    transport = JetStream(settings(nats_url="nats://127.0.0.1:1"), name="test")
    await transport.connect(is_patient=True)
    await eventually(lambda: attempts)
    async with asyncio.timeout(5):
        await transport.close()


async def test_a_broker_that_forgot_a_request_is_asked_again(
    transport: JetStream, got: list[bytes], facts: Facts
) -> None:
    (consumer,) = transport._consumers
    subscription = consumer._inbox._subscription
    assert subscription is not None
    await subscription.drop()
    await works(transport, got, b"after")
    assert ("consumer_failing", {"durable": consumer._durable, "reason": "missed heartbeats"}) in facts


async def test_requests_that_end_are_renewed(
    transport: JetStream, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.nats.consumer._EXPIRES_SECONDS", 0.6)
    got: list[Delivery] = []
    await transport.consume(PRIORITY_SUBJECT, got.append, depth=10)
    (consumer,) = transport._consumers
    pulls: list[str] = []
    publish = transport._connection.publish

    def count(subject: str, body: bytes = b"", **more: Any) -> None:
        pulls.append(subject)
        publish(subject, body, **more)

    monkeypatch.setattr(transport._connection, "publish", count)
    await eventually(lambda: len(pulls) == 3)
    await transport.publish(message())
    await eventually(lambda: got, seconds=0.3)
    assert consumer._requested == 9
    assert "consumer_failing" not in [name for name, _ in facts]


@pytest.mark.parametrize("status", ["400 Bad Request", "409 Exceeded MaxWaiting", "423 Wrong Pin", "999 ?"])
async def test_a_refused_request_is_repeated_with_pauses(
    transport: JetStream, got: list[bytes], facts: Facts, status: str
) -> None:
    (consumer,) = transport._consumers
    number, _, description = status.partition(" ")
    for _ in range(3):
        inbox = f"{consumer._inbox.address}.{consumer._generation}"
        headers = {"Status": number, "Description": description}
        consumer._receive(Msg(client_of(transport), subject=inbox, headers=headers))
        assert consumer.is_failing
        await eventually(lambda: consumer._requested)
    await works(transport, got, b"after")
    assert not consumer.is_failing
    assert ("consumer_failing", {"durable": consumer._durable, "reason": status}) in facts


async def test_a_late_status_of_an_earlier_request_is_ignored(transport: JetStream, got: list[bytes]) -> None:
    (consumer,) = transport._consumers
    late = f"{consumer._inbox.address}.{consumer._generation - 1}"
    consumer._receive(Msg(client_of(transport), subject=late, headers={"Status": "409"}))
    assert not consumer.is_failing
    assert consumer._requested > 0


async def test_inboxes_that_were_left_while_the_broker_was_away_are_forgotten(
    transport: JetStream, got: list[bytes], server: LocalNats
) -> None:
    (consumer,) = transport._consumers
    client = client_of(transport)
    before = len(client._subs)
    freeze(server)
    for _ in range(5):
        await consumer._inbox.renew()
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await works(transport, got, b"after")
    await eventually(lambda: len(client._subs) == before, seconds=3)


async def test_a_fact_that_cannot_be_told_harms_nothing(server: LocalNats) -> None:
    def fail(_name: str, _fields: dict[str, Any]) -> None:
        raise RuntimeError("boo")

    harmless(fail)("x", {})
    transport = JetStream(settings(nats_url=server.url), name="test", on_fact=fail)
    await transport.connect()
    await transport.provision()
    await asyncio.to_thread(server.restart)
    await eventually(lambda: transport.is_connected)
    await transport.close()


# Options


def test_the_user_of_the_url_serves_for_all_servers() -> None:
    both = "nats://u:p%40@a:4222, nats://u:p%40@b:4222"
    assert {"user": "u", "password": "p@"}.items() <= options(settings(nats_url=both), name="n").items()
    assert options(settings(nats_url="nats://secret@a"), name="n")["token"] == "secret"
    assert "user" not in options(settings(nats_url="nats://u:p@a,nats://v:p@b"), name="n")
    assert "user" not in options(settings(nats_url="nats://a"), name="n")


def test_credentials_are_looked_into_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    path = tmp_path / "user.creds"
    chosen = settings(nats_credentials_file=path)
    with pytest.raises(SettingsError, match="cannot read"):
        options(chosen, name="n")
    path.write_text("nothing")
    with pytest.raises(SettingsError, match="not a credentials file"):
        options(chosen, name="n")
    path.write_text("-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\ny\n")
    assert options(chosen, name="n")["user_credentials"] == str(path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match="nkeys"):
        options(chosen, name="n")


def test_reconnects_are_spread() -> None:
    servers = [Server(urlparse(f"nats://server-{number}")) for number in range(3)]
    chosen = [next_server(servers, {}) for _ in range(200)]
    assert {id(server) for server, _ in chosen} == {id(server) for server in servers}
    assert all(0.1 <= pause <= 1.0 for _, pause in chosen)
    assert max(pause for _, pause in chosen) - min(pause for _, pause in chosen) > 0.5


def test_each_server_is_tried_before_any_is_tried_again() -> None:
    servers = [Server(urlparse(f"nats://server-{number}")) for number in range(5)]
    for _ in range(3):
        tried = []
        for _ in servers:
            server, _pause = next_server(servers, {})
            tried.append(server.uri.netloc)
            server.reconnects += 1
        assert len(set(tried)) == len(servers)


@pytest.mark.parametrize(
    ("named", "known"),
    [
        ("nats://a,nats://a:4222, nats://b", ["nats://a", "nats://b"]),
        ("nats://a,tls://a:4222,nats://a:4223", ["nats://a", "nats://a:4223"]),
        ("nats://u:p@a,nats://v:p@a,nats://u:p@a:4222", ["nats://u:p@a", "nats://v:p@a"]),
        ("ws://a:80,ws://a,ws://a:80", ["ws://a:80", "ws://a"]),
    ],
)
def test_a_server_that_is_named_twice_is_known_once(named: str, known: list[str]) -> None:
    assert options(settings(nats_url=named), name="n")["servers"] == known


async def test_a_server_that_is_named_twice_keeps_no_other_from_its_turn(
    connect: Connect, server: LocalNats, tmp_path: Path
) -> None:
    """Its failures would be counted for the first of the name: the second would always be the next to try."""
    with LocalNats(tmp_path / "other") as other:
        transport = await connect(nats_url=f"{server.url},{server.url},{other.url}")
        for broker in (server, other):
            await asyncio.to_thread(broker.stop)

        def has_failed() -> bool:
            pool = client_of(transport).server_pool
            return any(f"nats://{one.uri.netloc}" == other.url and one.reconnects for one in pool)

        await eventually(has_failed)
        await asyncio.to_thread(other.start)
        await eventually(lambda: transport.is_connected)


async def test_servers_that_have_left_the_cluster_are_forgotten(tmp_path: Path, facts: Facts) -> None:
    """All but those that the settings name; and a new one is found that came after the line was made."""
    first, leaving, coming = brokers = cluster(tmp_path, is_told=True)
    for broker in (first, leaving):
        await asyncio.to_thread(broker.start)
    transport = JetStream(
        settings(nats_url=first.url), name="test", on_fact=lambda name, fields: facts.append((name, fields))
    )
    await transport.connect()
    try:

        def known() -> set[str]:
            return {f"nats://{server.uri.netloc}" for server in client_of(transport).server_pool}

        await eventually(lambda: known() == {first.url, leaving.url})
        await asyncio.to_thread(leaving.stop)
        await asyncio.to_thread(coming.start)
        await eventually(lambda: known() == {first.url, coming.url})
        client_of(transport)._server_pool[0].reconnects = 7  # it was down for long, once
        await asyncio.to_thread(first.stop)
        line = transport._connection._client
        await eventually(lambda: line is not None and f"nats://{line.server}" == coming.url)
        assert known() == {first.url, coming.url}
        await eventually(lambda: not any(one.reconnects for one in client_of(transport).server_pool))
    finally:
        await transport.close()
        for broker in brokers:
            await asyncio.to_thread(broker.stop)


# Small things


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("cmd.a.v1", "cmd.a.v1", True),
        ("cmd.a.v1", "cmd.a.v1.x", False),
        ("cmd.a.v1.x", "cmd.a.v1", False),
        ("cmd.*.v1", "cmd.a.v1", True),
        ("cmd.*.v1", "cmd.a.b.v1", False),
        ("cmd.>", "cmd.a.v1", True),
        ("cmd.>", "cmd", False),
        (">", "cmd", True),
    ],
)
def test_patterns(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits


def test_stored_headers() -> None:
    assert read_headers(b"NATS/1.0\r\nA: b:c\r\nB:d\r\n\r\n") == {"A": "b:c", "B": "d"}
    assert read_headers(b"") == {}


@pytest.mark.parametrize(
    "block",
    [b"ABCD", b"NATS/1.0", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"\xff" * 12, b"NATS/1.0\r\n\xff: \xff\r\n\r\n"],
)
async def test_headers_that_cannot_be_read_cost_nothing_but_themselves(
    transport: JetStream, server: LocalNats, facts: Facts, block: bytes
) -> None:
    """The server does not look at them; nor may they end the loop that reads."""
    got: list[Delivery] = []
    await transport.consume(PRIORITY_SUBJECT, got.append, depth=10)
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    command = b"HPUB %s %d %d\r\n%s{}\r\n" % (PRIORITY_SUBJECT.encode(), len(block), len(block) + 2, block)
    shown = json.dumps({"verbose": False, "headers": True, "auth_token": address.username})
    writer.write(f"CONNECT {shown}\r\n".encode() + command + b"PING\r\n")
    await reader.readuntil(b"PONG")
    writer.close()
    await transport.publish(message(body=b"good"))
    await eventually(lambda: [one.body for one in got][-1:] == [b"good"])
    assert [one.body for one in got] == [b"{}", b"good"]
    assert "broker_deaf" not in [name for name, _ in facts]
