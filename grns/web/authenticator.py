"""Who may come in with a browser: whoever has shown a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from grns.access.keys import authenticate, create_first_key, end_session, resume
from grns.access.principals import BOOTSTRAP, Principal
from grns.api.access import is_bootstrap
from grns.api.context import ApiContext
from grns.errors import PermissionDeniedError, UnauthenticatedError
from grns.model import api_key as key
from grns.web.session import COOKIE, SECURE_COOKIE, Sessions, WebSession

_OURS = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """Somebody who was let in. `token` is what their forms have in them."""

    principal: Principal
    session: WebSession
    token: str


class Authenticator:
    """Lets people in."""

    def __init__(self, context: ApiContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions

    async def user(self, request: Request) -> CurrentUser | None:
        """Return who asks, None where they have to show a key; `PermissionDeniedError` for what another site
        asks."""
        if not is_ours(request) and request.headers.get("sec-fetch-mode") != "navigate":
            raise PermissionDeniedError("nothing is shown inside the page of another site")
        session = self._sessions.read(request.cookies.get(cookie_name(request)))
        if session is None:
            return None
        try:
            principal, digest = await resume(self._context.database, session.key_id, session.nonce)
        except UnauthenticatedError:
            return None  # the key was revoked or has expired since, or the session was ended
        if not self._sessions.is_signed(session, digest):
            return None
        return CurrentUser(principal, session, self._sessions.token(session))

    async def begin(self, text: str) -> str:
        """Return the cookie of a session for whoever shows a key; `UnauthenticatedError`."""
        await authenticate(self._context.database, text)
        shown = key.parse(text)
        return self._sessions.begin(shown.id, key.digest(shown.secret))

    async def end(self, session: WebSession) -> None:
        """End a session for every process and every copy of its cookie."""
        await end_session(self._context.database, session.nonce, session.ends_at)

    async def begin_invited(self, text: str) -> str | None:
        """Return the cookie of a session with the invitation's key; None if the text is not its token."""
        invitation = self._context.invitation
        if invitation.key is None or not invitation.matches(text):
            return None
        return await self.begin(invitation.key)

    async def may_bootstrap(self, text: str) -> bool:
        """Say whether the text creates the first key."""
        return await is_bootstrap(self._context, text)

    async def bootstrap(self) -> tuple[str, dict[str, Any]]:
        """Create the first key; returns the cookie of a session with it, and what to show of the key.

        Raises `UnauthenticatedError` if there is a key by now.
        """
        made, row = await create_first_key(
            self._context.database, workspace=None, name="first", scopes=["admin"], actor=BOOTSTRAP.actor
        )
        return self._sessions.begin(made.id, key.digest(made.secret)), {**row, "key": made.reveal()}

    def check(self, request: Request, user: CurrentUser, token: str) -> None:
        """Refuse, with `PermissionDeniedError`, what a page of ours cannot have asked for."""
        refuse_others(request)
        if not self._sessions.is_token(token, user.session):
            raise PermissionDeniedError(
                "this page is older than your session, or than the server: load it again"
            )


def is_secure(request: Request) -> bool:
    """Say whether the browser asks over TLS, as far as a proxy tells."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def cookie_name(request: Request) -> str:
    """Return the name of the cookie that holds the session."""
    return SECURE_COOKIE if is_secure(request) else COOKIE


def is_ours(request: Request) -> bool:
    """Say whether a page of ours, or nobody's, has led here, as far as the browser tells."""
    return request.headers.get("sec-fetch-site", "none") in _OURS


def refuse_others(request: Request) -> None:
    """Refuse, with `PermissionDeniedError`, what the page of another site has a browser do."""
    origin = request.headers.get("origin")
    is_same = origin is None or origin.partition("://")[2] == request.headers.get("host", "")
    # Who speaks of the site itself is believed: behind a proxy, the host may be another one.
    if not is_ours(request) or not (is_same or "sec-fetch-site" in request.headers):
        raise PermissionDeniedError("nothing is done for the page of another site")
