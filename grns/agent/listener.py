"""Listens for wakeups: `POST /task` is answered with 202, and the client asks for a task."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grns.agent.client import AgentClient

_MOST_BYTES = 64 * 1024
_SECONDS = 10
_MOST_CONNECTIONS = 50


class WakeupListener:
    """A small HTTP server in a thread, for the `agent_url` of an agent.

    Args:
        client: the client to wake.
        host, port: where to listen; port 0 is a free one.
        path: the path of wakeups.

    Example:
        async with WakeupListener(client, host="0.0.0.0", port=8000):
            await client.register(agent_url="http://coder-1.internal:8000/task")
            await client.run(handlers)
    """

    def __init__(
        self, client: AgentClient, *, host: str = "127.0.0.1", port: int = 0, path: str = "/task"
    ) -> None:
        self._client = client
        self._server = _server(host, port, path, self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._server.serve_forever, name="grns-listener", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    async def __aenter__(self) -> WakeupListener:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Listen no more."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._client.nudged)


def _server(host: str, port: int, path: str, wake: Any) -> ThreadingHTTPServer:
    class WakeupHandler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_POST(self) -> None:
            if self.path.partition("?")[0] != path:
                self.send_error(404)
                return
            length = self.headers.get("Content-Length") or "0"
            if not (length.isascii() and length.isdecimal() and int(length[:9]) <= _MOST_BYTES):
                self.close_connection = True
                self.send_error(413)
                return
            self.rfile.read(int(length))
            wake()
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    return _ListenerServer((host, port), WakeupHandler)


class _ListenerServer(ThreadingHTTPServer):
    """A server with a bound: who opens more connections than that, or is slow, does not take all threads."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        cut = threading.Timer(_SECONDS, self._cut, (request,))
        cut.daemon = True
        cut.start()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None: ...

    def _cut(self, request: Any) -> None:
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
