"""Sessions of browsers: a signed cookie that names a key, and what shows that a form was ours.

The key itself is in no cookie, but the signature covers its digest: with the secret of this installation
and the id of a key, nobody can make a session. Each request asks the database whether the key is
good still and whether the session was ended: a revoked key ends all its sessions, and a logout one, at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

COOKIE = "grns_session"
# Browsers take a cookie of such a name only over TLS, and only from this very host.
SECURE_COOKIE = f"__Host-{COOKIE}"
_LASTS_SECONDS = 12 * 3600
_COOKIE = re.compile(r"([0-9a-f]{20})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class WebSession:
    """What a cookie says, to be believed once `is_signed` is true. `nonce` is the session's own."""

    key_id: str
    ends_at: int
    nonce: str
    signature: str = field(repr=False)


class Sessions:
    """Begins sessions and reads them. Those that share a secret know each other's."""

    def __init__(self, secret: str | None, *, clock: Callable[[], float] = time.time) -> None:
        """Make it; without a secret with one of its own."""
        self._secret = (secret or secrets.token_hex(32)).encode()
        self._clock = clock

    def begin(self, key_id: str, digest: bytes) -> str:
        """Return the cookie of a new session of a key, whose digest is given."""
        content = f"{key_id}.{int(self._clock()) + _LASTS_SECONDS}.{secrets.token_hex(16)}"
        return f"{content}.{self._signed('session', f'{content} {digest.hex()}')}"

    def read(self, cookie: str | None) -> WebSession | None:
        """Return what a cookie says; None where it has not the shape of ours, or is over."""
        found = _COOKIE.fullmatch(cookie or "")
        if found is None or int(found[2]) <= self._clock():
            return None
        return WebSession(found[1], int(found[2]), found[3], found[4])

    def is_signed(self, session: WebSession, digest: bytes) -> bool:
        """Say whether this installation began the session, for the key with this digest."""
        content = f"{session.key_id}.{session.ends_at}.{session.nonce} {digest.hex()}"
        return hmac.compare_digest(session.signature, self._signed("session", content))

    def token(self, session: WebSession) -> str:
        """Return what the forms of a session have in them."""
        return self._signed("form", session.nonce)

    def is_token(self, said: str, session: WebSession) -> bool:
        """Say whether a form was made for this session."""
        return hmac.compare_digest(said.encode(), self.token(session).encode())

    def _signed(self, what: str, content: str) -> str:
        return hmac.new(self._secret, f"{what} {content}".encode(), hashlib.sha256).hexdigest()
