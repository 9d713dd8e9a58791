"""What one server serves: the API under its paths, and the dashboard everywhere else."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from grns.api.app import ROUTES, bare, make_api
from grns.api.context import ApiContext
from grns.api.route import PREFIX
from grns.web.api_client import Inside
from grns.web.app import make_web
from grns.web.authenticator import Authenticator
from grns.web.clock import DisplayClock
from grns.web.pace import Paces
from grns.web.page_request import WebContext
from grns.web.session import Sessions

_PROBES = frozenset(route.path for route in ROUTES if not route.path.startswith(PREFIX))


def make_site(context: ApiContext, *, secret: str | None = None) -> ASGIApp:
    """Return the app. Sessions are signed with the secret, or with one that ends with this process."""
    api, web = make_api(context), make_web(make_queue(context, secret=secret))

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_of_api = path in _PROBES or path == "/api" or path.startswith("/api/")
        await (api if is_of_api else web)(scope, receive, send)

    return site


def make_queue(context: ApiContext, *, secret: str | None = None) -> WebContext:
    """Return what the pages share."""
    # A second one without what stands around requests: those from within are none that anybody has sent.
    api = bare()
    api.state.context = context
    return WebContext(
        context,
        Inside(api),
        Authenticator(context, Sessions(secret)),
        DisplayClock(context.database),
        Paces(),
    )
