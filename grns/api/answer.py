"""What is sent back: JSON, as programs get it everywhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson
from starlette.responses import Response

from grns.model.problem import Problem
from grns.model.secret import mask_bytes

PROBLEM_TYPE = "application/problem+json"
_CHALLENGE = 401
_LATER = frozenset({429, 503})
_OVER_BUDGET = "over_budget"


class Answer(Response):
    """A JSON answer. Times are RFC 3339 in UTC, bytes base64."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as bytes: one line, with its end, for who reads it on a terminal."""
        return dumps(content) + b"\n"


class ProblemAnswer(Answer):
    """What could not be done, and why."""

    media_type = PROBLEM_TYPE

    def __init__(self, problem: Problem, *, trace_id: str | None = None) -> None:
        """Make it; `trace_id` is where the log has more of it."""
        headers: dict[str, str] = {}
        if problem.status == _CHALLENGE:
            headers["WWW-Authenticate"] = "Bearer"
        if problem.status in _LATER and problem.code != _OVER_BUDGET:  # until more is allowed
            headers["Retry-After"] = "1"
        document = asdict(problem) | ({} if trace_id is None else {"trace_id": trace_id})
        super().__init__(document, status_code=problem.status, headers=headers)


def dumps(content: Any) -> bytes:
    """Return a value of ours as JSON, with `•••` in place of each stored secret."""
    return mask_bytes(orjson.dumps(content, default=_plain, option=orjson.OPT_UTC_Z))


def etag(edition: str) -> Mapping[str, str]:
    """Return the header that says which edition of a thing an answer shows."""
    return {"ETag": f'"{edition}"'}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)
