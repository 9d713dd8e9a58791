"""The trace of whoever asks over HTTP: what they submit belongs there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grns.api.route import PREFIX
from grns.model import envelope
from tests.support.api import Door, good
from tests.telemetry.test_spans import Traced, parent_of, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
ONE = {"task_type": "noop"}


@pytest.fixture
def traced() -> Iterator[Traced]:
    """A program that is traced."""
    traced = Traced()
    yield traced
    traced.spans.provider.shutdown()


async def test_a_task_belongs_to_the_trace_of_who_submits_it(door: Door) -> None:
    """Whether grns itself is traced or not."""
    async with await door.administrator() as visitor:
        made = good(await visitor.post(f"{PREFIX}/tasks", json=ONE, headers=HEADER))
        assert made["trace_id"] == TRACE
        own = {**ONE, "trace_id": "my-own"}
        assert good(await visitor.post(f"{PREFIX}/tasks", json=own, headers=HEADER))["trace_id"] == "my-own"
        many = {"tasks": [ONE, own, {**ONE, "trace_id": None}]}
        items = good(await visitor.post(f"{PREFIX}/tasks/batch", json=many, headers=HEADER))["items"]
        assert [item["trace_id"] for item in items] == [TRACE, "my-own", TRACE]


async def test_ids_of_a_batch_are_in_its_order(door: Door) -> None:
    async with await door.administrator() as visitor:
        many = {"tasks": [ONE] * 20}
        items = good(await visitor.post(f"{PREFIX}/tasks/batch", json=many, headers=HEADER))["items"]
    ids = [item["id"] for item in items]
    assert ids == sorted(ids)


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"])
async def test_a_header_that_names_no_trace_counts_as_none(door: Door, header: str) -> None:
    async with await door.administrator() as visitor:
        made = good(await visitor.post(f"{PREFIX}/tasks", json=ONE, headers={"traceparent": header}))
        assert made["trace_id"] not in ("", TRACE)
        assert envelope.w3c_trace(made["trace_id"]) == made["trace_id"]


async def test_a_submission_over_http_is_part_of_the_callers_span(door: Door, traced: Traced) -> None:
    door.context.spans = traced.spans
    async with await door.administrator() as visitor:
        good(await visitor.post(f"{PREFIX}/tasks", json=ONE, headers=HEADER))
        here = traced.only("submit noop")
        assert (trace_of(here), parent_of(here)) == (TRACE, int(SPAN, 16))
        traced.exporter.clear()
        good(await visitor.post(f"{PREFIX}/tasks", json={**ONE, "trace_id": "my-own"}, headers=HEADER))
        there = traced.only("submit noop")
        assert (trace_of(there), parent_of(there)) == (envelope.w3c_trace("my-own"), None)
        traced.exporter.clear()
        good(await visitor.post(f"{PREFIX}/tasks/batch", json={"tasks": [ONE, ONE]}, headers=HEADER))
        assert trace_of(traced.only("submit")) == TRACE, "many have one span, and it is the caller's too"
