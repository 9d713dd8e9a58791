"""An edit: what somebody wants to be otherwise in a task that does not run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.json import Limits, dumps
from grns.model.merge_patch import merged
from grns.model.submission import DelaySeconds, Priority
from grns.model.task import Task


class Edit(BaseModel):
    """What is to be otherwise; None leaves it. A `patch` is a merge patch (RFC 7396) of the payload."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    priority: Priority | None = None
    delay_seconds: DelaySeconds | None = None
    payload: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None

    def payload_of(self, task: Task, limits: Limits) -> str | None:
        """Return the payload that a task is to have, as text; `InvalidInputError` where it cannot be kept."""
        if self.payload is not None:
            return dumps(self.payload, limits)
        return None if self.patch is None else dumps(merged(task.payload, self.patch), limits)


def edit(**fields: Any) -> Edit:
    """Return a checked edit; `InvalidInputError('bad_edit')` names what is wrong."""
    try:
        wanted = Edit.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_edit", first_problem(error)) from error
    if wanted.payload is not None and wanted.patch is not None:
        raise InvalidInputError("bad_edit", "patch: there is a whole payload already")
    if wanted == Edit():
        raise InvalidInputError("bad_edit", "an edit names a priority, delay_seconds, a payload or a patch")
    return wanted


def edition(task: Task) -> str:
    """Return what is another one after each change of a task, whoever made it: an entity tag."""
    return f"{task.version}-{task.updated_at:%Y%m%d%H%M%S%f}"
