"""What handlers stream: gathered for a tenth of a second, sent without an answer, and never waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from grns.model import output
from grns.model.json import loads_stored
from grns.model.outcome import Claim
from grns.model.output import LONGEST_TEXT, SUSPENDED, Chunk
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import OutputDropped

if TYPE_CHECKING:
    from grns.nats import JetStream

_PAUSE_SECONDS = 0.1
_FULL = 4096  # characters: more of it is sent at once
_MOST_UNSENT = 1024 * 1024  # characters that wait for the next sending


class OutputSender(Protocol):
    """Sends what attempts stream: over NATS, or over HTTP."""

    def note(self, attempt: AttemptOutput, *, is_full: bool) -> None: ...

    def send(self, claim: Claim, chunk: Chunk) -> bool: ...

    def note_dropped(self, claim: Claim, chunks: int) -> None: ...


@dataclass(slots=True)
class _Part:
    """Texts of one kind to join, or one value as JSON text."""

    kind: str
    is_text: bool
    texts: list[str]


class AttemptOutput:
    """What the handler of one attempt streams. Any thread may call `write`."""

    def __init__(
        self, claim: Claim, is_lost: Callable[[], bool], publisher: OutputSender | None = None
    ) -> None:
        self.claim = claim
        self._is_lost = is_lost
        self.streamed: list[Any] = []
        """What was streamed without a publisher, for tests."""
        self._publisher = publisher
        self._changing = threading.Lock()
        self._parts: list[_Part] = []
        self._size = 0
        self._number = 0
        self.dropped = 0

    def write(self, value: Any, kind: str | None) -> None:
        """Stream text or a JSON value. Raises InvalidInputError if it is none, or too large."""
        found = output.kind_of(kind, value)
        text = value if isinstance(value, str) else output.value_of(value)
        if not text or self._is_lost():
            return
        if self._publisher is None:
            self.streamed.append(value if isinstance(value, str) else loads_stored(text))
            return
        with self._changing:
            if self._size + len(text) > _MOST_UNSENT:
                self._number += 1  # nothing has it: readers see that a chunk is missing
                self.dropped += 1
                return
            self._size += len(text)
            last = self._parts[-1] if self._parts else None
            if isinstance(value, str) and last is not None and last.is_text and last.kind == found:
                last.texts.append(text)
            else:
                self._parts.append(_Part(found, isinstance(value, str), [text]))
            is_full = self._size >= _FULL
        self._publisher.note(self, is_full=is_full)

    def send(self) -> None:
        """Send what has gathered."""
        with self._changing:
            parts, self._parts, self._size = self._parts, [], 0
            for part in parts:
                text = "".join(part.texts)
                if not part.is_text:
                    self._send(part.kind, loads_stored(text))
                    continue
                for start in range(0, len(text), LONGEST_TEXT):
                    self._send(part.kind, text[start : start + LONGEST_TEXT])

    def close(self, *, is_suspended: bool) -> None:
        """Send the rest, and whether the next attempt goes on behind it."""
        self.send()
        with self._changing:
            if is_suspended and self._number:
                self._send(SUSPENDED, None)
            if self.dropped and self._publisher is not None:
                self._publisher.note_dropped(self.claim, self.dropped)

    def _send(self, kind: str, data: Any) -> None:
        if self._is_lost() or self._publisher is None:
            return
        self._number += 1
        if not self._publisher.send(self.claim, Chunk(self.claim.attempt, self._number, kind, data)):
            self.dropped += 1


class OutputPublisher:
    """Sends what the handlers of a worker stream.

    Besides the relay only this, and its counterpart for HTTP workers, publish: what they send is no fact, is
    in no log, and may be lost.
    """

    def __init__(self, transport: JetStream, *, workspace: str, emit: Emit) -> None:
        self._emit = emit
        self._transport = transport
        self._workspace = workspace
        self._unsent: dict[UUID, AttemptOutput] = {}
        self._noting = threading.Lock()
        self._awake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Send what gathers, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._awake.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            self._awake.clear()
            with self._noting:
                unsent, self._unsent = self._unsent, {}
            for one in unsent.values():
                one.send()

    def note(self, attempt: AttemptOutput, *, is_full: bool) -> None:
        """Note that an attempt has something to send. Any thread may call it."""
        with self._noting:
            is_known = attempt.claim.lease_id in self._unsent
            self._unsent[attempt.claim.lease_id] = attempt
        if self._loop is not None and (is_full or not is_known):
            self._loop.call_soon_threadsafe(attempt.send if is_full else self._awake.set)

    def send(self, claim: Claim, chunk: Chunk) -> bool:
        """Send a chunk; return whether the broker was there."""
        return self._transport.send(output.subject_of(claim.id, self._workspace), output.encode(chunk))

    def note_dropped(self, claim: Claim, chunks: int) -> None:
        """Report chunks that were not sent."""
        self._emit(OutputDropped(claim.id, claim.attempt, claim.trace_id, chunks))
