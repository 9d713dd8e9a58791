"""Sessions of browsers: a signed cookie that names a key, and what shows that a form was ours.

The key itself is in no cookie. Each request asks the database whether it is good still, so that a revoked key
ends all its sessions at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

COOKIE = "grns_session"
_LASTS_SECONDS = 12 * 3600
_COOKIE = re.compile(r"([0-9a-f]{20})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has shown a key. `nonce` is another one for each session."""

    key_id: str
    nonce: str


class Sessions:
    """Begins sessions and reads them. Those that share a secret know each other's."""

    def __init__(self, secret: str | None, *, clock: Callable[[], float] = time.time) -> None:
        """Make it; without a secret with one of its own."""
        self._secret = (secret or secrets.token_hex(32)).encode()
        self._clock = clock

    def begin(self, key_id: str) -> str:
        """Return the cookie of a new session."""
        content = f"{key_id}.{int(self._clock()) + _LASTS_SECONDS}.{secrets.token_hex(16)}"
        return f"{content}.{self._signed('session', content)}"

    def read(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None where it is none of ours, or over."""
        found = _COOKIE.fullmatch(cookie or "")
        if found is None:
            return None
        key_id, ends_at, nonce, signature = found.groups()
        wanted = self._signed("session", f"{key_id}.{ends_at}.{nonce}")
        if not hmac.compare_digest(signature, wanted) or int(ends_at) <= self._clock():
            return None
        return Session(key_id, nonce)

    def token(self, session: Session) -> str:
        """Return what the forms of a session have in them."""
        return self._signed("form", session.nonce)

    def is_token(self, said: str, session: Session) -> bool:
        """Say whether a form was made for this session."""
        return hmac.compare_digest(said.encode(), self.token(session).encode())

    def _signed(self, what: str, content: str) -> str:
        return hmac.new(self._secret, f"{what} {content}".encode(), hashlib.sha256).hexdigest()
