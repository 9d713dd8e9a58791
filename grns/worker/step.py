"""A recorded step, and where steps are kept: in Postgres, or behind the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from grns.errors import SealedError
from grns.model.json import Limits, loads_stored
from grns.model.outcome import Claim, Suspension
from grns.model.secret import clear_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Suspended(BaseException):
    """Ends an attempt whose task waits. It is no Exception, so that handlers do not catch it by accident."""

    def __init__(self, suspension: Suspension) -> None:
        super().__init__(f"the task waits in its step {suspension.step}")
        self.suspension = suspension


class NoKeyHereError(SealedError):
    """A step or checkpoint cannot be sealed or opened here: the task waits for a worker that has the key."""


class NotRecordedError(Exception):
    """The task is locked by another transaction, or the step has been recorded: look again."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step as it is recorded. `seconds` is how long a sleep has yet to last."""

    name: str
    kind: str
    value: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EventWait:
    """An event that a task waits for: its kind, what its payload contains, behind which number it is."""

    kind: str
    where: str
    behind: int


class StepValues(Protocol):
    """Writes the values of steps as JSON, and reads them again."""

    def check(self, adapter: TypeAdapter[Any] | None) -> None:
        """Raise SealedError if values of a type could not be written here."""

    def text(self, value: Any, limits: Limits, adapter: TypeAdapter[Any] | None = None) -> str:
        """Return a value as it is stored. Raises InvalidInputError and SealedError."""

    def value(self, text: str) -> Any:
        """Return a stored value. Raises SealedError."""


class ClearValues:
    """Values without secrets: an HTTP worker has no key to seal them."""

    def check(self, adapter: TypeAdapter[Any] | None) -> None:
        """Do nothing: what cannot be written is refused when it is there."""

    def text(self, value: Any, limits: Limits, adapter: TypeAdapter[Any] | None = None) -> str:
        """Return a value as it is stored. Raises InvalidInputError: `undeclared_secret`."""
        return clear_text(value, limits, adapter)

    def value(self, text: str) -> Any:
        """Return a stored value."""
        return loads_stored(text)


class StepLog(Protocol):
    """Reads and records the steps of a task. Each method raises UnavailableError."""

    async def read(self, claim: Claim) -> list[RecordedStep]:
        """Return the steps of a task."""

    async def record(self, claim: Claim, name: str, kind: str, value: str) -> str:
        """Record a step, and return the value that is kept: the first one. Raises LeaseLostError."""

    async def take_signal(
        self, claim: Claim, step: str, name: str, *, digest: str | None = None, event: EventWait | None = None
    ) -> str | None:
        """Take a signal for a step: its value; None if there is none. Raises LeaseLostError.

        With the `digest` of a question, an answer to something else is not taken. An `event` is sent as the
        signal once it is found.
        """
