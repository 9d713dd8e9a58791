"""Steps: the parts of a handler that never run again once they are recorded."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import TypeAdapter

from grns.errors import (
    ContendedError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknownError,
    UnavailableError,
    WaitTimeoutError,
)
from grns.model.duration import bounded_wait
from grns.model.json import Limits, dumps, jsonable, loads_stored
from grns.model.outcome import Claim, Suspension
from grns.postgres.batch import Batch
from grns.postgres.database import Connection, Database, run
from grns.worker.step_function import adapter_of, call_step

MOST_STEPS = 10_000
MOST_BYTES = 32 * 1024 * 1024  # of all values of a task
_LONGEST_NAME = 255
_NAME = re.compile(f"[^#]{{1,{_LONGEST_NAME}}}")
_LONGEST_PAUSE_SECONDS = 1.0
_LOCKED_PAUSE_SECONDS = 0.02
_BEGIN_SECONDS = 0.005
_LOOK_SECONDS = 0.1
_FAN_OUT = Limits(document_bytes=1024 * 1024, nodes=20_000)
_IN_STEP: ContextVar[bool] = ContextVar("in_step", default=False)
_SHORT_SLEEP_SECONDS = 2.0


class Suspended(BaseException):
    """Ends an attempt whose task waits. It is no Exception, so that handlers do not catch it by accident."""

    def __init__(self, suspension: Suspension) -> None:
        super().__init__(f"the task waits in its step {suspension.step}")
        self.suspension = suspension


class _NotRecordedError(Exception):
    """The task is locked by another transaction, or the step has been recorded: look again."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step as it is recorded. `seconds` is how long a sleep has yet to last."""

    name: str
    kind: str
    value: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to record: its value as JSON."""

    claim: Claim
    name: str
    kind: str
    value: str


class StepStore:
    """Reads and records steps; callers that wait at the same time share one statement."""

    def __init__(self, database: Database, *, batch_limit: int) -> None:
        self._database = database
        self._batch: Batch[NewStep, tuple[str, str | None]] = Batch(self._send, limit=batch_limit)

    async def read(self, claim: Claim) -> list[RecordedStep]:
        """Return the steps of a task."""
        return await self._database.fetch(RecordedStep, "read_steps", claim.id, claim.workspace)

    async def record(self, claim: Claim, name: str, kind: str, value: str) -> str:
        """Record a step, and return the value that is kept: the first one.

        Raises LeaseLostError if the attempt does not own its task any more.
        """
        verdict, kept = await self._batch.ask(NewStep(claim, name, kind, value))
        if verdict == "lost":
            raise _lost(claim)
        if verdict != "recorded":
            raise ContendedError(f"task {claim.id} is locked by another transaction")
        return value if kept is None else kept

    async def take_signal(self, claim: Claim, step: str, name: str) -> str | None:
        """Take a signal for a step, and return the value that is recorded; None if there is no signal.

        Raises LeaseLostError if the attempt does not own its task any more.
        """
        (row,) = await self._database.run(
            "take_signal", claim.id, claim.attempt, claim.lease_id, claim.workspace, step, name
        )
        value: str | None = row["value"]
        found = {} if value is None else loads_stored(value)
        if "lost" in found:
            raise _lost(claim)
        if "locked" in found:
            raise ContendedError(f"task {claim.id} is locked by another transaction")
        return value

    async def _send(self, steps: Sequence[NewStep]) -> list[tuple[str, str | None]]:
        rows = await self._database.run("record_steps", *_columns(steps))
        return [(row["verdict"], row["value"]) for row in rows]


async def record_in(connection: Connection, step: NewStep) -> None:
    """Record a step inside the caller's transaction; any error must undo that transaction.

    Raises LeaseLostError if the attempt does not own its task any more.
    """
    (row,) = await run(connection, "record_steps", *_columns([step]))
    if row["verdict"] == "lost":
        raise _lost(step.claim)
    if row["verdict"] != "recorded" or row["value"] is not None:
        raise _NotRecordedError


def _columns(steps: Sequence[NewStep]) -> tuple[Sequence[object], ...]:
    return (
        [one.claim.id for one in steps],
        [one.claim.attempt for one in steps],
        [one.claim.lease_id for one in steps],
        [one.claim.workspace for one in steps],
        [one.name for one in steps],
        [one.kind for one in steps],
        [one.value for one in steps],
    )


def _lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(f"attempt {claim.attempt} of task {claim.id} does not own it any more")


@dataclass(frozen=True, slots=True)
class StepRecorder:
    """Records a step in a transaction. Once that has committed, pass the text to `committed`."""

    steps: AttemptSteps
    place: str
    kind: str

    async def record(
        self, connection: Connection, value: Any, adapter: TypeAdapter[Any] | None = None
    ) -> str:
        """Record the value; LeaseLostError must undo the transaction."""
        text = self.steps._text(self.place, adapter, value, _FAN_OUT if self.kind == "fan_out" else None)
        self.steps._admit(text)
        await record_in(connection, NewStep(self.steps._claim, self.place, self.kind, text))
        return text

    def committed(self, text: str) -> None:
        """Note that the transaction has committed."""
        self.steps._note(RecordedStep(self.place, self.kind, text))


class AttemptSteps:
    """The steps of one attempt. They are read when the first one is asked for, unless there can be none."""

    def __init__(self, claim: Claim, store: StepStore, limits: Limits, *, is_first: bool) -> None:
        self._claim = claim
        self._store = store
        self._limits = limits
        self._recorded: dict[str, RecordedStep] | None = {} if is_first else None
        self._reading = asyncio.Lock()
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._running: set[str] = set()
        self._idle = asyncio.Event()
        self._ended: Suspension | None = None

    def _begin(self, name: str) -> Token[bool]:
        self._running.add(name)
        self._idle.clear()
        return _IN_STEP.set(True)

    def _end(self, name: str, inside: Token[bool]) -> None:
        _IN_STEP.reset(inside)
        self._running.discard(name)
        if not self._running:
            self._idle.set()

    async def close(self, is_over: Callable[[], bool]) -> None:
        """Begin no more steps, and wait for those that outlast their handler, unless all is over."""
        self._ended = self._ended or Suspension("its handler has ended")
        while self._running and not is_over():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._idle.wait()

    @property
    def unused(self) -> list[str]:
        """Names of the steps that are recorded and were not asked for, as after a change of the handler."""
        asked = {
            name if number == 1 else f"{name}#{number}"
            for name, count in self._counts.items()
            for number in range(1, count + 1)
        }
        return [name for name in self._recorded or () if name.removesuffix(" until") not in asked]

    @property
    def is_running(self) -> bool:
        """Whether a step runs."""
        return bool(self._running)

    async def run(
        self, name: str, function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        """Return the value of a step: the recorded one, or that of the function, which is recorded."""
        place = self._place(name)
        adapter = adapter_of(function)
        inside = self._begin(name)
        try:
            found = await self._find(place, "step")
            if found is None:
                value = await call_step(function, arguments, named)
                text = self._text(place, adapter, value)
                kept = await self._record(place, "step", text)
                if kept == text and adapter is not None:
                    return value
                found = RecordedStep(place, "step", kept)
            value = loads_stored(found.value)
            return value if adapter is None else adapter.validate_python(value)
        finally:
            self._end(name, inside)

    async def sleep(self, seconds: float) -> None:
        """Sleep. A long sleep ends the attempt, and the task waits: raises Suspended."""
        seconds = bounded_wait(seconds)
        place = self._place("sleep")
        found = await self._find(place, "sleep")
        if found is None and seconds <= _SHORT_SLEEP_SECONDS:
            await asyncio.sleep(seconds)
        elif found is None or (found.seconds or 0.0) > 0:
            await self.suspend(Suspension(place, seconds=seconds))

    async def run_in(self, name: str, kind: str, run: Callable[[StepRecorder], Awaitable[None]]) -> Any:
        """Return the value of a step that is recorded in a transaction, which `run` opens.

        It is given what records the value in that transaction. It is called again while Postgres is away or
        its answer was lost: if it has committed before, the value is found.
        """
        if _IN_STEP.get():
            raise InvalidInputError(
                "bad_handler", f"the step {name!r} needs a transaction: call it in no other step"
            )
        place = self._place(name)
        inside = self._begin(name)
        try:
            while (found := await self._find(place, kind)) is None:
                try:
                    await run(StepRecorder(self, place, kind))
                except _NotRecordedError:
                    await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
                    self._recorded = None
                except OutcomeUnknownError:
                    self._recorded = None
            return loads_stored(found.value)
        finally:
            self._end(name, inside)

    async def signal(self, name: str, seconds: float | None) -> Any:
        """Return the value of a signal. Raises Suspended while there is none, and WaitTimeoutError."""
        seconds = None if seconds is None else bounded_wait(seconds)
        place = self._place(f"signal {name}")
        found = await self._find(place, "signal")
        if found is None:
            text = await self.ask(lambda: self._store.take_signal(self._claim, place, name))
            if text is None:
                await self.suspend(Suspension(place, seconds=seconds, signal=name))
            found = RecordedStep(place, "signal", text)
            self._note(found)
        value = loads_stored(found.value)
        if "timed_out" in value:
            raise WaitTimeoutError(f"no signal {name} came in time")
        return value["value"]

    async def suspend(self, suspension: Suspension) -> NoReturn:
        """Raise Suspended, once the steps that run side by side are recorded. None begins after that."""
        if _IN_STEP.get():
            raise InvalidInputError(
                "bad_handler", f"a step cannot wait: call what waits ({suspension.step}) beside the step"
            )
        await asyncio.sleep(_BEGIN_SECONDS)  # those that were called beside it begin
        while self._running:
            await self._idle.wait()
            await asyncio.sleep(0)  # what follows a step begins
        self._ended = self._ended or suspension
        raise Suspended(self._ended)

    async def ended(self, place: str) -> list[str] | None:
        """Return the ids that a wait for tasks has recorded; None while it has not."""
        found = await self._find(place, "wait")
        return None if found is None else loads_stored(found.value)

    async def is_over(self, place: str) -> bool:
        """Return whether the time of a wait for tasks has passed, if it has one."""
        found = await self._find(f"{place} until", "sleep")
        return found is not None and (found.seconds or 0.0) <= 0

    async def note_ended(self, place: str, ids: Sequence[str]) -> list[str]:
        """Record which tasks had ended when a wait for them was over; return what is kept."""
        kept: list[str] = loads_stored(await self._record(place, "wait", dumps(list(ids), _FAN_OUT)))
        return kept

    def waiting_place(self, name: str) -> str:
        """Return the name of a step in which the task waits for others. It is not recorded."""
        return self._place(name)

    def _place(self, name: str) -> str:
        """Return the name under which a step is recorded: that of the second one is `name#2`."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
            raise InvalidInputError(
                "bad_handler",
                f"the name of a step is text of 1 to {_LONGEST_NAME} printable characters without #",
            )
        if self._ended is not None:
            raise Suspended(self._ended)
        if name in self._running:
            raise InvalidInputError(
                "bad_handler",
                f"the step {name!r} runs already: steps side by side need names of their own",
            )
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}#{count}"

    async def _find(self, place: str, kind: str) -> RecordedStep | None:
        if self._recorded is None:
            async with self._reading:
                if self._recorded is None:
                    rows = await self.ask(lambda: self._store.read(self._claim))
                    self._recorded = {row.name: row for row in rows}
                    self._bytes = sum(len(row.value) for row in rows)
        found = self._recorded.get(place)
        if found is not None and found.kind != kind:
            raise InvalidInputError(
                "step_changed",
                f"the step {place!r} was recorded as a {found.kind}: give what is new another name",
            )
        return found

    async def _record(self, place: str, kind: str, text: str) -> str:
        self._admit(text)
        kept: str = await self.ask(lambda: self._store.record(self._claim, place, kind, text))
        self._note(RecordedStep(place, kind, kept))
        return kept

    def _note(self, step: RecordedStep) -> None:
        if self._recorded is not None:
            self._recorded[step.name] = step

    def _admit(self, text: str) -> None:
        """Raise InvalidInputError if the task has as many steps, or bytes of values, as it may have."""
        self._bytes += len(text)
        if len(self._recorded or ()) >= MOST_STEPS or self._bytes > MOST_BYTES:
            raise InvalidInputError(
                "too_many_steps",
                f"a task has at most {MOST_STEPS:,} steps, with {MOST_BYTES // 1024**2} MiB of values",
            )

    async def ask(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until Postgres answers: to ask again does no harm, and the lease decides how long."""
        pause = 0.02
        while True:
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _text(
        self, place: str, adapter: TypeAdapter[Any] | None, value: Any, limits: Limits | None = None
    ) -> str:
        try:
            if adapter is not None:
                value = adapter.dump_python(value, mode="json", by_alias=True)
            return dumps(jsonable(value), limits or self._limits)
        except InvalidInputError as error:
            raise InvalidInputError(
                "bad_handler", f"the value of the step {place!r} cannot be stored: {error}"
            ) from error
