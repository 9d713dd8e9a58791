"""What the server sends reaches who listens, whole and in its order, however the socket cuts it."""

from __future__ import annotations

import itertools
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from grns.dev.servers import LocalNats
from grns.nats.patched_client import MessageHandler, ReadingClient

Heard = list[tuple[str, bytes]]

STREAM = (
    b"MSG in.1 1 3\r\nabc\r\n"
    b"MSG in.2 1 0\r\n\r\n"
    b"PING\r\n"
    b"MSG in.3 1 9\r\nMSG a 1 1\r\n"
    b"MSG in.4 1 answer.here 2\r\nde\r\n"
    b"HMSG in.5 1 21 23\r\nNATS/1.0\r\nName: a\r\n\r\nfg\r\n"
    b"MSG in.6\t 1 2\r\n\r\n\r\n"
    b"MSG else 2 2\r\nhi\r\n"
    b"MSG gone 3 2\r\nhi\r\n"
    b"+OK\r\n"
    b"MSG in.7 1 5000\r\n" + 5000 * b"x" + b"\r\n"
    b"MSG in.8 1 4\r\nlast\r\n"
)
PLAIN = [
    ("in.1", b"abc"),
    ("in.2", b""),
    ("in.3", b"MSG a 1 1"),
    ("in.6", b"\r\n"),
    ("in.7", 5000 * b"x"),
    ("in.8", b"last"),
]


class Listener:
    """A client that listens, to no server: what would be written is kept."""

    def __init__(self) -> None:
        self.strays: list[str] = []
        self.client = ReadingClient(self.strays.append)
        self.plain: Heard = []
        self.messages: Heard = []
        self.errors: list[Exception] = []
        self.pongs = 0
        # 2 takes no plain ones; 3 has a handler and is no subscription any more
        for sid, handler in {
            1: MessageHandler(self._take, lambda subject, body: self.plain.append((subject, body))),
            2: MessageHandler(self._take),
            3: MessageHandler(self._take, lambda _subject, _body: self.plain.append(("never", b""))),
        }.items():
            self.client.handlers[sid] = handler
        for sid in (1, 2):
            self.client._subs[sid] = cast(Subscription, object())
        self.client._process_ping = self._pong  # type: ignore[method-assign]
        self.client._error_cb = self._fail

    async def read(self, *pieces: bytes) -> None:
        """Read what came from the socket, piece by piece."""
        for piece in pieces:
            await self.client._ps.parse(piece)

    @property
    def heard(self) -> Heard:
        """What was heard in either way: the plain ones of a mixed stream may take both."""
        return sorted(self.plain + self.messages)

    def _take(self, message: Msg) -> None:
        self.messages.append((message.subject, message.data))

    async def _pong(self) -> None:
        self.pongs += 1

    async def _fail(self, error: Exception) -> None:
        self.errors.append(error)


WHOLE = sorted([*PLAIN, ("in.4", b"de"), ("in.5", b"fg"), ("else", b"hi")])


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
async def test_all_is_heard_wherever_the_socket_cuts(cuts: list[int]) -> None:
    listener = Listener()
    edges = [0, *sorted(cuts), len(STREAM)]
    await listener.read(*(STREAM[start:end] for start, end in itertools.pairwise(edges)))
    assert listener.heard == WHOLE
    assert (listener.pongs, listener.errors) == (1, [])
    assert listener.client.stats["in_msgs"] == len(WHOLE) + 1, "and the one for nobody"
    assert not listener.client._ps.buf


async def test_plain_ones_take_the_short_way_in_their_order() -> None:
    listener = Listener()
    answers = [(f"in.{number}", b"%d" % number) for number in range(300)]
    stream = b"".join(b"MSG %s 1 %d\r\n%s\r\n" % (s.encode(), len(b), b) for s, b in answers)
    await listener.read(*(stream[start : start + 1000] for start in range(0, len(stream), 1000)))
    assert listener.plain == answers
    assert listener.messages == []
    assert listener.client.stats["in_bytes"] == sum(len(body) for _, body in answers)


async def test_a_large_one_that_comes_in_pieces_is_heard_once_and_whole() -> None:
    listener = Listener()
    stream = b"MSG a 1 1\r\n1\r\nMSG large 1 300000\r\n" + 300_000 * b"x" + b"\r\nMSG b 1 1\r\n2\r\n"
    await listener.read(*(stream[start : start + 30_000] for start in range(0, len(stream), 30_000)))
    assert listener.plain[0] == ("a", b"1")
    assert listener.heard == [("a", b"1"), ("b", b"2"), ("large", 300_000 * b"x")]


async def test_one_that_fails_costs_the_others_nothing() -> None:
    listener = Listener()

    def refuse(subject: str, body: bytes) -> None:
        if body == b"bad":
            raise ValueError(subject)
        listener.plain.append((subject, body))

    listener.client.handlers[1] = MessageHandler(lambda _message: None, refuse)
    await listener.read(
        b"MSG a 1 1\r\n1\r\nMSG b 1 3\r\nbad\r\nMSG \xff 1 1\r\n2\r\nMSG c 1 1\r\n3\r\nPING\r\n"
    )
    assert listener.plain == [("a", b"1"), ("c", b"3")]
    assert [type(error) for error in listener.errors] == [ValueError, UnicodeDecodeError]
    assert listener.pongs == 1


@pytest.mark.parametrize("line", [b"MSG a 1 99999999999999999999\r\n", b"MSG a\r\n", b"HELLO\r\n"])
async def test_what_is_no_message_is_left_to_nats_py(line: bytes) -> None:
    listener = Listener()
    try:
        await listener.read(b"MSG in.1 1 1\r\n1\r\n" + line)
    except Exception as error:
        assert type(error).__name__ == "ProtocolError"  # noqa: PT017 - the connection is then made anew
    assert listener.plain == [("in.1", b"1")]


async def test_a_delivery_that_nobody_listens_for_any_more_is_told() -> None:
    listener = Listener()
    ack = b"$JS.ACK.GRNS_CMD.execute.1.7.7.1.0"
    await listener.read(
        b"MSG cmd 3 %s 2\r\nhi\r\nHMSG cmd 9 %s 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n" % (ack, ack),
        b"MSG cmd 3 somebody.else 2\r\nhi\r\nMSG cmd 2 %s 2\r\nhi\r\n" % ack,
    )
    assert listener.strays == [ack.decode()] * 2
    assert listener.messages == [("cmd", b"hi")], "what is listened for goes its way"
    assert listener.errors == []


async def test_private_names_of_nats_py_exist_in_the_installed_version(broker: LocalNats) -> None:
    """`grns.nats.patched_client` reads or overrides these; a release of nats-py may rename them."""
    client = Client()
    await client.connect(broker.url)
    try:
        subscription = await client.subscribe("a", cb=_ignore)
        transport = client._transport
        names = {
            client: (
                *("_current_server", "_error_cb", "_flush_queue", "_pending", "_pending_data_size", "_ps"),
                *(
                    "_process_connect_init",
                    "_process_headers",
                    "_process_info",
                    "_process_msg",
                    "_reading_task",
                ),
                *("_reconnection_task", "_remove_sub", "_send_ping", "_server_pool", "_server_info", "_subs"),
            ),
            subscription: ("_cb", "_id", "_stop_processing"),
            transport: ("_io_writer",),
            client._ps: ("buf", "nc", "state", "parse"),
        }
        missing = [name for owner, owned in names.items() for name in owned if not hasattr(owner, name)]
        assert missing == []
    finally:
        await client.close()


async def _ignore(_message: object) -> None: ...
