"""API keys: `grns_<id>_<secret>`. The id is public; only the digest of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from grns.errors import InvalidInputError

_KEY = re.compile(r"grns_([0-9a-f]{20})_([0-9a-f]{64})")
_ID = re.compile(r"[0-9a-f]{20}")
# A part of a key is a secret too.
_SHOWN = re.compile(r"grns_([0-9a-f]{20})_[0-9a-f]+")
# The token that creates the first key (see grns/api/invitation.py).
_BOOTSTRAP = re.compile(r"grns_bootstrap_[0-9a-f]+")
# Signing secrets of webhooks (see grns/webhooks/model.py) have no public part.
_SIGNING = re.compile(r"whsec_[A-Za-z0-9+/=_-]+")

_LONGEST_NAME = 100
_LONGEST_SECONDS = 3660 * 86_400.0


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key. Its `repr` leaves out the secret."""

    id: str
    secret: str = field(repr=False)

    def reveal(self) -> str:
        """Return the key as its holder sends it."""
        return f"grns_{self.id}_{self.secret}"


def make(milliseconds: int) -> ApiKey:
    """Return a new key: an id of 20 hex digits that sorts by time, and a secret of 256 random bits.

    The time only sorts lists.
    """
    return ApiKey(f"{milliseconds & (2**48 - 1):012x}{secrets.token_hex(4)}", secrets.token_hex(32))


def check(name: str, expires_seconds: float | None) -> None:
    """Check name and lifetime of a new key. Raises InvalidInputError: `bad_name`, `bad_expiry`."""
    if not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
        raise InvalidInputError("bad_name", f"a key's name is 1 to {_LONGEST_NAME} printable characters")
    if expires_seconds is not None and not 0 < expires_seconds <= _LONGEST_SECONDS:
        raise InvalidInputError("bad_expiry", "a key expires after more than no time, and ten years at most")


def parse(text: str) -> ApiKey:
    """Return the parsed key. Raises InvalidInputError: `bad_key`, which does not repeat the text."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise InvalidInputError("bad_key", "a key is grns_<id>_<secret>, as it was shown when it was made")
    return ApiKey(found[1], found[2])


def key_id(text: str) -> str:
    """Return the id in a text that is an id or a whole key, such as a leaked one that is to be revoked.

    Raises:
        InvalidInputError: `bad_key`, which does not repeat the text.
    """
    if _ID.fullmatch(text):
        return text
    try:
        return parse(text).id
    except InvalidInputError as error:
        raise InvalidInputError(
            "bad_key", "a key's id is 20 of 0-9 a-f, as the list of keys shows it"
        ) from error


def digest(secret: str) -> bytes:
    """Return the digest to store. Secrets are random: they need neither salt nor a slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def matches(secret: str, kept: bytes) -> bool:
    """Return whether a secret has the stored digest, in constant time."""
    return hmac.compare_digest(digest(secret), kept)


def redacted(text: str) -> str:
    """Return a text without the secrets of keys and webhooks."""
    text = _BOOTSTRAP.sub("grns_bootstrap_***", _SHOWN.sub(r"grns_\1_***", text))
    return _SIGNING.sub("whsec_***", text)
