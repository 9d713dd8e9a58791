"""What one server serves: the API under its paths, and the dashboard everywhere else."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from grns.api.app import ROUTES, bare, make_api
from grns.api.desk import Desk
from grns.api.route import PREFIX
from grns.web.app import make_web
from grns.web.call import Room
from grns.web.clock import Clock
from grns.web.entry import Entry
from grns.web.inside import Inside
from grns.web.pace import Paces
from grns.web.session import Sessions

_PROBES = frozenset(route.path for route in ROUTES if not route.path.startswith(PREFIX))


def make_site(desk: Desk, *, secret: str | None = None) -> ASGIApp:
    """Return the app. Sessions are signed with the secret, or with one that ends with this process."""
    api, web = make_api(desk), make_web(make_room(desk, secret=secret))

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_of_api = path in _PROBES or path == "/api" or path.startswith("/api/")
        await (api if is_of_api else web)(scope, receive, send)

    return site


def make_room(desk: Desk, *, secret: str | None = None) -> Room:
    """Return what the pages share."""
    # A second one without what stands around requests: those from within are none that anybody has sent.
    api = bare()
    api.state.desk = desk
    return Room(desk, Inside(api), Entry(desk, Sessions(secret)), Clock(desk.database), Paces())
