"""Log-in for browsers: signed session cookies, CSRF tokens, and checks of where a request comes from.

The cookie holds the id of an API key, never its secret. The signature covers the digest of that secret, so
the secret of the installation and the id of a key do not suffice to forge a session. Each request asks the
database whether the key is valid and the session has not ended: revoking a key or logging out takes effect at
once, for every copy of the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from grns.access.keys import authenticate, create_first_key, end_session, resume
from grns.access.principals import BOOTSTRAP, Principal
from grns.api.access import is_bootstrap
from grns.api.context import ApiContext
from grns.errors import PermissionDeniedError, UnauthenticatedError
from grns.model import api_key

COOKIE = "grns_session"
# Browsers accept a cookie with the __Host- prefix only over TLS and only from the same host.
SECURE_COOKIE = f"__Host-{COOKIE}"
_SESSION_SECONDS = 12 * 3600
_COOKIE_PATTERN = re.compile(r"([0-9a-f]{20})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})")
_SAME_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class WebSession:
    """The content of a cookie. Trust it only if `Sessions.is_signed` returns true."""

    key_id: str
    ends_at: int
    nonce: str
    signature: str = field(repr=False)


class Sessions:
    """Creates and reads session cookies. Processes with the same secret accept each other's cookies."""

    def __init__(self, secret: str | None, *, clock: Callable[[], float] = time.time) -> None:
        """Without a secret, sessions end with this process."""
        self._secret = (secret or secrets.token_hex(32)).encode()
        self._clock = clock

    def begin(self, key_id: str, digest: bytes) -> str:
        """Return the cookie of a new session, for the key with this id and digest of its secret."""
        content = f"{key_id}.{int(self._clock()) + _SESSION_SECONDS}.{secrets.token_hex(16)}"
        return f"{content}.{self._sign('session', f'{content} {digest.hex()}')}"

    def read(self, cookie: str | None) -> WebSession | None:
        """Parse a cookie; return None if it is malformed or has expired."""
        match = _COOKIE_PATTERN.fullmatch(cookie or "")
        if match is None or int(match[2]) <= self._clock():
            return None
        return WebSession(match[1], int(match[2]), match[3], match[4])

    def is_signed(self, session: WebSession, digest: bytes) -> bool:
        """Check that this installation began the session for the key with this digest."""
        content = f"{session.key_id}.{session.ends_at}.{session.nonce} {digest.hex()}"
        return hmac.compare_digest(session.signature, self._sign("session", content))

    def csrf_token(self, session: WebSession) -> str:
        """Return the token that every form of the session sends."""
        return self._sign("form", session.nonce)

    def _sign(self, purpose: str, content: str) -> str:
        return hmac.new(self._secret, f"{purpose} {content}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """The user of a request, with the CSRF token of their forms."""

    principal: Principal
    session: WebSession
    csrf_token: str


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Logs users in and out, and finds the user of a request."""

    context: ApiContext
    sessions: Sessions

    async def current_user(self, request: Request) -> CurrentUser | None:
        """Return the user of a request, or None if they have to log in.

        Raises:
            PermissionDeniedError: another site embeds the page or requests it from a script.
        """
        if not is_same_site(request) and request.headers.get("sec-fetch-mode") != "navigate":
            raise PermissionDeniedError("nothing is shown inside the page of another site")
        session = self.sessions.read(request.cookies.get(cookie_name(request)))
        if session is None:
            return None
        try:
            principal, digest = await resume(self.context.database, session.key_id, session.nonce)
        except UnauthenticatedError:
            return None  # the key was revoked or has expired, or the session was ended
        if not self.sessions.is_signed(session, digest):
            return None
        return CurrentUser(principal, session, self.sessions.csrf_token(session))

    async def log_in(self, text: str) -> str:
        """Return the session cookie for an API key or an invitation token.

        Raises:
            UnauthenticatedError: the text is neither a valid key nor the token.
        """
        invitation = self.context.invitation
        if invitation.key is not None and invitation.matches(text):
            text = invitation.key
        await authenticate(self.context.database, text)
        parsed = api_key.parse(text)
        return self.sessions.begin(parsed.id, api_key.digest(parsed.secret))

    async def log_out(self, session: WebSession) -> None:
        """End a session in every process, for every copy of its cookie."""
        await end_session(self.context.database, session.nonce, session.ends_at)

    def is_invited(self, text: str) -> bool:
        """Check whether the text is the token of an invitation with a key."""
        invitation = self.context.invitation
        return invitation.key is not None and invitation.matches(text)

    async def may_bootstrap(self, text: str) -> bool:
        """Check whether the text creates the first key."""
        return await is_bootstrap(self.context, text)

    async def bootstrap(self) -> tuple[str, dict[str, Any]]:
        """Create the first key; return a session cookie for it, and the key to show.

        Raises:
            UnauthenticatedError: a key exists already.
        """
        made, info = await create_first_key(
            self.context.database, workspace=None, name="first", scopes=["admin"], actor=BOOTSTRAP.actor
        )
        cookie = self.sessions.begin(made.id, api_key.digest(made.secret))
        return cookie, {**asdict(info), "key": made.reveal()}


def check_csrf(request: Request, user: CurrentUser, token: str) -> None:
    """Raise PermissionDeniedError unless a form of this user's session sent the request."""
    check_origin(request)
    if not hmac.compare_digest(token.encode(), user.csrf_token.encode()):
        raise PermissionDeniedError("this page is older than your session, or than the server: load it again")


def check_origin(request: Request) -> None:
    """Raise PermissionDeniedError if the page of another site sent the request."""
    origin = request.headers.get("origin")
    is_same_host = origin is None or origin.partition("://")[2] == request.headers.get("host", "")
    # Sec-Fetch-Site decides if it is present: behind a proxy, the host may differ.
    if not is_same_site(request) or not (is_same_host or "sec-fetch-site" in request.headers):
        raise PermissionDeniedError("requests from the page of another site are refused")


def is_same_site(request: Request) -> bool:
    """Check that no other site led here, as far as the browser reports it."""
    return request.headers.get("sec-fetch-site", "none") in _SAME_SITE


def cookie_name(request: Request) -> str:
    """Return the name of the session cookie."""
    return SECURE_COOKIE if is_secure(request) else COOKIE


def is_secure(request: Request) -> bool:
    """Check whether the browser uses TLS, also in front of a proxy."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def set_cookie(
    request: Request, response: Response, name: str, value: str, *, max_age_seconds: int | None = None
) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send; over TLS if the browser uses TLS."""
    response.set_cookie(
        name, value, max_age=max_age_seconds, httponly=True, samesite="strict", secure=is_secure(request)
    )
