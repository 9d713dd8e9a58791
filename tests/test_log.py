"""The log: one line per fact, with all its fields."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from grns.telemetry import log
from grns.telemetry.facts.bus import TransportFailing
from grns.telemetry.facts.work import AttemptFinished


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_line_has_all_fields_of_its_fact() -> None:
    stream = io.StringIO()
    log.configure(level="debug", format="json", stream=stream)
    leaf = log.LogLeaf(level="debug", service="worker")
    leaf.read(AttemptFinished("gr-1", "noop", 1, "tr-1", "succeeded", 0.5, None, None))
    leaf.read(TransportFailing("broker_error", "refused"))
    finished, failing = (json.loads(line) for line in stream.getvalue().splitlines())
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
