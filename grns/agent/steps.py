"""Where an HTTP worker's steps are kept: behind the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grns.model.json import Limits, dumps, loads_stored
from grns.model.outcome import Claim, Suspension
from grns.worker.step import EventWait, RecordedStep

if TYPE_CHECKING:
    from grns.agent.http import AgentHttp

_VALUES = Limits()


class HttpStepLog:
    """Reads and records the steps of one claimed task."""

    def __init__(self, http: AgentHttp, token: str) -> None:
        self._http = http
        self._token = token

    async def read(self, _claim: Claim) -> list[RecordedStep]:
        """Return the steps of the task."""
        answer = await self._http.post("/queue/steps", {"token": self._token})
        return [
            RecordedStep(one["name"], one["kind"], dumps(one["value"], _VALUES), one["seconds"])
            for one in answer["items"]
        ]

    async def record(self, _claim: Claim, name: str, _kind: str, value: str) -> str:
        """Record a step, and return the value that is kept."""
        said = {"token": self._token, "name": name, "value": loads_stored(value)}
        answer = await self._http.post("/queue/step", said)
        return dumps(answer["value"], _VALUES)

    async def take_signal(
        self,
        _claim: Claim,
        step: str,
        name: str,
        *,
        digest: str | None = None,
        event: EventWait | None = None,
    ) -> str | None:
        """Take a signal for a step: its value; None if there is no signal."""
        said: dict[str, Any] = {"token": self._token, "step": step}
        if event is not None:
            where = loads_stored(event.where)
            said["event"] = {"kind": event.kind, "where": where, "behind": event.behind}
        else:
            said |= {"signal": name} if digest is None else {"digest": digest}
        answer = await self._http.post("/queue/signal", said)
        return None if answer["value"] is None else dumps(answer["value"], _VALUES)


def suspension_body(suspension: Suspension) -> dict[str, Any]:
    """Return what the API is told of a wait."""
    said: dict[str, Any] = {"step": suspension.step, "seconds": suspension.seconds}
    if suspension.question is not None:
        asked = json.loads(suspension.question)
        said["question"] = {name: asked[name] for name in ("kind", "title", "body", "evidence")}
        said["question"]["to"] = asked["asked_of"]
        if asked["kind"] == "question":
            said["question"]["form"] = asked["form"]
    elif suspension.signal == f"event {suspension.step}":
        said["event"] = True
    else:
        said["signal"] = suspension.signal
    return {name: value for name, value in said.items() if value is not None}
