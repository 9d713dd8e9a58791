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
from grns.model.output import ENDED, LONGEST_TEXT, SUSPENDED, Chunk
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
    """Texts of one kind to join, one value as JSON text, or how many chunks are lost here."""

    kind: str
    is_text: bool
    texts: list[str]
    lost: int = 0


class AttemptOutput:
    """What the handler of one attempt streams. Any thread may call `write`, the event loop the rest."""

    def __init__(
        self, claim: Claim, is_lost: Callable[[], bool], publisher: OutputSender | None = None
    ) -> None:
        self.claim = claim
        self.streamed: list[Any] = []
        """What was streamed without a publisher, for tests."""
        self._is_lost = is_lost
        self._publisher = publisher
        self._changing = threading.Lock()
        self._parts: list[_Part] = []
        self._size = 0
        self._number = 0
        self._dropped = 0
        self._has_ended = False

    def write(self, value: Any, kind: str | None) -> None:
        """Stream text or a JSON value. Raises InvalidInputError if it is none, or too large."""
        found, is_text = output.kind_of(kind, value), isinstance(value, str)
        text = output.text_of(value) if is_text else output.value_of(value)
        if not text or self._is_lost():
            return
        if self._publisher is None:
            self.streamed.append(text if is_text else loads_stored(text))
            return
        with self._changing:
            if self._has_ended:  # a thread that outlasts its attempt
                return
            is_full = self._gather(found, text, is_text=is_text)
        self._publisher.note(self, is_full=is_full)

    def _gather(self, kind: str, text: str, *, is_text: bool) -> bool:
        """Keep a text or a value for the next sending; return whether it is to be sent at once."""
        last = self._parts[-1] if self._parts else None
        if self._size + len(text) > _MOST_UNSENT:
            if last is None or not last.lost:
                self._parts.append(last := _Part("", is_text=False, texts=[]))
            last.lost += 1
            return True
        self._size += len(text)
        if is_text and last is not None and last.is_text and last.kind == kind:
            last.texts.append(text)
        else:
            self._parts.append(_Part(kind, is_text, [text]))
        return self._size >= _FULL

    def send(self) -> None:
        """Send what has gathered."""
        with self._changing:
            parts, self._parts, self._size = self._parts, [], 0
            for part in parts:
                text = "".join(part.texts)
                if part.lost:
                    self._number += part.lost
                    self._dropped += part.lost
                elif part.is_text:
                    for start in range(0, len(text), LONGEST_TEXT):
                        self._send(part.kind, text[start : start + LONGEST_TEXT])
                else:
                    self._send(part.kind, loads_stored(text))

    def end(self, *, is_suspended: bool) -> None:
        """Send that this attempt streams no more, and whether the next one goes on behind it."""
        self.send()
        with self._changing:
            self._has_ended = True
            if self._number:
                self._send(SUSPENDED if is_suspended else ENDED, None)
            if self._dropped and self._publisher is not None:
                self._publisher.note_dropped(self.claim, self._dropped)

    def _send(self, kind: str, data: Any) -> None:
        if self._is_lost() or self._publisher is None:
            return
        self._number += 1
        if not self._publisher.send(self.claim, Chunk(self.claim.attempt, self._number, kind, data)):
            self._dropped += 1


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
        if self._loop is None:
            return
        if not is_known:
            self._loop.call_soon_threadsafe(self._awake.set)
        if is_full:
            self._loop.call_soon_threadsafe(attempt.send)

    def send(self, claim: Claim, chunk: Chunk) -> bool:
        """Send a chunk; return whether the broker was there."""
        return self._transport.send(output.subject_of(claim.id, self._workspace), output.encode(chunk))

    def note_dropped(self, claim: Claim, chunks: int) -> None:
        """Report chunks that were not sent."""
        self._emit(OutputDropped(claim.id, claim.attempt, claim.trace_id, chunks))
