"""Watch what tasks stream, until they end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from grns.errors import InvalidInputError, NotFoundError, UnavailableError
from grns.model import output
from grns.model.output import Chunk
from grns.model.output_view import MOST_BYTES, MOST_CHUNKS, OutputEvent, OutputReader, OutputView, place_of
from grns.model.task import TERMINAL, TaskStatus
from grns.nats import JetStream
from grns.postgres.database import Database, Session

_LOOK_SECONDS = 0.5
_AWAY_SECONDS = 1.0
_READ_SECONDS = 1.0  # between two looks at what is stored
_PATIENCE_SECONDS = 1.0  # for the mark at the end of a task

_Key = tuple[str, str]


class _Waiting:
    """Chunks that wait until older ones are read; the oldest are dropped where they are too many."""

    def __init__(self) -> None:
        self.chunks: deque[tuple[Chunk, int]] = deque(maxlen=MOST_CHUNKS)
        self._size = 0

    def add(self, chunk: Chunk, size: int) -> None:
        """Keep one."""
        self.chunks.append((chunk, size))
        self._size += size
        while self._size > MOST_BYTES and self.chunks:
            self._size -= self.chunks.popleft()[1]


@dataclass(slots=True, eq=False)
class _Watch:
    """One task that has readers."""

    workspace: str
    task_id: str
    view: OutputView = field(default_factory=OutputView)
    readers: int = 0
    was_there: bool = False
    is_closed: bool = False
    is_changing: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # What waits until what the broker has stored is read; None: chunks are taken in as they come.
    waiting: _Waiting | None = field(default_factory=_Waiting)
    wants_stored: asyncio.Event = field(default_factory=asyncio.Event)
    read_at: float = float("-inf")
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def notify(self) -> None:
        """Wake all readers."""
        self.changed.set()
        self.changed = asyncio.Event()

    def receive(self, body: bytes) -> None:
        """Take a message in, which any program may have sent."""
        chunk = output.read(body)
        if chunk is None or chunk.attempt < self.view.attempt:
            return
        is_due = time.monotonic() > self.read_at + _READ_SECONDS
        if self.waiting is None and is_due and not self.view.follows(chunk):
            self.waiting = _Waiting()  # the broker may have what is missing
            self.wants_stored.set()
        if self.waiting is not None:
            self.waiting.add(chunk, len(body))
        elif self.view.add(chunk, len(body), is_live=True):
            self.notify()


class OutputHub:
    """Follows the output of tasks for any number of readers: one subscription for each task.

    A reader is a place in what the task has streamed: a slow one costs no memory.
    """

    def __init__(self, database: Database | Session, transport: JetStream) -> None:
        self._database = database
        self._transport = transport
        self._watches: dict[_Key, _Watch] = {}
        self._following: dict[_Key, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_now = asyncio.Event()

    async def events(
        self,
        task_id: str,
        *,
        workspace: str,
        after: str | None = None,
        silence_seconds: float | None = None,
    ) -> AsyncGenerator[OutputEvent, None]:
        """Yield what happens to a task, from the beginning of its output or after a place, until it ends.

        With `silence_seconds`, an event `silence` comes when nothing has happened for so long.

        Raises:
            NotFoundError: there is no such task.
            InvalidInputError: `bad_parameter`: the place is none.
        """
        seen = (0, 0) if after is None else place_of(after)
        if seen is None:
            raise InvalidInputError("bad_parameter", "the place is <attempt>.<number>, as the id of a chunk")
        watch, reader = self._begin(workspace, task_id), OutputReader(seen)
        try:
            while True:
                changed = watch.changed
                news = reader.take(watch.view, is_loading=watch.waiting is not None)
                for one in news:
                    if one.event == "end" and watch.view.status is None and not watch.was_there:
                        raise NotFoundError(f"there is no task {task_id} in workspace {workspace}")
                    yield one
                    if one.event == "end":
                        return
                if watch.is_closed:
                    return
                if any(one.event in ("chunk", "gap") for one in news):
                    continue  # there may be more
                if not await _wait(changed, silence_seconds):
                    yield OutputEvent("silence", watch.view.attempt)
        finally:
            self._end(watch)

    async def close(self) -> None:
        """End all watches: their readers end without `end`."""
        for watch in self._watches.values():
            watch.is_closed = True
            watch.notify()
        for one in self._tasks:
            one.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, workspace: str, task_id: str) -> _Watch:
        key = (workspace, task_id)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(workspace, task_id)
            self._following[key] = self._spawn(self._follow(watch))
            self._look_now.set()
            if self._looking is None or self._looking.done():
                self._looking = self._spawn(self._look())
        watch.readers += 1
        return watch

    def _end(self, watch: _Watch) -> None:
        watch.readers -= 1
        if watch.readers == 0:
            self._forget(watch)

    def _forget(self, watch: _Watch) -> None:
        key = (watch.workspace, watch.task_id)
        if self._watches.get(key) is watch:
            del self._watches[key]
            self._following.pop(key).cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _follow(self, watch: _Watch) -> None:
        """Receive what a task streams; read what is stored at first, and whenever something is missing."""
        subject = output.subject_of(watch.task_id, watch.workspace)
        while True:
            try:
                async with self._transport.watching(subject, watch.receive):
                    while True:
                        await self._read_stored(watch)
                        await watch.wants_stored.wait()
            except UnavailableError:
                watch.waiting = None  # the state is told all the same
                watch.notify()
                await asyncio.sleep(_AWAY_SECONDS)

    async def _read_stored(self, watch: _Watch) -> None:
        async with watch.reading:
            watch.wants_stored.clear()
            watch.waiting = watch.waiting or _Waiting()
            subject, stored = output.subject_of(watch.task_id, watch.workspace), list[bytes]()
            try:
                stored = await self._transport.stored_output(subject)
            except NotFoundError:
                await self._transport.provision_outputs()
            except UnavailableError:
                pass  # there is a gap, then
            found = ((output.read(body), len(body)) for body in stored)
            watch.view.rebuild((chunk, size) for chunk, size in found if chunk is not None)
            watch.read_at = time.monotonic()
            waiting, watch.waiting = watch.waiting, None
            for chunk, size in waiting.chunks:
                watch.view.add(chunk, size, is_live=True)
            watch.notify()

    async def _look(self) -> None:
        """Read the states of all watched tasks, twice a second."""
        while self._watches:
            self._look_now.clear()
            watches = list(self._watches.values())
            try:
                rows = await self._database.run(
                    "read_output_states", [one.task_id for one in watches], [one.workspace for one in watches]
                )
            except UnavailableError:
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            found = {(row["workspace"], row["id"]): row for row in rows}
            for watch in watches:
                row = found.get((watch.workspace, watch.task_id))
                watch.was_there |= row is not None
                status = None if row is None else TaskStatus(row["status"])
                attempt = watch.view.attempt if row is None else row["attempt"]
                if not watch.is_changing and not watch.view.has_ended:
                    watch.is_changing = True
                    self._spawn(self._change(watch, status, attempt))
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._look_now.wait()

    async def _change(self, watch: _Watch, status: TaskStatus | None, attempt: int) -> None:
        """Note what Postgres says of a task; what was streamed before is read first."""
        has_ended = status is None or status in TERMINAL
        if attempt > watch.view.attempt and not watch.view.is_complete:
            await self._read_stored(watch)
        if status is not None and has_ended:
            give_up_at = time.monotonic() + _PATIENCE_SECONDS
            await self._read_stored(watch)
            while not watch.view.is_complete and time.monotonic() < give_up_at:
                await asyncio.sleep(_PATIENCE_SECONDS / 10)  # the last words may still be on their way
                await self._read_stored(watch)
        if watch.view.note(status, attempt):
            watch.notify()
        watch.is_changing = False
        if has_ended:
            watch.view.has_ended = True
            watch.notify()
            self._forget(watch)


async def _wait(changed: asyncio.Event, seconds: float | None) -> bool:
    """Wait for a change; return False if none came for so long."""
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return False
    return True
