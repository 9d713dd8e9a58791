"""The API's server: uvicorn in our own process and loop, as one of its services."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn
from starlette.types import ASGIApp

from grns.access.isolation import read_isolation
from grns.access.keys import has_keys
from grns.api.connection import WatchedConnection
from grns.api.context import ApiContext
from grns.errors import UnavailableError
from grns.runtime.service import wait_for_postgres
from grns.telemetry.service_signals import ServiceStarted, ServiceStopped

_log = structlog.get_logger()

_GRACE_SECONDS = 5
_IDLE_SECONDS = 30
_BACKLOG = 2048
_NAME = "api"


class _Server(uvicorn.Server):
    """Leaves the signals of the process to the code that runs its services."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class ApiServer:
    """Serves an app until stopped; what is being answered then may end within a few seconds.

    The app answers with what is on the desk. The port is taken when the server is made: `UnavailableError`
    where it cannot be.
    """

    def __init__(self, context: ApiContext, app: ASGIApp, *, host: str, port: int) -> None:
        self._context = context
        self._socket = _bound(host, port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=WatchedConnection,
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
        """Serve until stopped."""
        context = self._context
        try:
            self._socket.listen(_BACKLOG)  # uvicorn will, too: who is told of the server may ask at once
            isolation = await wait_for_postgres(lambda: read_isolation(context.database), emit=context.emit)
            context.emit(ServiceStarted(_NAME))
            _log.info("api_started", url=self.url, is_isolated=isolation.obstacle is None)
            if isolation.is_missing:
                _log.warning(
                    "workspaces_not_isolated",
                    obstacle=isolation.obstacle or "",
                    advice="grns admin workspace isolate",
                )
            await wait_for_postgres(self._invite, emit=context.emit)
            context.agent_claims.begin()
            await self._server.serve(sockets=[self._socket])
        finally:
            await context.agent_claims.close()
            self._socket.close()
        context.emit(ServiceStopped(_NAME))

    def stop(self) -> None:
        """Ask for the end: no new connection is taken, streams and long polls end."""
        self._context.stopping.set()
        self._context.agent_claims.stop()
        self._server.should_exit = True

    async def _invite(self) -> None:
        """Print how to create the first key, if there is none.

        To stderr, past the log: the log goes to collectors that many can read, and takes out secrets.
        """
        invitation = self._context.invitation
        if invitation.key is None and not await has_keys(self._context.database):
            sys.stderr.write(
                f"grns: there is no API key yet; create the first one at {self.url}{invitation.path()}\n"
                "grns: or run: grns admin key create admin --scope admin --all-workspaces\n"
            )
            sys.stderr.flush()


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
        raise UnavailableError(f"the API cannot be served on {host}:{port}: {error.strerror}") from error
    return bound
