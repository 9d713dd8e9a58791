"""Spans of a task's life for a tracer. Those here do nothing; `otel` has the ones that are exported.

All spans of a task belong to its trace. Spans on two sides of a queue are linked, not nested, because the
time in the queue is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from grns.model.outcome import Claim, Outcome


class Running:
    """The span of a running handler: the current span inside `with`."""

    __slots__ = ()

    def __enter__(self) -> Running:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def note(self, outcome: Outcome) -> None:
        """Record the outcome."""


class Spans:
    """Records nothing."""

    is_on = False

    def current_trace(self) -> str | None:
        """Return the current trace of the program that uses the client, None if it traces nothing.

        Tasks that it submits belong to it. Does not load OpenTelemetry.
        """
        tracer = sys.modules.get("opentelemetry.trace")
        if tracer is None:
            return None
        context = tracer.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def submitting(
        self, *, task_id: str, task_type: str, trace_id: str, parent: str | None = None
    ) -> AbstractContextManager[object]:
        """Return a span around a submission; `parent` is the trace header of a remote client."""
        return _NOTHING

    def submitting_many(self, count: int, *, parent: str | None = None) -> AbstractContextManager[object]:
        """Return a span around a submission of many tasks; `parent` as above."""
        return _NOTHING

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
        """Record that a message was published: from its sending until the acknowledgement, now."""

    def claimed(self, claim: Claim, source: str, *, began_ns: int, headers: Mapping[str, str]) -> None:
        """Record that a task was claimed; `headers` are those of its command, if there was one."""

    def running(self, claim: Claim) -> Running:
        """Return the span of the handler."""
        return _RUNNING

    def finished(self, claim: Claim, status: str, *, began_ns: int) -> None:
        """Record that the outcome of an attempt was written."""

    def close(self) -> None:
        """Send the remaining spans, for two seconds at most."""


_NOTHING = nullcontext()
_RUNNING = Running()
NO_SPANS = Spans()
