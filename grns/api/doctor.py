"""What of the installation is not as it should be, and what to do: the same as `grns doctor` says."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import ReaderOfAll
from grns.api.answer import Answer
from grns.api.route import router
from grns.diagnose.doctor.diagnosis import diagnose, worst
from grns.diagnose.doctor.finding import Severity

routes = router("installation")


class DoctorFinding(BaseModel):
    """The result of one check. `what_to_do` is empty if nothing has to be done."""

    check: str
    severity: Severity
    sentence: str
    what_to_do: str


class DurableConsumerState(BaseModel):
    """A durable consumer and its drift. Consumers that grns did not create have none."""

    name: str
    subjects: list[str]
    is_ours: bool
    pending: int
    ack_pending: int
    max_ack_pending: int
    redelivered: int
    ack_wait_seconds: float
    paused_seconds: float
    drift: list[str]


class StreamStatus(BaseModel):
    """A stream of grns with its durable consumers and its drift. -1 means unlimited."""

    name: str
    exists: bool
    messages: int
    size_bytes: int
    max_bytes: int
    duplicate_window_seconds: float
    replicas: int
    drift: list[str]
    durables: list[DurableConsumerState]


class Diagnosis(BaseModel):
    """The findings of all checks, and the streams.

    `streams` is null if NATS cannot be reached; a finding says why.
    """

    at: datetime
    worst: Severity
    findings: list[DoctorFinding]
    streams: list[StreamStatus] | None


@routes.get("/doctor", response_model=Diagnosis)
async def examine(request_context: ReaderOfAll) -> Response:
    """Check the installation: findings, and what to do."""
    read = await request_context.context.rounds.latest()
    findings = diagnose(read)
    said = Diagnosis(
        at=read.at,
        worst=worst(findings),
        findings=[
            DoctorFinding(**asdict(one)) for one in sorted(findings, key=lambda one: -one.severity.rank)
        ],
        streams=None if read.broker is None else [StreamStatus(**asdict(one)) for one in read.broker.streams],
    )
    return Answer(said.model_dump())
