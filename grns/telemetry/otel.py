"""Spans of OpenTelemetry, exported by OTLP. Imported only if `GRNS_OTLP_ENDPOINT` is set.

Ids follow from what both sides of a queue know: the span of a message has the id in its `traceparent`, that
of a submission comes from the task id, that of a claim from the lease id.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version

import structlog
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from grns.model import envelope
from grns.model.outcome import Claim, Outcome, Verb
from grns.telemetry.spans import Running, Spans

_log = structlog.get_logger()

_SEND_SECONDS = 5
_CLOSE_SECONDS = 2.0
_PATH = "/v1/traces"
_SAMPLED, _UNSAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)


class _Ids(RandomIdGenerator):
    """Random ids, unless `name` set the next ones."""

    def __init__(self) -> None:
        self._named = threading.local()

    def name(self, trace_id: int | None, span_id: int | None) -> None:
        """Set the ids of the next span; None is a random id."""
        self._named.trace_id, self._named.span_id = trace_id, span_id

    def generate_trace_id(self) -> int:
        """Return the id of the next trace."""
        return getattr(self._named, "trace_id", None) or super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        return getattr(self._named, "span_id", None) or super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        """Return False: clients may choose trace ids."""
        return False


class OtelSpans(Spans):
    """Creates spans and passes them to a processor."""

    is_on = True

    def __init__(self, processor: SpanProcessor, *, service: str) -> None:
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"grns-{service}"}
        self._ids = _Ids()
        self.provider = TracerProvider(
            resource=Resource.create({**named, "service.version": version("grns")}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("grns", version("grns"))

    @contextmanager
    def submitting(
        self, *, task_id: str, task_type: str, trace_id: str, parent: str | None = None
    ) -> Iterator[None]:
        """Return a span around a submission, within the current span if that is of the same trace."""
        trace_number, active = _trace(trace_id), trace.get_current_span().get_span_context()
        links = []
        above = self._named_by(parent)
        if active.is_valid and active.trace_id == trace_number:
            above = active
        elif active.is_valid:
            links.append(Link(active))
        span = self._start(
            f"submit {task_type}",
            SpanKind.PRODUCER,
            trace_id=trace_number,
            span_id=_span_of(task_id),
            parent=above if above is not None and above.trace_id == trace_number else None,
            links=links,
            attributes={"grns.task.id": task_id, "grns.task.type": task_type},
        )
        with _ended(span):
            yield

    @contextmanager
    def submitting_many(self, count: int, *, parent: str | None = None) -> Iterator[None]:
        """Return a span around a submission of many tasks, with a trace of its own."""
        active = trace.get_current_span().get_span_context()
        span = self._start(
            "submit",
            SpanKind.PRODUCER,
            trace_id=None,
            parent=active if active.is_valid else self._named_by(parent),
            attributes={"messaging.batch.message_count": count},
        )
        with _ended(span):
            yield

    def published(
        self,
        *,
        kind: str,
        message_id: str,
        trace_id: str,
        causation_id: str | None,
        task_id: str | None,
        began_ns: int,
    ) -> None:
        """Record that a message was published, linked to its cause: another message or a submission."""
        trace_number = _trace(trace_id)
        cause = None
        if causation_id is not None:
            cause = _span(causation_id)
        elif task_id is not None:
            cause = _span_of(task_id)
        attributes = {
            "messaging.system": "nats",
            "messaging.operation.type": "send",
            "messaging.message.id": message_id,
            "grns.kind": kind,
        }
        if task_id is not None:
            attributes["grns.task.id"] = task_id
        span = self._start(
            f"publish {kind}",
            SpanKind.PRODUCER,
            trace_id=trace_number,
            span_id=_span(message_id),
            links=[] if cause is None else [_link(trace_number, cause)],
            began_ns=began_ns,
            attributes=attributes,
        )
        span.end()

    def claimed(self, claim: Claim, source: str, *, began_ns: int, headers: Mapping[str, str]) -> None:
        """Record that a task was claimed, linked to the span in which its command was published."""
        trace_number = _trace(claim.trace_id)
        links = []
        if (sent := self._named_by(headers.get("traceparent"))) is not None:
            links.append(Link(sent))
        elif claim.causation_id is not None:
            links.append(_link(trace_number, _span(str(claim.causation_id))))
        span = self._start(
            f"claim {claim.task_type}",
            SpanKind.CONSUMER,
            trace_id=trace_number,
            span_id=_span(str(claim.lease_id)),
            links=links,
            began_ns=began_ns,
            attributes={**_of(claim), "grns.source": source, "grns.queued_seconds": claim.queued_seconds},
        )
        span.end()

    def running(self, claim: Claim) -> Running:
        """Return the span of the handler, within the span of its claim."""
        return _Running(
            self._start(
                f"run {claim.task_type}",
                SpanKind.CONSUMER,
                parent=self._claim_span(claim),
                attributes=_of(claim),
            )
        )

    def finished(self, claim: Claim, status: str, *, began_ns: int) -> None:
        """Record that the outcome of an attempt was written, or that its lease was lost."""
        span = self._start(
            f"finish {claim.task_type}",
            SpanKind.INTERNAL,
            parent=self._claim_span(claim),
            began_ns=began_ns,
            attributes={**_of(claim), "grns.task.status": status},
        )
        if status == "lost":
            span.set_status(Status(StatusCode.ERROR, "lease lost"))
        span.end()

    def close(self) -> None:
        """Send the remaining spans, for two seconds at most: a collector must not delay the exit."""
        closing = threading.Thread(target=self.provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _start(
        self,
        name: str,
        kind: SpanKind,
        *,
        attributes: Mapping[str, str | int | float],
        trace_id: int | None = None,
        span_id: int | None = None,
        parent: SpanContext | None = None,
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> Span:
        around = Context()
        if parent is not None:
            around = trace.set_span_in_context(NonRecordingSpan(parent), around)
        self._ids.name(trace_id, span_id)
        try:
            return self._tracer.start_span(
                name, around, kind=kind, attributes=attributes, links=links, start_time=began_ns
            )
        finally:
            self._ids.name(None, None)

    def _claim_span(self, claim: Claim) -> SpanContext:
        """Return the span of a claim; its trace alone decides, in any process, whether it is sampled."""
        trace_id = _trace(claim.trace_id)
        judged = self.provider.sampler.should_sample(Context(), trace_id, "claim")
        flags = _SAMPLED if judged.decision is Decision.RECORD_AND_SAMPLE else _UNSAMPLED
        return SpanContext(trace_id, _span(str(claim.lease_id)), is_remote=False, trace_flags=flags)

    def _named_by(self, header: str | None) -> SpanContext | None:
        parts = None if header is None else envelope.read_traceparent(header)
        if parts is None:
            return None
        return SpanContext(int(parts[0], 16), int(parts[1], 16), is_remote=True, trace_flags=_SAMPLED)


class _Running(Running):
    """The span of a handler: the current span inside `with`."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Running:
        self._token = attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, *raised: object) -> None:
        detach(self._token)
        if raised[1] is not None:
            self._span.set_status(Status(StatusCode.ERROR, type(raised[1]).__name__))
        self._span.end()

    def note(self, outcome: Outcome) -> None:
        """Record the outcome: the class of an error, not its message, which may hold secrets."""
        self._span.set_attribute("grns.outcome", outcome.verb.value)
        if outcome.verb in (Verb.FAIL, Verb.RETRY):
            self._span.set_attribute("error.type", outcome.error_class or "unknown")
            self._span.set_status(Status(StatusCode.ERROR, outcome.error_class))


class _ExporterLog(logging.Handler):
    """Writes the warnings of the exporter to the log of the process."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        _log.warning("spans_not_sent", detail=record.getMessage()[:500], _throttle=())


def open_spans(endpoint: str, *, service: str) -> OtelSpans:
    """Return spans that are sent to an OTLP/HTTP collector; `OTEL_…` variables configure the rest."""
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}{_PATH}", timeout=_SEND_SECONDS)
    return OtelSpans(BatchSpanProcessor(exporter), service=service)


def take_over(spans: OtelSpans) -> None:
    """Make `spans` the tracer of the process, unless it has one, and log the warnings of the exporter.

    For processes of grns: the code of handlers is traced too. A program that imports grns decides itself.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(spans.provider)
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_ExporterLog(logging.WARNING))
    logger.propagate = False


@contextmanager
def _ended(span: Span) -> Iterator[None]:
    """Make a span the current one and end it with the error that was raised."""
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _of(claim: Claim) -> dict[str, str | int | float]:
    return {"grns.task.id": claim.id, "grns.task.type": claim.task_type, "grns.attempt": claim.attempt}


def _trace(trace_id: str) -> int:
    return int(envelope.w3c_trace(trace_id), 16)


def _span(identity: str) -> int:
    """Return the id of the span that belongs to a UUID."""
    return int(envelope.message_span(identity), 16)


def _span_of(task_id: str) -> int:
    """Return the id of the span in which a task was submitted."""
    return int(hashlib.sha256(task_id.encode()).hexdigest()[:16], 16) or 1


def _link(trace_id: int, span_id: int) -> Link:
    return Link(SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED))
