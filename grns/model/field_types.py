"""Types of the fields of payloads, and the base class of payloads."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from grns.model.actor import PATTERN

TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Attempt = Annotated[int, Field(ge=0)]
ErrorClass = Annotated[str, Field(max_length=255)]
Reason = Annotated[str, Field(max_length=1000)]
Name = Annotated[str, Field(min_length=1, max_length=255)]
Actor = Annotated[str, Field(pattern=PATTERN)]


class Payload(BaseModel):
    """Base class of payloads: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorDetail(Payload):
    """What went wrong: the exception's class name and its message."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    class_: ErrorClass = Field(alias="class")
    message: str
