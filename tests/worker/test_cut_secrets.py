"""Secrets in what an attempt says are removed before it is cut: no beginning of one is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from structlog.testing import capture_logs

import grns
from grns.model.json import Limits
from grns.model.outcome import Outcome
from grns.model.secret import MASK, Scrubber
from grns.telemetry.signal import Signal
from grns.testing.context import LocalContext, forged
from grns.worker.handler_runner import HandlerRunner

TOKEN = "eyJhbGciOiJIUzI1NiJ9." + "".join(f"{number:04}" for number in range(400))
KEY = "clé of \"the\ncanary's\tkey"
PARTS = ("eyJhbGci", "0399", "canary", "clé", "cl\\")


class Odd:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"odd {'.' * 150}{self.text}"


async def ran(handler: Any, payload: str = "{}") -> tuple[Outcome, LocalContext, list[Signal]]:
    """Run an attempt whose payload has these secrets, without servers."""
    claim = forged(handler.task_type, payload, 1, 3)
    claim.scrubber = Scrubber([TOKEN, KEY])
    local, emitted = LocalContext(claim), list[Signal]()
    runner = HandlerRunner(
        handler.pool, make_context=lambda _claim, _lease: local, threads=1, result_limits=Limits(),
        emit=emitted.append,
    )  # fmt: skip
    outcome, _ = await runner.run(claim, local._local_lease)
    runner.close()
    return outcome, local, emitted


def check(*told: Any) -> None:
    """Raise AssertionError if a part of a secret is in what was said."""
    text = "".join(one if isinstance(one, str) else repr(one) for one in told)
    assert MASK in text
    assert [part for part in PARTS if part in text] == []


@pytest.mark.parametrize("secret", [TOKEN, KEY], ids=["token", "key"])
@pytest.mark.parametrize("before", [0, 3990, 7990])
@pytest.mark.parametrize("shape", ["{}", "{!r}", "{!a}"])
async def test_an_error_is_cut_without_a_part_of_a_secret(shape: str, before: int, secret: str) -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def fail() -> None:
        raise ValueError("." * before + " " + shape.format(secret) + "." * 9000)

    outcome, _, emitted = await ran(fail)
    told = json.loads(outcome.error or "")
    check(told["message"], told["traceback"], emitted, MASK)
    assert len(told["message"]) <= 4000


async def test_the_class_of_a_failure_has_no_secret() -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def fail() -> None:
        raise grns.Fail("no", error_class=f"refused {TOKEN}")

    outcome, _, _ = await ran(fail)
    check(outcome.error, outcome.error_class)


class Order(BaseModel):
    token: str

    @field_validator("token")
    @classmethod
    def check(cls, token: str) -> str:
        """Refuse it."""
        raise ValueError(f"{'.' * 190} {token}")


async def test_what_a_model_says_of_a_payload_or_a_result_is_cut_last() -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def take(order: Order) -> None: ...

    @pool.task
    async def give() -> Order:
        return {"token": KEY}  # type: ignore[return-value]

    outcome, _, _ = await ran(take, json.dumps({"token": KEY}))
    assert outcome.error_class == "bad_payload"
    check(json.loads(outcome.error or ""))
    outcome, _, _ = await ran(give)
    assert outcome.error_class == "bad_result"
    check(json.loads(outcome.error or ""))


SAID: dict[str, Callable[[Any, str], Any]] = {
    "a message": lambda log, text: log.info("." * 1990 + text),
    "a repr": lambda log, text: log.info("has %s", repr(ValueError(f"bad {text!r}"))),
    "an argument": lambda log, text: log.info("has %s", Odd("." * 1830 + text)),
    "a named argument": lambda log, text: log.info("has %(one)s", {"one": Odd(text), "two": [text]}),
    "a field": lambda log, text: log.info("has", odd=Odd(text), error=ValueError(text), text=text),
    "a long field": lambda log, text: log.info("has", text="." * 150 + text + "." * 20_000),
    "a bound field": lambda log, text: log.bind(odd=Odd(text)).info("has"),
    "JSON": lambda log, text: log.info("has", body=json.dumps({"key": text})),
    "a name": lambda log, text: log.info("has", **{"." * 90 + text: 1}),
}


@pytest.mark.parametrize("secret", [TOKEN, KEY], ids=["token", "key"])
@pytest.mark.parametrize("said", SAID)
async def test_a_line_of_the_log_is_cut_without_a_part_of_a_secret(said: str, secret: str) -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def log(ctx: grns.Context) -> None:
        SAID[said](ctx.log, secret)

    with capture_logs() as written:
        outcome, local, _ = await ran(log)
    assert outcome.error is None
    kept = local._own_progress()._unsaved.lines
    assert kept
    check(*(f"{line.message} {line.fields}" for line in kept))
    check(written)


@pytest.mark.parametrize("way", ["exception", "log", "tuple"])
async def test_an_error_in_the_log_has_no_part_of_a_secret(way: str) -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def log(ctx: grns.Context) -> None:
        try:
            raise ValueError("." * 1980 + repr(TOKEN))
        except ValueError as error:
            told = (type(error), error, error.__traceback__)
            if way == "exception":
                ctx.log.exception("failed")
            elif way == "log":
                ctx.log.log(40, "failed", exc_info=True)
        if way == "tuple":
            ctx.log.error("failed", exc_info=told)

    with capture_logs() as written:
        _, local, _ = await ran(log)
    assert not any(one.get("exc_info") for one in written), "structlog would write the error as it is"
    check(written)
    check(local._own_progress()._unsaved.lines)


async def test_what_a_hook_raises_is_logged_without_a_secret() -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def work() -> None: ...

    @pool.on_attempt_started
    async def fail(ctx: grns.Context) -> None:
        raise ValueError(f"bad {KEY!r}")

    with capture_logs() as written:
        await ran(work)
    assert [one["event"] for one in written] == ["hook_failed"]
    check(written)


async def test_what_is_reported_and_streamed_has_no_secret() -> None:
    pool = grns.Pool("vaulted")

    @pool.task
    async def report(ctx: grns.Context) -> None:
        ctx.progress(5, "." * 240 + repr(KEY) + TOKEN)
        ctx.stream(f"{KEY!r} {TOKEN}")
        ctx.stream({"body": json.dumps([KEY, TOKEN])})
        await asyncio.sleep(0)

    _, local, _ = await ran(report)
    check(local.reported.step, MASK)
    check(local.streamed)
