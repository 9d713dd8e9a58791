"""Steps: the parts of a handler that never run again once they are recorded."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from grns.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
    WaitTimeoutError,
)
from grns.model.duration import bounded_wait
from grns.model.json import Limits, dumps, loads_stored
from grns.model.outcome import Claim, Suspension
from grns.model.question import Question, question_id
from grns.worker.step import (
    ClearValues,
    EventWait,
    NotRecordedError,
    RecordedStep,
    StepLog,
    StepValues,
    Suspended,
)
from grns.worker.step_function import adapter_of, call_step

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_STEPS = 10_000
MOST_BYTES = 32 * 1024 * 1024  # of all values of a task
_LONGEST_NAME = 255
_NAME = re.compile(f"[^#]{{1,{_LONGEST_NAME}}}")
_LONGEST_PAUSE_SECONDS = 1.0
_LOCKED_PAUSE_SECONDS = 0.02
_BEGIN_SECONDS = 0.005
_LOOK_SECONDS = 0.1
_IN_STEP: ContextVar[bool] = ContextVar("in_step", default=False)
_SHORT_SLEEP_SECONDS = 2.0
_CLEAR = ClearValues()
MANY_IDS = Limits(document_bytes=1024 * 1024, nodes=20_000)  # of a fan-out, and of a wait for it


class AttemptSteps:
    """The steps of one attempt. They are read when the first one is asked for, unless there can be none."""

    def __init__(
        self,
        claim: Claim,
        store: StepLog,
        limits: Limits,
        *,
        is_first: bool,
        values: StepValues = _CLEAR,
    ) -> None:
        self._claim = claim
        self._values = values
        self._store = store
        self._limits = limits
        self._recorded: dict[str, RecordedStep] | None = {} if is_first else None
        self._reading = asyncio.Lock()
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._seen_events: dict[tuple[str, str], int] = {}
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
                self._values.check(adapter)
                value = await call_step(function, arguments, named)
                text = self._text(place, adapter, value)
                kept = await self._record(place, "step", text)
                if kept == text and adapter is not None:
                    return value
                found = RecordedStep(place, "step", kept)
            return self.read(found, adapter)
        finally:
            self._end(name, inside)

    def read(self, step: RecordedStep, adapter: TypeAdapter[Any] | None) -> Any:
        """Return the value of a step as its function would return it.

        Raises:
            InvalidInputError: `step_changed`: it does not fit the annotation any more. What it is, the error
                does not show.
            SealedError: a secret of it cannot be opened here.
        """
        value = self._values.value(step.value)
        if adapter is None:
            return value
        from pydantic import ValidationError

        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            (first, *_) = error.errors(include_url=False, include_input=False, include_context=False)
        place = ".".join(map(str, first["loc"])) or "it"
        raise InvalidInputError(
            "step_changed",
            f"the value of the step {step.name!r} does not fit its annotation any more:"
            f" {place}: {first['msg']}",
        )

    async def sleep(self, seconds: float) -> None:
        """Sleep. A long sleep ends the attempt, and the task waits: raises Suspended."""
        seconds = bounded_wait(seconds)
        place = self._place("sleep")
        found = await self._find(place, "sleep")
        if found is None and seconds <= _SHORT_SLEEP_SECONDS:
            await asyncio.sleep(seconds)
        elif found is None or (found.seconds or 0.0) > 0:
            await self.suspend(Suspension(place, seconds=seconds))

    async def run_in(
        self,
        name: str,
        kind: str,
        run: Callable[[str], Awaitable[None]],
        adapter: TypeAdapter[Any] | None = None,
    ) -> Any:
        """Return the value of a step that is recorded in a transaction, which `run` opens.

        It is given the name under which to record the value. It is called again while Postgres is away or
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
                self._values.check(adapter)
                try:
                    await run(place)
                except NotRecordedError:
                    await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
                    self._recorded = None
                except OutcomeUnknownError:
                    self._recorded = None
            return self.read(found, adapter)
        finally:
            self._end(name, inside)

    async def signal(self, name: str, seconds: float | None) -> Any:
        """Return the value of a signal. Raises Suspended while there is none, and WaitTimeoutError."""
        place = self._place(f"signal {name}")
        value = await self._taken(place, name, seconds)
        if "timed_out" in value:
            raise WaitTimeoutError(f"no signal {name} came in time")
        return value["value"]

    async def event(self, kind: str, where: str, seconds: float | None) -> dict[str, Any]:
        """Return an event. Raises Suspended while there is none, and WaitTimeoutError."""
        place = self._place(f"event {kind}")
        wanted = EventWait(kind, where, self._seen_events.get((kind, where), 0))
        value = await self._taken(place, f"event {place}", seconds, event=wanted)
        if "timed_out" in value:
            raise WaitTimeoutError(f"no event {kind} came in time")
        found: dict[str, Any] = value["value"]
        self._seen_events[kind, where] = found["seq"]
        return found

    async def answer(self, name: str, question: Question, seconds: float | None) -> dict[str, Any] | None:
        """Return the answer to a question; None if there was none in time. Raises Suspended meanwhile."""
        place = self._place(f"ask {name}")
        id_ = question_id(self._claim.id, place)
        value = await self._taken(place, f"question {id_}", seconds, question.text(id_), question.digest)
        answer: dict[str, Any] | None = None if "timed_out" in value else value["value"]
        return answer

    async def _taken(
        self,
        place: str,
        signal: str,
        seconds: float | None,
        question: str | None = None,
        digest: str | None = None,
        event: EventWait | None = None,
    ) -> dict[str, Any]:
        """Return what is recorded of a wait for a signal. Raises Suspended while there is none."""
        seconds = None if seconds is None else bounded_wait(seconds)
        found = await self._find(place, "signal")
        if found is None:
            self._admit("")
            take = partial(self._store.take_signal, self._claim, place, signal, digest=digest, event=event)
            text = await self.ask(take)
            if text is None:
                await self.suspend(Suspension(place, seconds=seconds, signal=signal, question=question))
            found = RecordedStep(place, "signal", text)
            self._note(found)
        value: dict[str, Any] = loads_stored(found.value)
        return value

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
        kept: list[str] = loads_stored(await self._record(place, "wait", dumps(list(ids), MANY_IDS)))
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
            return self._values.text(value, limits or self._limits, adapter)
        except InvalidInputError as error:
            raise InvalidInputError(
                "bad_handler", f"the value of the step {place!r} cannot be stored: {error}"
            ) from error
