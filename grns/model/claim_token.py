"""Claim tokens: an HTTP worker sends the token of its claim with each request about the attempt.

The token is opaque to the worker and holds all that a server needs, so any server accepts it. It is signed
over every field (HMAC-SHA256) with a secret of the installation, stored in Postgres: it cannot be changed or
forged.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grns.errors import InvalidInputError
from grns.model.envelope import TraceId
from grns.model.field_types import AgentId, TaskId
from grns.model.json import Limits, parse
from grns.model.outcome import Claim
from grns.model.submission import Priority, Token

_VERSION = "t1."
_LONGEST = 2000
_TEXT = re.compile(rf"t1\.[A-Za-z0-9_-]{{1,{_LONGEST}}}")
_KEY_ID_BYTES, _MAC_BYTES = 4, 32
_LIMITS = Limits(document_bytes=_LONGEST, depth=2, nodes=50)
_Number = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that signs tokens; they name it by `id`."""

    id: int
    secret: bytes = field(repr=False)

    def sign(self, body: bytes) -> bytes:
        """Return the 32 bytes of the signature of a body."""
        return hmac.digest(self.secret, self.id.to_bytes(_KEY_ID_BYTES, "big") + body, "sha256")


class ClaimToken(BaseModel):
    """One claimed attempt. `claimed_at` is the server's time, used only by a metric."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: Token
    agent_type: Token
    agent_id: AgentId
    task_id: TaskId
    task_type: Token
    priority: Priority
    attempt: _Number
    attempt_limit: _Number
    uncounted_attempts: _Number
    lease_id: UUID = Field(repr=False)
    lease_seconds: Annotated[float, Field(ge=1, le=86_400)]
    trace_id: TraceId
    causation_id: UUID | None
    claimed_at: Annotated[float, Field(ge=0, le=2**40, allow_inf_nan=False)]

    @classmethod
    def of(
        cls,
        claim: Claim,
        *,
        workspace: str,
        agent_type: str,
        agent_id: str,
        lease_seconds: float,
        claimed_at: float,
    ) -> ClaimToken:
        """Return the token of a claim."""
        return cls(
            workspace=workspace,
            agent_type=agent_type,
            agent_id=agent_id,
            task_id=claim.id,
            task_type=claim.task_type,
            priority=claim.priority,
            attempt=claim.attempt,
            attempt_limit=claim.attempt_limit,
            uncounted_attempts=claim.uncounted_attempts,
            lease_id=claim.lease_id,
            lease_seconds=lease_seconds,
            trace_id=claim.trace_id,
            causation_id=claim.causation_id,
            claimed_at=claimed_at,
        )

    def reveal(self, key: SigningKey) -> str:
        """Return the token as its holder sends it, signed with a key."""
        body = self.model_dump_json().encode()
        signed = key.id.to_bytes(_KEY_ID_BYTES, "big") + key.sign(body) + body
        return _VERSION + base64.urlsafe_b64encode(signed).decode().rstrip("=")

    def claim(self) -> Claim:
        """Return the claim without payload and deadline."""
        return Claim(
            self.task_id, self.task_type, self.priority, "", self.attempt, self.attempt_limit,
            self.uncounted_attempts, self.lease_id, self.trace_id, self.causation_id, 0.0, 0.0,
            self.workspace,
        )  # fmt: skip

    def event_id(self, verb: str) -> UUID:
        """Return the id of the event that ends the attempt: a repeated request has the same."""
        return uuid5(self.lease_id, verb)


@dataclass(frozen=True, slots=True)
class ShownClaimToken:
    """A received token before its signature is verified; `key_id` names the key."""

    key_id: int
    mac: bytes = field(repr=False)
    body: bytes = field(repr=False)

    def verify(self, key: SigningKey | None) -> ClaimToken:
        """Return the token if this key signed it. Raises InvalidInputError: `bad_token`."""
        if key is None or key.id != self.key_id or not hmac.compare_digest(key.sign(self.body), self.mac):
            raise _bad()
        try:
            return ClaimToken.model_validate(parse(self.body, _LIMITS))
        except (ValueError, InvalidInputError, ValidationError) as error:
            raise _bad() from error


def read(text: str) -> ShownClaimToken:
    """Parse a token. Raises InvalidInputError: `bad_token`, which does not repeat it."""
    if not _TEXT.fullmatch(text):
        raise _bad()
    body = text.removeprefix(_VERSION)
    try:
        signed = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except ValueError as error:
        raise _bad() from error
    start = _KEY_ID_BYTES + _MAC_BYTES
    # The last letter may have unused bits: only one spelling of a token is valid.
    if len(signed) <= start or base64.urlsafe_b64encode(signed).decode().rstrip("=") != body:
        raise _bad()
    return ShownClaimToken(
        int.from_bytes(signed[:_KEY_ID_BYTES], "big"), signed[_KEY_ID_BYTES:start], signed[start:]
    )


def _bad() -> InvalidInputError:
    return InvalidInputError("bad_token", "a token is what a claim was answered with, as it was")
