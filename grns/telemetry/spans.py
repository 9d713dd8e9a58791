"""Spans: what of a task's way a tracer is to be shown. Here are none; `otel` has those that are exported.

Who does the work says what it does, and whoever is asked for spans makes some, or does nothing, which costs
as much as a call. A task's spans all belong to its trace; what is on two sides of a queue is linked, not
nested: nobody knows how long it was in there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from grns.model.outcome import Claim, Outcome


class Running:
    """The span of a handler that runs, and is current while it does."""

    __slots__ = ()

    def __enter__(self) -> Running:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def note(self, outcome: Outcome) -> None:
        """Say what came of it."""


class Spans:
    """Makes no spans."""

    is_on = False

    def current_trace(self) -> str | None:
        """Return the trace that the program around us is in, None where it traces nothing.

        What it submits belongs there. Where it has not loaded OpenTelemetry, nothing is loaded here.
        """
        tracer = sys.modules.get("opentelemetry.trace")
        if tracer is None:
            return None
        context = tracer.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def submitting(
        self, *, task_id: str, task_type: str, trace_id: str, parent: str | None = None
    ) -> AbstractContextManager[object]:
        """Show that a task is submitted; `parent` is the trace header of whoever asks from elsewhere."""
        return _NOTHING

    def submitting_many(self, count: int, *, parent: str | None = None) -> AbstractContextManager[object]:
        """Show that many tasks are submitted together; `parent` as above."""
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
        """Show that a message was published: from when it was sent until now, when the broker has it."""

    def claimed(self, claim: Claim, source: str, *, began_ns: int, headers: Mapping[str, str]) -> None:
        """Show that a task was claimed; `headers` are those of its command, if one had come."""

    def running(self, claim: Claim) -> Running:
        """Return the span of the handler: whatever it starts is part of it."""
        return _RUNNING

    def finished(self, claim: Claim, status: str, *, began_ns: int) -> None:
        """Show that what came of an attempt was written."""

    def close(self) -> None:
        """Send what has not been sent, for as long as that takes no more than a moment."""


_NOTHING = nullcontext()
_RUNNING = Running()
NO_SPANS = Spans()
