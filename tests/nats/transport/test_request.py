"""What every transport must do with requests: take them in, share them, and answer to inboxes alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import nats
import pytest
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from grns.errors import BrokerRefusedError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.delivery import Request, Serving
from tests.nats.transport.test_transport import LIMIT, eventually

if TYPE_CHECKING:
    from tests.nats.transport.conftest import Broker, TransportFactory

ASKED = subjects.request(subjects.SUBMIT)


class Desk:
    """Answers what it is asked with what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> None:
        self.asked.append(request)
        request.answer(b"you said " + request.body, {"Grns-Answer": request.headers.get("X-Word", "none")})

    async def open(self, transport: JetStream, pattern: str = ASKED) -> Serving:
        """Begin to serve; returns when the broker knows of it."""
        serving = await transport.serve(pattern, "desk", self)
        await transport.state(subjects.CMD_STREAM)
        return serving


@pytest.fixture
async def foreign(broker: Broker) -> AsyncIterator[Nats]:
    """A plain connection to the broker."""
    client = await nats.connect(broker.url)
    yield client
    await client.close()


async def test_a_request_is_answered(transport_factory: TransportFactory, foreign: Nats) -> None:
    desk = Desk()
    await desk.open(await transport_factory())
    said = await foreign.request(ASKED, b"hello", timeout=LIMIT, headers={"X-Word": "word"})
    assert (said.data, said.headers) == (b"you said hello", {"Grns-Answer": "word"})
    plain = await foreign.request(ASKED, b"", timeout=LIMIT)
    assert (plain.data, plain.headers) == (b"you said ", {"Grns-Answer": "none"})
    assert {request.subject for request in desk.asked} == {ASKED}


async def test_a_pattern_serves_what_fits_it(transport_factory: TransportFactory, foreign: Nats) -> None:
    desk = Desk()
    await desk.open(await transport_factory(), f"{ASKED}.*")
    await foreign.request(f"{ASKED}.acme", b"", timeout=LIMIT)
    with pytest.raises(nats.errors.NoRespondersError):
        await foreign.request(ASKED, b"", timeout=LIMIT)
    assert [request.subject for request in desk.asked] == [f"{ASKED}.acme"]


async def test_the_members_of_a_group_share_requests(
    transport_factory: TransportFactory, foreign: Nats
) -> None:
    desks = [Desk(), Desk()]
    for desk in desks:
        await desk.open(await transport_factory())
    for number in range(100):
        await foreign.request(ASKED, b"%d" % number, timeout=LIMIT)
    bodies = [request.body for desk in desks for request in desk.asked]
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(100)]
    assert all(desk.asked for desk in desks)


async def test_one_that_was_stopped_takes_in_no_more(
    transport_factory: TransportFactory, foreign: Nats
) -> None:
    desk = Desk()
    serving = await desk.open(await transport_factory())
    await foreign.request(ASKED, b"", timeout=LIMIT)
    await serving.stop()
    with pytest.raises(nats.errors.NoRespondersError):
        await foreign.request(ASKED, b"", timeout=LIMIT)
    assert len(desk.asked) == 1


async def test_requests_are_heard_also_after_the_broker_came_back(
    transport_factory: TransportFactory, broker: Broker
) -> None:
    transport, desk = await transport_factory(), Desk()
    await desk.open(transport)
    await broker.kill()
    await eventually(lambda: not transport.is_connected)
    await broker.start()
    await eventually(lambda: transport.is_connected)
    await transport.state(subjects.CMD_STREAM)
    client = await nats.connect(broker.url)
    try:
        assert (await client.request(ASKED, b"again", timeout=LIMIT)).data == b"you said again"
    finally:
        await client.close()


async def test_only_the_first_answer_is_sent(transport_factory: TransportFactory, foreign: Nats) -> None:
    transport = await transport_factory()

    def answer_twice(request: Request) -> None:
        for body in (b"one", b"two"):
            request.answer(body, {})

    await transport.serve(ASKED, "desk", answer_twice)
    await transport.state(subjects.CMD_STREAM)
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    inbox = foreign.new_inbox()
    await foreign.subscribe(inbox, cb=hear)
    for _ in range(2):
        await foreign.publish(ASKED, b"", reply=inbox)
    await eventually(lambda: len(heard) >= 2)
    assert heard == [b"one", b"one"]


async def test_an_answer_that_is_too_large_may_be_followed_by_a_smaller_one(
    transport_factory: TransportFactory, foreign: Nats
) -> None:
    transport = await transport_factory()
    refusals: list[str] = []

    def answer(request: Request) -> None:
        try:
            request.answer(b"x" * 2 * 1024 * 1024, {})
        except BrokerRefusedError as error:
            refusals.append(error.code)
            request.answer(b"too much to say", {})

    await transport.serve(ASKED, "desk", answer)
    await transport.state(subjects.CMD_STREAM)
    assert (await foreign.request(ASKED, b"", timeout=LIMIT)).data == b"too much to say"
    assert refusals == ["too_large"]


async def test_a_callback_that_fails_keeps_no_other_request_from_being_heard(
    transport_factory: TransportFactory, foreign: Nats
) -> None:
    transport, desk = await transport_factory(), Desk()

    def fail_first(request: Request) -> None:
        if request.body == b"fail":
            raise ValueError("a bug")
        desk(request)

    await transport.serve(ASKED, "desk", fail_first)
    await transport.state(subjects.CMD_STREAM)
    await foreign.publish(ASKED, b"fail", reply=foreign.new_inbox())
    assert (await foreign.request(ASKED, b"then", timeout=LIMIT)).data == b"you said then"
    assert transport.is_connected


@pytest.mark.parametrize(
    ("reply", "is_awaited"),
    [
        ("_INBOX.abc.1", True),
        ("_INBOX_acme.abc", True),
        ("", False),
        ("_INBOX", False),
        ("inbox.abc", False),
        ("$JS.API.STREAM.PURGE.GRNS_CMD", False),
        ("evt.task.completed.v1", False),
        ("cmd.task.execute.v1._INBOX.abc", False),
    ],
)
async def test_only_who_listens_at_an_inbox_is_answered(
    transport_factory: TransportFactory, foreign: Nats, reply: str, is_awaited: bool
) -> None:
    """The answer would be ours, with all that we may: whoever asks could write through us."""
    desk = Desk()
    await desk.open(await transport_factory())
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    if reply:
        await foreign.subscribe(reply, cb=hear)
    await foreign.publish(ASKED, b"", reply=reply)
    await foreign.request(ASKED, b"", timeout=LIMIT)
    assert desk.asked[0].is_awaited is is_awaited
    await foreign.flush()
    await eventually(lambda: len(heard) == is_awaited)


async def test_ping_after_unsubscribe_is_sent_after_it(
    transport_factory: TransportFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = await Desk().open(await transport_factory())
    sent: list[bytes] = []

    def record(self: TcpTransport, payload: bytes | list[bytes]) -> None:
        sent.append(payload if isinstance(payload, bytes) else b"".join(payload))
        write(self, sent[-1])

    write: Callable[[TcpTransport, bytes], None] = TcpTransport.write
    for name in ("write", "writelines"):
        monkeypatch.setattr(TcpTransport, name, record)
    await serving.stop()
    lines = b"".join(sent).split(b"\r\n")
    assert [line.split(b" ")[0] for line in lines if line] == [b"UNSUB", b"PING"]
