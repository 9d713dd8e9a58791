"""What a handler tells those who watch: its progress, its checkpoints, and what it streams."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Unpack

from grns.errors import UnavailableError
from grns.model.json import Limits, jsonable
from grns.model.outcome import Claim
from grns.model.usage import TokenCounts, usage_of
from grns.worker.output import AttemptOutput, OutputPublisher
from grns.worker.prices import priced
from grns.worker.progress import AttemptProgress, ProgressStore, Report

if TYPE_CHECKING:
    from grns.worker.leases import Lease

_MAKING = threading.Lock()  # threads may report at the same time


class ReportMethods:
    """The part of a `Context` that any handler may call, also in a thread."""

    _claim: Claim
    _lease: Lease
    _result_limits: Limits
    _progress_store: ProgressStore | None
    _progress: AttemptProgress | None
    _output_publisher: OutputPublisher | None
    _output: AttemptOutput | None
    outage: UnavailableError | None
    if TYPE_CHECKING:

        @property
        def attempt(self) -> int: ...

    def progress(
        self,
        percent: float | None = None,
        step: str | None = None,
        *,
        remaining: float | timedelta | None = None,
    ) -> None:
        """Report how far this attempt is. It is written within a second; any handler may call it.

        People see it in lists, on the page of the task and with `grns task watch`. What this attempt reported
        before stays where you pass None.

        Args:
            percent: 0 to 100.
            step: what the handler does now; the first 255 characters are kept.
            remaining: how long it will still take, in seconds or as a `timedelta`.

        Raises:
            InvalidInputError: `bad_handler`: an argument has a wrong type.

        Example:
            for number, page in enumerate(pages):
                ctx.progress(100 * number / len(pages), f"page {number + 1} of {len(pages)}")
                await read(page)
        """
        self._own_progress().report(percent, self._claim.scrubbed(step), remaining)

    def checkpoint(self, data: Any) -> None:
        """Keep data for the next attempt, which finds it in `last_checkpoint`. Any handler may call it.

        The latest one counts. It is written within a second, and before the attempt ends: a worker that dies
        loses up to a second of them. What must not run twice belongs into `step`.

        Args:
            data: a JSON value, a pydantic model or a dataclass.

        Raises:
            InvalidInputError: the data is not JSON, or too large.

        Example:
            done = ctx.last_checkpoint or {"page": 0}
            for number in range(done["page"], len(pages)):
                await read(pages[number])
                ctx.checkpoint({"page": number + 1})
        """
        self._own_progress().checkpoint(data)

    def usage(
        self,
        item: str,
        *,
        model: str | None = None,
        cost: float | Decimal | None = None,
        compute_seconds: float = 0.0,
        **tokens: Unpack[TokenCounts],
    ) -> None:
        """Note what this attempt has used. It is written within a second, and before the attempt ends.

        Any handler may call it. Of the same `item` of an attempt the first one counts: a call that is
        repeated is counted once.

        Args:
            item: what it was used for, such as `draft`: up to 128 characters, up to 1,000 of an attempt.
            model: name of the model, or `provider:model`.
            cost: US dollars. Without it, the extra `prices` looks up the model; the cost of one that is not
                in its list stays unknown.
            compute_seconds: time that was used, such as of a GPU.
            tokens: `input_tokens` (with those of a cache), `output_tokens` (with those of reasoning), and how
                many of them were `cache_read_tokens`, `cache_write_tokens` and `reasoning_tokens`.

        Raises:
            InvalidInputError: `bad_usage`: an argument is invalid.

        Example:
            ctx.usage("draft", model="gpt-5", input_tokens=1200, output_tokens=300)
        """
        used = usage_of(item, model=model, cost=cost, compute_seconds=compute_seconds, **tokens)
        self._own_progress().use(priced(used))

    @property
    def reported(self) -> Report:
        """What this attempt has reported, for tests: `percent`, `step`, `usage`, `checkpoint` (JSON text)."""
        return self._own_progress().reported

    def _own_progress(self) -> AttemptProgress:
        with _MAKING:
            if self._progress is None:
                self._progress = AttemptProgress(self._claim, self._result_limits, self._progress_store)
            return self._progress

    def stream(self, chunk: Any, *, kind: str | None = None) -> None:
        """Stream text or a JSON value to those who watch; any handler may call it.

        They watch with `handle.stream()`, `grns task tail`, over HTTP, and on the page of the task. It is
        sent within a tenth of a second, and nothing waits for it. It is not part of the task: the broker has
        it in memory for 15 minutes, and some of it is lost while the broker is away; readers see a gap. When
        an attempt fails, readers forget what it has streamed, and begin anew with the next one. After a sleep
        or another wait they go on.

        Args:
            chunk: text, which is joined with text before and behind it, or a JSON value of up to 64 KiB.
            kind: your name for what it is, such as `tool_call`: 1 to 32 of `a-z 0-9 _`. Defaults to `text`
                or `json`.

        Raises:
            InvalidInputError: the chunk is no JSON, or is too large; or the kind is invalid.

        Example:
            async for token in model.answer(question):
                ctx.stream(token)
        """
        if self._claim.scrubber is not None:
            chunk = self._claim.scrubbed(chunk if isinstance(chunk, str) else jsonable(chunk))
        self._own_output().write(chunk, kind)

    @property
    def streamed(self) -> list[Any]:
        """What was streamed in `grns.testing`, in order."""
        return self._own_output().streamed

    def _send_output(self) -> None:
        """Send what has gathered: it is there when the outcome is."""
        if self._output is not None:
            self._output.send()

    def _end_output(self, *, is_suspended: bool) -> None:
        """Send that nothing more comes of this attempt."""
        if self._output is not None:
            self._output.end(is_suspended=is_suspended)

    def _own_output(self) -> AttemptOutput:
        with _MAKING:
            if self._output is None:
                self._output = AttemptOutput(self._claim, lambda: self._lease.is_lost, self._output_publisher)
            return self._output

    async def _begin_progress(self, stall_seconds: float | None) -> None:
        """Read the checkpoint of an earlier attempt, and write for how long nothing may be reported."""
        if self._progress_store is None:
            return
        try:
            if self.attempt > 1:
                self.last_checkpoint = await self._progress_store.read_checkpoint(self._claim)
            if stall_seconds is not None:
                await self._own_progress().begin(stall_seconds)
        except UnavailableError as error:
            self.outage = error
            raise
