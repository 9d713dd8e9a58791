"""Spans: each step of a task's way has one, in the task's trace, and both sides of the queue are linked."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import grns
from grns.bootstrap import services as daemons
from grns.bootstrap import tools, workers
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.dev.servers import LocalNats
from grns.errors import ConflictError, SettingsError
from grns.model import envelope
from grns.model.outcome import Claim, Outcome, Verb
from grns.postgres.database import Database
from grns.runtime.service import Service
from grns.telemetry.otel import OtelSpans
from grns.telemetry.spans import NO_SPANS
from tests.support.harness import all_in, eventually, settings_for
from tests.support.store import log_of

LEAST = {"shutdown_grace_seconds": 1}


class Traced:
    """Spans of one program, and what was exported of them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.spans = OtelSpans(SimpleSpanProcessor(self.exporter), service="test")

    @property
    def found(self) -> Sequence[ReadableSpan]:
        """What has ended so far."""
        return self.exporter.get_finished_spans()

    def of(self, name: str, task_id: str | None = None) -> list[ReadableSpan]:
        """Return the spans of a name, perhaps those of one task, as they began."""
        found = [
            span
            for span in self.found
            if span.name == name and task_id in (None, (span.attributes or {}).get("grns.task.id"))
        ]
        return sorted(found, key=lambda span: span.start_time or 0)

    def only(self, name: str, task_id: str | None = None) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = self.of(name, task_id)
        return span


@pytest.fixture
def traced() -> Iterator[Traced]:
    """A program that is traced."""
    traced = Traced()
    yield traced
    traced.spans.provider.shutdown()


def id_of(span: ReadableSpan) -> int:
    """Return a span's id."""
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> str:
    """Return the trace that a span belongs to."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def links_of(span: ReadableSpan) -> list[int]:
    """Return the spans that a span is linked to."""
    return [link.context.span_id for link in span.links]


def parent_of(span: ReadableSpan) -> int | None:
    """Return the span that a span is part of."""
    return None if span.parent is None else span.parent.span_id


# ---------------------------------------------------------------- the whole way

CHILDREN: list[str] = []


def pool_of(client: Client, tracer: trace.Tracer) -> grns.Pool:
    """Return handlers that are traced themselves, and one that submits."""
    pool = grns.Pool("worker")

    @pool.task("parent")
    async def parent(task: grns.Context) -> str:
        with tracer.start_as_current_span("inside"):
            return (await client.submit("child", pool="worker")).id

    @pool.task("child", backoff=grns.Backoff(base_seconds=0.2))
    def child(task: grns.Context) -> None:
        with tracer.start_as_current_span("inside a thread"):
            if task.attempt == 1:
                raise ValueError("what it says may be secret")

    return pool


@asynccontextmanager
async def running(database: Database, broker: LocalNats, traced: Traced) -> AsyncIterator[Client]:
    """Run a relay, a retry scheduler and a worker in this process, all of them traced."""
    app = App(settings_for(database.url, broker.url, **LEAST), spans=traced.spans)
    own = app.handlers_database()
    async with app.connections("test") as (connections, transport), own.opened():
        client = tools.client(app, connections, transport, own)
        pool = pool_of(client, traced.spans.provider.get_tracer("shop"))
        services: list[Service] = [
            daemons.relay(app, connections, transport),
            daemons.retry_scheduler(app, connections, transport),
            workers.worker(app, pool, connections, transport, own),
        ]
        runs = [asyncio.create_task(service.run()) for service in services]
        yield client
        for service in services:
            service.stop()
        await asyncio.wait_for(asyncio.gather(*runs), 30)


async def test_spans_of_a_task_are_one_trace_linked_across_the_queue(
    database: Database, broker: LocalNats, traced: Traced
) -> None:
    async with running(database, broker, traced) as client:
        made = await client.submit("parent", pool="worker")
        rows = await all_in(database, [made.id], within_seconds=20)
        child = rows[made.id]["result"].strip('"')
        await all_in(database, [child], within_seconds=20)

        async def all_is_published() -> bool:
            published = {
                (span.attributes or {}).get("messaging.message.id")
                for span in traced.found
                if span.name.startswith("publish ")
            }
            logged = {
                str(row["message_id"]) for task in (made.id, child) for row in await log_of(database, task)
            }
            return logged <= published

        await eventually(all_is_published)

    assert {trace_of(span) for span in traced.found if "grns.task.id" in (span.attributes or {})} == {
        made.trace_id
    }, "what a handler submits is of the same trace"

    submitted, claimed = traced.only("submit parent"), traced.only("claim parent")
    command = traced.only("publish cmd.task.execute", made.id)
    run, finished = traced.only("run parent"), traced.only("finish parent")
    assert (claimed.attributes or {})["grns.source"] in ("priority", "poll")
    queued = traced.only("publish evt.task.queued", made.id)
    assert (links_of(command), links_of(queued)) == ([id_of(queued)], [id_of(submitted)])
    by_lane = (claimed.attributes or {})["grns.source"] == "priority"
    assert links_of(claimed) == [id_of(command if by_lane else queued)]
    assert parent_of(run) == parent_of(finished) == id_of(claimed)
    assert parent_of(traced.only("inside")) == id_of(run)
    assert parent_of(traced.only("submit child")) == id_of(traced.only("inside"))
    assert (submitted.kind, command.kind) == (SpanKind.PRODUCER, SpanKind.PRODUCER)
    assert (claimed.kind, run.kind, finished.kind) == (
        SpanKind.CONSUMER,
        SpanKind.CONSUMER,
        SpanKind.INTERNAL,
    )

    first, second = traced.of("run child")
    assert [(span.attributes or {})["grns.attempt"] for span in (first, second)] == [1, 2]
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert (first.attributes or {})["error.type"] == "ValueError"
    assert {parent_of(span) for span in traced.of("inside a thread")} == {id_of(first), id_of(second)}
    statuses = [(span.attributes or {})["grns.task.status"] for span in traced.of("finish child")]
    assert statuses == ["retry_wait", "succeeded"]
    told = {id_of(span): span.name for span in traced.found if span.name.startswith("publish ")}
    # There is no second command where a poll, or the first command, claims before the scheduler queues it.
    for again in traced.of("publish cmd.task.execute", child)[1:]:
        assert [told[one] for one in links_of(again)] == ["publish evt.task.queued"]
    for span in traced.found:
        assert (span.start_time or 0) <= (span.end_time or 0)
        assert "what it says may be secret" not in span.to_json() or span.name == "inside a thread"


# ---------------------------------------------------------------- submitting


@pytest.fixture
async def client(database: Database, traced: Traced) -> AsyncIterator[Client]:
    """A client of a program that is traced; there is no broker."""
    app = App(settings_for(database.url), spans=traced.spans)
    own = app.handlers_database()
    async with own.opened():
        yield tools.client(app, database, app.transport("test"), own)


async def test_submit_within_a_span_joins_its_trace(client: Client, traced: Traced) -> None:
    with TracerProvider().get_tracer("shop").start_as_current_span("order") as order:
        within = f"{order.get_span_context().trace_id:032x}"
        one = await client.submit("noop", pool="worker")
        many = await client.submit_many(
            [{"task": "noop", "pool": "worker"}, {"task": "noop", "pool": "worker", "trace_id": "my-own"}]
        )
        other = await client.submit("noop", pool="worker", trace_id="my-own")
    assert [made.trace_id for made in many if not isinstance(made, ConflictError)] == [within, "my-own"]
    assert (one.trace_id, other.trace_id) == (within, "my-own")
    here, there = traced.of("submit noop")
    assert (trace_of(here), parent_of(here)) == (within, order.get_span_context().span_id)
    assert (trace_of(there), parent_of(there)) == (envelope.w3c_trace("my-own"), None)
    assert links_of(there) == [order.get_span_context().span_id]
    together = traced.only("submit")
    assert (together.attributes or {})["messaging.batch.message_count"] == 2
    assert parent_of(together) == order.get_span_context().span_id


async def test_submit_without_a_span_starts_a_trace_per_task(client: Client, traced: Traced) -> None:
    made = [await client.submit("noop", pool="worker") for _ in range(2)]
    assert [trace_of(span) for span in traced.of("submit noop")] == [one.trace_id for one in made]
    assert made[0].trace_id != made[1].trace_id


async def test_failed_submission_has_error_status(client: Client, traced: Traced) -> None:
    await client.submit("noop", {"a": 1}, pool="worker", idempotency_key="k")
    with pytest.raises(ConflictError):
        await client.submit("noop", {"a": 2}, pool="worker", idempotency_key="k")
    _, failed = traced.of("submit noop")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "ConflictError"


# ---------------------------------------------------------------- ids and samples


def claim_of(trace_id: str) -> Claim:
    """Return a claim as a worker has it."""
    return Claim("gr-1", "noop", 2, "{}", 1, 3, 0, uuid4(), trace_id, uuid4(), 0.5, 0.0)


def live(traced: Traced, claim: Claim, header: str | None = None) -> None:
    """Make all spans of one attempt, and that of its command."""
    now, message_id = time.time_ns(), str(claim.causation_id)
    traced.spans.published(
        kind="cmd.task.execute", message_id=message_id, trace_id=claim.trace_id, causation_id=None,
        task_id=claim.id, began_ns=now,
    )  # fmt: skip
    headers = {} if header is None else {"traceparent": header}
    traced.spans.claimed(claim, "shared", began_ns=now, headers=headers)
    with traced.spans.running(claim) as run:
        run.note(Outcome(Verb.SUCCEED))
    traced.spans.finished(claim, "succeeded", began_ns=now)


def test_published_message_has_the_span_of_its_traceparent(traced: Traced) -> None:
    for trace_id in ("4bf92f3577b34da6a3ce929d0e0e4736", "tr-8f678c2a"):
        claim = claim_of(trace_id)
        live(traced, claim)
        span = traced.of("publish cmd.task.execute")[-1]
        header = f"00-{trace_of(span)}-{id_of(span):016x}-01"
        assert header == envelope.traceparent(trace_id, str(claim.causation_id))


def test_claim_is_linked_to_the_span_of_its_command(traced: Traced) -> None:
    """Strangers send their own header; what stands there, and is none, counts as none."""
    stranger = "00-11111111111111111111111111111111-2222222222222222-01"
    claim = claim_of("t")
    led = envelope.message_span(str(claim.causation_id))
    for header, expected in ((stranger, "2222222222222222"), ("nonsense", led), (None, led)):
        traced.exporter.clear()
        live(traced, claim, header)
        assert [f"{one:016x}" for one in links_of(traced.only("claim noop"))] == [expected]
        assert trace_of(traced.only("claim noop")) == envelope.w3c_trace("t"), "the trace is the task's"


def test_lost_lease_has_error_status(traced: Traced) -> None:
    traced.spans.finished(claim_of("t"), "lost", began_ns=time.time_ns())
    assert traced.only("finish noop").status.status_code is StatusCode.ERROR


async def test_cancelled_handler_has_error_status(traced: Traced) -> None:
    with pytest.raises(asyncio.CancelledError), traced.spans.running(claim_of("t")):
        raise asyncio.CancelledError
    assert traced.only("run noop").status.status_code is StatusCode.ERROR
    assert not trace.get_current_span().get_span_context().is_valid, "nothing is left behind"


def test_spans_of_a_trace_are_all_sampled_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    traced = Traced()
    traces = [f"tr-{number}" for number in range(200)]
    for trace_id in traces:
        live(traced, claim_of(trace_id))
    seen = {trace_id: 0 for trace_id in map(envelope.w3c_trace, traces)}
    for span in traced.found:
        seen[trace_of(span)] += 1
    assert set(seen.values()) == {0, 4}
    assert 50 < list(seen.values()).count(4) < 150


# ---------------------------------------------------------------- where nobody asks for it


def test_app_without_endpoint_makes_no_spans(database_free_app: App) -> None:
    app = database_free_app
    app.trace("worker")
    assert app.spans is NO_SPANS
    with app.spans.submitting(task_id="gr-1", task_type="noop", trace_id="t"), app.spans.submitting_many(2):
        with app.spans.running(claim_of("t")) as run:
            run.note(Outcome(Verb.SUCCEED))
        app.spans.finished(claim_of("t"), "succeeded", began_ns=0)
    app.spans.close()


@pytest.fixture
def database_free_app() -> App:
    """An app that has connected to nothing."""
    return App(settings_for("postgresql://127.0.0.1:1/none"))


def test_endpoint_that_is_not_a_url_is_refused() -> None:
    """What it says may be a secret: it is not repeated."""
    app = App(settings_for("postgresql://127.0.0.1:1/none", otlp_endpoint="user:canary@collector:4318"))
    with pytest.raises(SettingsError, match="as http://") as raised:
        app.trace("worker")
    assert "canary" not in str(raised.value)
    assert "canary" not in repr(app.settings)


def test_missing_otlp_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "grns.telemetry.otel", raising=False)
    app = App(settings_for("postgresql://127.0.0.1:1/none", otlp_endpoint="http://127.0.0.1:1"))
    with pytest.raises(SettingsError, match="is not installed") as raised:
        app.trace("worker")
    assert raised.value.__notes__ == ["pip install 'grns[otlp]'"]
