"""Signatures of webhooks, by Standard Webhooks: HMAC-SHA256 over `<id>.<timestamp>.<body>`."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_PREFIX = "whsec_"
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secret:
    """The signing secret of a webhook. Its `repr` does not show it."""

    value: bytes = field(repr=False)

    def reveal(self) -> str:
        """Return the secret as text, for its owner."""
        return _PREFIX + base64.b64encode(self.value).decode()


def make_secret() -> Secret:
    """Return a new secret."""
    return Secret(secrets.token_bytes(_SECRET_BYTES))


def sign(keys: Iterable[Secret], message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers with message id, time and one signature per key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key.value, signed, "sha256")).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
