"""The API's server: uvicorn in our own process and loop, as one of its services."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from grns.api.connection import Connection
from grns.api.desk import Desk
from grns.daemon import patiently
from grns.errors import SettingsError, Unavailable
from grns.server_url import is_loopback
from grns.store.access import read_isolation
from grns.store.key import has_keys
from grns.telemetry.facts.http import ApiServes, WorkspacesNotIsolated
from grns.telemetry.facts.process import ServiceStarted, ServiceStopped

_GRACE_SECONDS = 5
_IDLE_SECONDS = 30
_BACKLOG = 2048
_NAME = "api"


class _Server(uvicorn.Server):
    """Leaves the signals of the process to whoever runs its services."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class ApiServer:
    """Serves an app until stopped; what is being answered then may end within a few seconds.

    The app answers with what is on the desk. The port is taken when the server is made: `Unavailable` where
    it cannot be.
    """

    def __init__(self, desk: Desk, app: ASGIApp, *, host: str, port: int) -> None:
        self._desk = desk
        self._socket = _bound(host, port)
        # What the name of a host has led to counts, and not the name.
        desk.is_loopback = desk.is_loopback and is_loopback(self._socket.getsockname()[0])
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=Connection,
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            backlog=_BACKLOG,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        """Where it serves."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self) -> None:
        """Serve until stopped; `SettingsError` where anybody could come in."""
        desk = self._desk
        try:
            await patiently(self._require_key, emit=desk.emit)
            isolation = await patiently(lambda: read_isolation(desk.database), emit=desk.emit)
            self._socket.listen(_BACKLOG)  # uvicorn will, too: who is told below may ask at once
            desk.emit(ServiceStarted(_NAME))
            desk.emit(ApiServes(self.url, await has_keys(desk.database), isolation.obstacle is None))
            if isolation.is_missing:
                desk.emit(WorkspacesNotIsolated(isolation.obstacle or "", "grns workspace isolate"))
            await self._server.serve(sockets=[self._socket])
        finally:
            await desk.agent_claims.close()
            self._socket.close()
        desk.emit(ServiceStopped(_NAME))

    def stop(self) -> None:
        """Ask for the end: no new connection is taken, streams end, and nobody waits for tasks."""
        self._desk.stopping.set()
        self._desk.agent_claims.stop()
        self._server.should_exit = True

    async def _require_key(self) -> None:
        if self._desk.is_loopback or await has_keys(self._desk.database):
            return
        error = SettingsError(
            "the API would be open to other machines, and there is no key that anybody has to show"
        )
        error.add_note("grns key create admin --scope admin --all-workspaces")
        raise error


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.set_inheritable(False)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise Unavailable(f"the API cannot be served on {host}:{port}: {error.strerror}") from error
    return bound
