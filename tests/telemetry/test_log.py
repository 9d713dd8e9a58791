"""The log: one line per signal with all its fields, and the attempt that it belongs to."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import structlog

from grns.model.outcome import Claim
from grns.telemetry import current, log
from grns.telemetry.service_signals import GaugesMeasured, TransportFailing
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import AttemptFinished, LeaseLost, TaskCrashed
from tests.site.log_events import signal_kinds

CLAIM = Claim("gr-1", "noop", 2, "{}", 3, 3, 0, uuid4(), "tr-1", None, 0.5, 0.0)
OF_IT = {"task_id": "gr-1", "task_type": "noop", "attempt": 3, "trace_id": "tr-1"}

# Signals with a task and without its trace, and the reason.
WITHOUT_TRACE = {
    "TaskNotClaimed": "the row is not ours to read: it may be another workspace's, or not there",
    "NoHandler": "the same",
    "DeliveryDeferred": "Postgres did not answer, or the row is locked",
    "CommandHandled": "it may be about a task that was deleted since",
    "InvariantViolated": "a finding names a task, if it is one's; `grns task show` has all of it",
}


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    yield
    current.end()
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    """Where the log of this process goes."""
    stream = io.StringIO()
    log.configure(level="debug", format="json", stream=stream, service="worker")
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return what was logged."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# ---------------------------------------------------------------- lines


def test_log_line_has_all_fields_of_its_signal(stream: io.StringIO) -> None:
    listener = log.LogListener(level="debug")
    listener.receive(AttemptFinished("gr-1", "noop", 1, "tr-1", "succeeded", 0.5, None, None))
    listener.receive(TransportFailing("broker_error", "refused"))
    finished, failing = lines(stream)
    assert {name: finished[name] for name in AttemptFinished.__match_args__} == {
        "task_id": "gr-1", "task_type": "noop", "attempt": 1, "trace_id": "tr-1", "status": "succeeded",
        "run_seconds": 0.5, "total_seconds": None, "error_class": None,
    }  # fmt: skip
    assert (finished["event"], finished["level"], finished["service"]) == (
        "attempt_finished",
        "debug",
        "worker",
    )
    assert (failing["what"], failing["detail"], failing["level"]) == ("broker_error", "refused", "warning")


def test_log_line_of_gauge_readings_is_json(stream: io.StringIO) -> None:
    log.LogListener(level="debug").receive(GaugesMeasured("grns_workers", [(("default", "worker"), 2.0)]))
    assert lines(stream)[0]["readings"] == [[["default", "worker"], 2.0]]


# ---------------------------------------------------------------- what a line is about


@pytest.mark.parametrize("kind", signal_kinds(), ids=lambda kind: kind.__name__)
def test_signal_of_an_attempt_has_task_attempt_and_trace(kind: type[Signal]) -> None:
    fields = set(kind.__match_args__)
    if "attempt" in fields and "webhook" not in fields:  # those are attempts to deliver
        assert {"task_id", "trace_id"} <= fields
    if "task_id" in fields:
        assert ("trace_id" in fields) == (kind.__name__ not in WITHOUT_TRACE)


def test_signals_without_trace_exist() -> None:
    assert WITHOUT_TRACE.keys() <= {kind.__name__ for kind in signal_kinds()}


async def test_log_lines_of_an_attempt_name_it_for_each_logger(stream: io.StringIO) -> None:
    """The handler's own logger, in the loop and in threads, and signals without a task."""
    listener = log.LogListener(level="debug")

    def in_thread() -> None:
        structlog.get_logger().info("from a thread")

    async def attempt() -> None:
        current.begin(CLAIM)
        structlog.get_logger().info("from the loop", attempt="mine")
        await asyncio.to_thread(in_thread)
        listener.receive(TaskCrashed("KeyError", "'x'"))
        listener.receive(LeaseLost("gr-2", 9, "tr-2", "lost"))

    await asyncio.create_task(attempt())
    structlog.get_logger().info("from elsewhere")
    loop, thread, broke, other, elsewhere = lines(stream)
    assert {name: loop.get(name) for name in OF_IT} == OF_IT | {"attempt": "mine"}, "who says it, has said it"
    for line in (thread, broke):
        assert {name: line.get(name) for name in OF_IT} == OF_IT
    assert (other["task_id"], other["attempt"], other["trace_id"]) == ("gr-2", 9, "tr-2")
    assert "task_type" not in other, "nothing of one task is told of another"
    assert not elsewhere.keys() & OF_IT.keys()


def test_log_line_after_an_attempt_does_not_name_it(stream: io.StringIO) -> None:
    current.begin(CLAIM)
    current.end()
    structlog.get_logger().info("next")
    assert not lines(stream)[0].keys() & OF_IT.keys()
