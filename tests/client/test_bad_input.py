"""What nobody can accept is refused by the client itself, before it asks anybody.

Its servers are not there: whatever gets as far as them is `UnavailableError`, and fails the test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.client.arguments import WIRE
from grns.client.client import Client
from grns.errors import InvalidInputError, UnavailableError
from tests.support.bad_input import ACCEPTED, BAD_NAMES, EMPTY_PAYLOADS, NO_PAYLOADS, OPTIONS, VALUES, Case
from tests.support.harness import settings_for

NOBODY = "postgresql://127.0.0.1:1/nobody"
NOT_IDS = [case.value for case in BAD_NAMES] + [None, 5, b"gr-0", [], {}]


@pytest.fixture
def client() -> Client:
    """A client of servers that are not there."""
    app = App(settings_for(NOBODY))
    return tools.client(app, app.database("test"), app.transport("test"), app.handlers_database())


async def refusal(work: Awaitable[Any]) -> InvalidInputError:
    """Return the error that something bad is answered with."""
    with pytest.raises(InvalidInputError) as raised:
        await work
    assert 0 < len(str(raised.value)) < 400
    assert str(raised.value).isprintable(), "what was handed in is escaped"
    return raised.value


async def test_good_input_gets_as_far_as_the_servers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no other test here proves anything."""
    monkeypatch.setattr("grns.client.subscriber._BROKER_SECONDS", 0.01)
    for good in (
        client.submit("noop", pool="worker"),
        client.submit("noop", {"a": 1}, pool="worker", delay=5, causation_id=uuid4(), connection=None),
        client.submit_many([{"task": "noop", "pool": "worker"}]),
        client.get("gr-0"),
        client.wait("gr-0", timeout=5),
        client.cancel("gr-0", reason="\x00\ud800" * 2000),
        client.redrive("gr-0"),
        client.events("gr-0"),
        client.subscribe("me", _handler, kinds=["evt.task.*", "evt.agent.a.b"]),
    ):
        with pytest.raises(UnavailableError):
            await good


async def _handler(event: Any, connection: Any) -> None:
    raise AssertionError("there is nothing to handle")


@pytest.mark.parametrize("case", OPTIONS, ids=str)
async def test_bad_options(client: Client, case: Case) -> None:
    error = await refusal(_submit(client, case.value))
    assert error.code == "bad_submission"
    assert WIRE.get(case.code, case.code) in str(error), "it names the field"
    assert (await refusal(client.submit_many([_python(case.value)]))).code == "bad_submission"


@pytest.mark.parametrize("case", NO_PAYLOADS + EMPTY_PAYLOADS, ids=str)
async def test_what_is_no_payload(client: Client, case: Case) -> None:
    for work in (_submit(client, case.value), client.submit_many([_python(case.value)])):
        error = await refusal(work)
        assert (error.code, "payload" in str(error)) == ("bad_submission", True)


@pytest.mark.parametrize("case", VALUES, ids=str)
async def test_what_cannot_be_in_a_payload(client: Client, case: Case) -> None:
    # a payload is one level and one value itself
    expected = "too_deep" if case.name == "list_of_depth_64" else case.code
    for work in (
        client.submit("noop", {"a": case.value}, pool="worker"),
        client.submit_many(
            [
                {"task": "noop", "pool": "worker"},
                {"task": "noop", "pool": "worker", "payload": {"a": case.value}},
            ]
        ),
    ):
        if expected in (ACCEPTED, "too_large", "too_many_nodes"):  # what is long is kept as a blob
            with pytest.raises(UnavailableError):
                await work
        else:
            assert (await refusal(work)).code == expected


@pytest.mark.parametrize(
    "one",
    [None, 5, "noop", ["noop"], {1: 2}, {}, {"task": "noop", "pool": "worker", "pripority": 1},
     {"payload": {}}, {"task": "noop", "pool": "worker", "status": "succeeded"},
     {"task": "noop", "pool": "worker", "\ud800\r\n": 1}, {"task": "noop"}],
    ids=ascii,
)  # fmt: skip
async def test_what_is_no_submission(client: Client, one: Any) -> None:
    assert (
        await refusal(client.submit_many([{"task": "noop", "pool": "worker"}, one]))
    ).code == "bad_submission"


async def test_what_is_no_connection(client: Client) -> None:
    for wrong in (5, "postgresql://", object()):
        assert (
            await refusal(client.submit("noop", pool="worker", connection=wrong))
        ).code == "bad_connection"


CALLS: dict[str, Callable[[Client, Any], Awaitable[Any]]] = {
    "get": lambda client, value: client.get(value),
    "wait": lambda client, value: client.wait(value, timeout=5),
    "cancel": lambda client, value: client.cancel(value),
    "cancel_many": lambda client, value: client.cancel_many(["gr-0", value]),
    "redrive": lambda client, value: client.redrive(value),
    "redrive_many": lambda client, value: client.redrive_many(["gr-0", value]),
    "events": lambda client, value: client.events(value),
}


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_id(client: Client, call: str) -> None:
    for value in NOT_IDS:
        assert (await refusal(CALLS[call](client, value))).code == "bad_name", value


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "5", True, [], 1j, {}], ids=repr)
async def test_what_is_no_time_to_wait(client: Client, seconds: Any) -> None:
    assert (await refusal(client.wait("gr-0", timeout=seconds))).code == "bad_timeout"


@pytest.mark.parametrize("reason", [5, b"x", ["x"], {}], ids=repr)
async def test_what_is_no_reason(client: Client, reason: Any) -> None:
    assert (await refusal(client.cancel("gr-0", reason=reason))).code == "bad_reason"


@pytest.mark.parametrize(
    "kinds",
    ["evt.task.*", [], [""], ["evt"], ["evt.>"], [">"], ["*"], ["cmd.task.execute"], ["dlq.task.dead"],
     ["$SYS.>"], ["evt.task.a b"], ["evt.task.a\r\nPUB evil"], ["evt.task.queued\n"], ["evt.a..b"], [None],
     [5], ["evt.task." + "x" * 5000], ["evt.task.*", "evt.é.x"],
     ["evt.task.complete"], ["evt.tasks.*"], ["evt.agent.a"], ["evt.*"], ["evt.task.*.*"]],
    ids=lambda kinds: ascii(kinds)[:30],
)  # fmt: skip
async def test_what_is_no_kind_of_event(client: Client, kinds: Any) -> None:
    assert (await refusal(client.subscribe("me", _handler, kinds=kinds))).code == "bad_kind"


async def test_a_misspelt_kind_is_told_the_right_one(client: Client) -> None:
    for kind in ("evt.task.complete", "evt.tasks.completed"):
        told = str(await refusal(client.subscribe("me", _handler, kinds=[kind])))
        assert told.endswith("did you mean evt.task.completed?")
    told = str(await refusal(client.subscribe("me", _handler, kinds=["evt.xyzzy.q"])))
    assert "evt.agent.<agent_type>.<event>" in told


async def test_what_is_no_subscription(client: Client) -> None:
    for name in NOT_IDS:
        assert (await refusal(client.subscribe(name, _handler))).code == "bad_name"
    most: Any
    for most in (0, -1, True, 1.5, "64", None, 10**9):
        refused = await refusal(client.subscribe("me", _handler, max_in_flight=most))
        assert refused.code == "bad_max_in_flight"


def _submit(client: Client, fields: dict[str, Any]) -> Awaitable[Any]:
    return client.submit(**_python(fields))


def _python(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of the wire as arguments of `submit`."""
    named = {WIRE.get(name, name): value for name, value in fields.items()}
    return {"task": "noop", "pool": "worker", **named}
