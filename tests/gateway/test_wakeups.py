"""Nudges: a hint to whoever does not wait, on a real port, and nothing that depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from grns.access.principals import BOOTSTRAP, Principal
from grns.api.route import PREFIX
from grns.errors import InvalidInputError, RateLimitedError
from grns.gateway import wakeups as agent_nudge
from grns.gateway.wakeups import Wakeups
from grns.model import wakeup_url
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.telemetry.task_signals import AgentNudged, NudgeFailed
from grns.webhooks.http import HttpSender
from tests.support.api import Door, good, problem_of
from tests.support.harness import LIMIT_SECONDS, eventually, submit
from tests.support.operations import SignalRecorder
from tests.support.store import ACTOR


class Bell:
    """An agent's URL, which answers as it is told to."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/task"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request in."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        self.heard.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


def http(timeout_seconds: float = 5.0) -> HttpSender:
    """Return the HTTP client of wakeups."""
    return HttpSender(policy=wakeup_url.POLICY, timeout_seconds=timeout_seconds, agent="grns")


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    """An agent that listens."""
    found = Bell()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


@pytest.fixture
async def nudges(shared: Database, bell: Bell) -> AsyncIterator[tuple[Wakeups, SignalRecorder]]:
    """What nudges there, and nowhere else; it looks when it is asked to."""
    emitted = SignalRecorder()
    found = Wakeups(
        database=shared, hosts=wakeup_url.hosts(f"127.0.0.1:{bell.port}"), http=http(), emit=emitted.receive
    )
    yield found, emitted
    await found.close()


def keep(nudges: Wakeups, url: str, *, agent_type: str = "worker", actor: str = "local") -> None:
    """Let an agent ask to be nudged, some time ago."""
    nudges.keep(
        url, workspace="default", agent_type=agent_type, principal=Principal(actor, None, frozenset())
    )
    for one in nudges._wakeups.values():
        one.due_at = 0.0


async def test_who_has_work_is_told_once(
    shared: Database, bell: Bell, nudges: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = nudges
    keep(found, bell.url)
    await found.tick()
    assert bell.heard == [], "nothing waits"
    await submit(shared)
    await found.tick()
    await found.tick()
    (heard,) = bell.heard
    assert heard.startswith(b"POST /task HTTP/1.1\r\n")
    assert heard.endswith(b'{"workspace":"default","agent_type":"worker"}')
    assert [signal.host for signal in emitted.of(AgentNudged)] == [f"127.0.0.1:{bell.port}"]
    keep(found, bell.url)  # it came, took something, and went
    await found.tick()
    assert len(bell.heard) == 2


async def test_what_may_not_be_claimed_is_no_reason(
    shared: Database, bell: Bell, nudges: tuple[Wakeups, SignalRecorder]
) -> None:
    found, _ = nudges
    keep(found, bell.url)
    await submit(shared, agent_type="another")
    await submit(shared)
    await pause.begin(
        shared, workspace="default", agent_type="worker", task_type=None, actor=ACTOR, reason=None, until=None
    )
    await found.tick()
    assert bell.heard == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"",
        b"\x00\xff rubbish\r\n\r\n",
    ],
    ids=["500", "redirect", "nothing", "rubbish"],
)
async def test_who_does_not_answer_well_is_left_alone_for_longer_and_longer(
    shared: Database, bell: Bell, nudges: tuple[Wakeups, SignalRecorder], answer: bytes
) -> None:
    found, emitted = nudges
    bell.answer = answer
    found.keep(bell.url, workspace="default", agent_type="worker", principal=BOOTSTRAP)
    await submit(shared)
    for _ in range(3):
        for one in found._wakeups.values():
            one.due_at = 0.0
        await found.tick()
    failed = emitted.of(NudgeFailed)
    assert [signal.pause_seconds for signal in failed] == [60.0, 120.0, 240.0]
    assert not any("/task" in repr(signal) for signal in emitted.seen)
    assert len(bell.heard) == 3


async def test_who_is_not_there_keeps_nobody_else_from_being_told(
    shared: Database, bell: Bell, nudges: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = nudges
    found._hosts |= {"127.0.0.1:1"}
    keep(found, "http://127.0.0.1:1/task")
    keep(found, bell.url)
    await submit(shared)
    await found.tick()
    assert len(bell.heard) == 1
    assert [signal.host for signal in emitted.of(NudgeFailed)] == ["127.0.0.1:1"]


async def test_nobody_has_all_the_bells(nudges: tuple[Wakeups, SignalRecorder], bell: Bell) -> None:
    found, _ = nudges
    found.places.most_of_one = 2
    for n in range(2):
        keep(found, f"{bell.url}/{n}")
    with pytest.raises(RateLimitedError):
        keep(found, f"{bell.url}/3")
    keep(found, f"{bell.url}/0")  # it has one already
    keep(found, f"{bell.url}/4", actor="key:another")
    found.places.most = 3
    with pytest.raises(RateLimitedError):
        keep(found, f"{bell.url}/5", actor="key:third")


async def test_nobody_else_is_asked(nudges: tuple[Wakeups, SignalRecorder], bell: Bell) -> None:
    found, _ = nudges
    for url in ("http://127.0.0.1:1/", f"http://localhost:{bell.port}/", "http://169.254.169.254/"):
        with pytest.raises(InvalidInputError):
            keep(found, url)


async def test_wakeup_without_response_times_out() -> None:
    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        to = wakeup_url.POLICY.destination(f"http://127.0.0.1:{port}/")
        assert (await http(0.2).post(to, {}, b"{}")).error == "timeout"
        await asyncio.wait_for(left.wait(), LIMIT_SECONDS)


async def test_a_claim_may_ask_for_nudges_where_the_operator_lets_it(
    door: Door, local: httpx2.AsyncClient, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = {"task_types": ["noop"], "wait_seconds": 0, "nudge_url": bell.url}
    refused = await local.post(f"{PREFIX}/queue/claim", json=order)
    assert problem_of(refused, 400) == "bad_nudge_url"
    assert str(bell.port) not in refused.text
    monkeypatch.setattr(agent_nudge, "LOOK_SECONDS", 0.05)
    nudges = door.context.agent_claims._nudges
    nudges._hosts = wakeup_url.hosts(f"127.0.0.1:{bell.port}")
    assert (await local.post(f"{PREFIX}/queue/claim", json=order)).status_code == 204
    await submit(door.database)

    async def has_heard() -> bool:
        return bool(bell.heard)

    await eventually(has_heard)
    assert good(await local.post(f"{PREFIX}/queue/claim", json=order))["task"]["task_type"] == "noop"
