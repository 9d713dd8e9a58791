"""Progress: what handlers report of their attempts, written at most once a second for each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog

from grns.errors import ContendedError, InvalidInputError, LeaseLostError, UnavailableError
from grns.model.json import Limits
from grns.model.log_line import LEVELS, Line
from grns.model.outcome import Claim
from grns.model.report import percent_of, remaining_of, step_of
from grns.model.usage import COUNTS, Usage
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Session
from grns.worker.secret_value import SealedValues
from grns.worker.task_logger import LineBudget

LEAST_STALL_SECONDS = 5.0  # reports are written once a second
_log = structlog.get_logger()

_SECONDS = 1.0
_LOCKED_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Report:
    """What an attempt reports: a percentage, the name of what it does, a checkpoint as JSON, and times.

    None changes nothing. `stall_seconds` is for how long the attempt may report nothing before it is ended.
    `lines` are what it has logged, and `usage` is what it has used: they are not progress.
    """

    percent: float | None = None
    step: str | None = None
    checkpoint: str | None = None
    remaining_seconds: float | None = None
    stall_seconds: float | None = None
    lines: tuple[Line, ...] | None = None
    usage: tuple[Usage, ...] | None = None

    @property
    def is_progress(self) -> bool:
        """Whether it says more than what was logged and used."""
        return self != Report(lines=self.lines, usage=self.usage)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answer to a report: `recorded`, `lost` or `locked`, and whether the attempt is overdue."""

    verdict: str
    is_overdue: bool


async def record(database: Database | Session, reports: Sequence[tuple[Claim, Report]]) -> list[Recorded]:
    """Write reports of attempts, of each attempt one at most."""
    answers = [Recorded("recorded", is_overdue=False)] * len(reports)
    told = [place for place, (_, report) in enumerate(reports) if report.is_progress]
    logged = [place for place, (_, report) in enumerate(reports) if report.lines]
    used = [place for place, (_, report) in enumerate(reports) if report.usage]
    for places, write in ((used, _record_usage), (logged, _record_lines), (told, _record_progress)):
        if places:
            for place, answer in zip(
                places, await write(database, [reports[one] for one in places]), strict=True
            ):
                if answers[place].verdict == "recorded":
                    answers[place] = answer
    return answers


async def _record_lines(
    database: Database | Session, reports: Sequence[tuple[Claim, Report]]
) -> list[Recorded]:
    """Keep what was logged. What is written twice is there once."""
    now = time.monotonic()
    lines = [(place, line) for place, (_, report) in enumerate(reports, 1) for line in report.lines or ()]
    return await database.fetch(
        Recorded,
        "record_task_lines",
        [claim.id for claim, _ in reports],
        [claim.attempt for claim, _ in reports],
        [claim.lease_id for claim, _ in reports],
        [claim.workspace for claim, _ in reports],
        [place for place, _ in lines],
        [line.number for _, line in lines],
        [max(0.0, now - line.at) for _, line in lines],
        [line.level for _, line in lines],
        [line.message for _, line in lines],
        [line.fields for _, line in lines],
    )


async def _record_usage(
    database: Database | Session, reports: Sequence[tuple[Claim, Report]]
) -> list[Recorded]:
    """Note what was used. What is noted twice is there once."""
    used = [(place, one) for place, (_, report) in enumerate(reports, 1) for one in report.usage or ()]
    return await database.fetch(
        Recorded,
        "record_usage",
        [claim.id for claim, _ in reports],
        [claim.attempt for claim, _ in reports],
        [claim.lease_id for claim, _ in reports],
        [claim.workspace for claim, _ in reports],
        [place for place, _ in used],
        [one.item for _, one in used],
        [one.model for _, one in used],
        *([getattr(one, name) for _, one in used] for name in COUNTS),
        [one.compute_seconds for _, one in used],
        [one.cost or "0" for _, one in used],
        ["none" if one.cost is None else "priced" if one.is_priced else "reported" for _, one in used],
    )


async def _record_progress(
    database: Database | Session, reports: Sequence[tuple[Claim, Report]]
) -> list[Recorded]:
    return await database.fetch(
        Recorded,
        "record_progress",
        [claim.id for claim, _ in reports],
        [claim.attempt for claim, _ in reports],
        [claim.lease_id for claim, _ in reports],
        [claim.workspace for claim, _ in reports],
        [report.percent for _, report in reports],
        [report.step for _, report in reports],
        [report.checkpoint for _, report in reports],
        [report.remaining_seconds for _, report in reports],
        [report.stall_seconds for _, report in reports],
    )


class AttemptProgress:
    """What the handler of one attempt reports. `report` and `checkpoint` may be called in any thread."""

    def __init__(self, claim: Claim, limits: Limits, store: ProgressStore | None = None) -> None:
        self.claim = claim
        self.reported = Report()
        """All that has been reported."""
        self._limits = limits
        self._store = store
        self._unsaved = Report()
        self._budget = LineBudget()
        self._changing = threading.Lock()
        self._writing = asyncio.Lock()

    def report(self, percent: Any, step: Any, remaining: Any) -> None:
        """Note a percentage and what the handler does. Raises InvalidInputError if one has a wrong type."""
        self._note(Report(percent_of(percent), step_of(step), remaining_seconds=remaining_of(remaining)))

    def checkpoint(self, data: Any) -> None:
        """Note a checkpoint. Raises InvalidInputError if it cannot be JSON, or is too large."""
        values = SealedValues(self.claim, None if self._store is None else self._store.vault)
        self._note(Report(checkpoint=values.text(data, self._limits)))

    @property
    def least_level(self) -> int:
        """The lowest level of what is kept of what the handler logs."""
        return 0 if self._store is None else self._store.least_level

    def log(self, level: int, message: str, fields: str | None) -> None:
        """Note a line that was logged."""
        with self._changing:
            lines = self._unsaved.lines or ()
            line = self._budget.line(level, message, fields, unsent=len(lines))
            if line is None:
                return
            self._unsaved = replace(self._unsaved, lines=(*lines, line))
        if self._store is not None:
            self._store.note(self)

    def use(self, usage: Usage) -> None:
        """Note what was used."""
        self._note(Report(usage=(usage,)))

    async def begin(self, stall_seconds: float) -> None:
        """Write for how long the handler may report nothing. Raises UnavailableError, LeaseLostError."""
        self._note(Report(stall_seconds=stall_seconds))
        while True:
            try:
                return await self.flush()
            except ContendedError:  # such as by the renewal of its lease
                await asyncio.sleep(_LOCKED_PAUSE_SECONDS)

    async def flush(self) -> None:
        """Write what is unsaved. Raises UnavailableError, and LeaseLostError if the lease is lost."""
        async with self._writing:
            with self._changing:
                unsaved, self._unsaved = self._unsaved, Report()
            if self._store is None or unsaved == Report():
                return
            try:
                await self._write(unsaved)
            except UnavailableError:
                with self._changing:
                    self._unsaved = merged(unsaved, self._unsaved)
                self._store.note(self)
                raise

    async def _write(self, report: Report) -> None:
        if self._store is None:
            return
        try:
            await self._store.write(self.claim, report)
        except InvalidInputError as error:
            if report.checkpoint is None:
                raise
            _log.warning("checkpoint_refused", task_id=self.claim.id, error=str(error))
            self.log(LEVELS["ERROR"], f"the checkpoint is refused: {error}", None)
            await self._store.write(self.claim, replace(report, checkpoint=None))

    def _note(self, report: Report) -> None:
        with self._changing:
            self.reported = merged(self.reported, report)
            self._unsaved = merged(self._unsaved, report)
        if self._store is not None:
            self._store.note(self)


class ProgressStore:
    """Writes the reports of a worker's attempts, once a second, and reads checkpoints."""

    def __init__(self, database: Database, *, batch_limit: int, least_level: int = LEVELS["INFO"]) -> None:
        self.least_level = least_level
        """Of what handlers log: the lowest level that is kept with the task."""
        self.vault = database.vault
        """What seals the secrets of checkpoints, and opens them."""
        self._database = database
        self._unsaved: dict[UUID, AttemptProgress] = {}
        self._noting = threading.Lock()
        self._reports: Batch[tuple[Claim, Report], Recorded] = Batch(self._write, limit=batch_limit)
        self._checkpoints: Batch[Claim, str | None] = Batch(self._read, limit=batch_limit)

    def note(self, attempt: AttemptProgress) -> None:
        """Note that an attempt has something to write. Any thread may call it."""
        with self._noting:
            self._unsaved[attempt.claim.lease_id] = attempt

    async def tick(self) -> float:
        """Write what is unsaved; what cannot be written now is written later."""
        with self._noting:
            unsaved, self._unsaved = self._unsaved, {}
        for error in await asyncio.gather(*(one.flush() for one in unsaved.values()), return_exceptions=True):
            # An attempt hears from its lease that it is lost.
            if isinstance(error, BaseException) and not isinstance(error, (UnavailableError, LeaseLostError)):
                raise error
        return _SECONDS

    async def write(self, claim: Claim, report: Report) -> None:
        """Write a report. Raises UnavailableError, and LeaseLostError if the lease is lost."""
        answer = await self._reports.ask((claim, report))
        if answer.verdict == "lost":
            raise LeaseLostError(f"attempt {claim.attempt} of task {claim.id} does not own it any more")
        if answer.verdict == "locked":
            raise ContendedError(f"task {claim.id} is locked by another transaction")

    async def read_checkpoint(self, claim: Claim) -> Any:
        """Return the checkpoint of a task; None if it has none. Raises UnavailableError."""
        text = await self._checkpoints.ask(claim)
        return None if text is None else SealedValues(claim, self.vault).value(text)

    async def _write(self, reports: Sequence[tuple[Claim, Report]]) -> list[Recorded]:
        return await record(self._database, reports)

    async def _read(self, claims: Sequence[Claim]) -> list[str | None]:
        ids = [one.id for one in claims]
        rows = await self._database.run("read_checkpoints", ids, [one.workspace for one in claims])
        found = {row["task_id"]: row["checkpoint"] for row in rows}
        return [found.get(task_id) for task_id in ids]


def merged(older: Report, newer: Report) -> Report:
    """Return two reports as one: what the newer one does not say is as the older one says it."""
    said = {name: getattr(newer, name) for name in Report.__slots__ if getattr(newer, name) is not None}
    if older.lines and newer.lines:
        said["lines"] = older.lines + newer.lines
    if older.usage and newer.usage:
        said["usage"] = older.usage + newer.usage
    return replace(older, **said)
