"""Send one HTTP request to a server that a user has named: only to an address that the URL policy allows.

A host is resolved once, each of its addresses is checked, and the connection goes to one of these addresses.
Redirects are not followed, no proxy or cookie is used, no connection is kept, and responses are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpcore2

from grns.model.url_policy import Destination, UrlPolicy

# One entry of `socket.getaddrinfo`.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
Resolve = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]

_CONNECT_SECONDS = 5.0
_NO_ADDRESS = "no_allowed_address"
_MAX_ADDRESSES = 4
_BODY_SECONDS = 1.0
_RESPONSE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SendResult:
    """The `status` of a response, or an `error` code. Neither contains the URL.

    `detail` is for the log of the operator only: it may name addresses. `body` is empty if it did not come
    whole.
    """

    status: int | None = None
    error: str | None = None
    detail: str = ""
    retry_after_seconds: float | None = None
    body: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_success(self) -> bool:
        """Return whether the status is 2xx."""
        return self.status is not None and 200 <= self.status < 300


class _RefusedError(Exception):
    """A request that got no usable response, with its error code."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(detail)
        self.error = error


async def resolve(host: str, port: int) -> Sequence[AddressInfo]:
    """Resolve a name in a thread of its own: a name server that never answers blocks no other name."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[AddressInfo]] = loop.create_future()

    def settle(result: Sequence[AddressInfo] | OSError) -> None:
        if answer.done():
            return
        if isinstance(result, OSError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def resolve_in_thread() -> None:
        result: Sequence[AddressInfo] | OSError
        try:
            result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            result = error
        except UnicodeError as error:
            result = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=resolve_in_thread, name="resolve", daemon=True).start()
    return await answer


def is_own(address: AddressInfo) -> bool:
    """Return whether an address belongs to this machine: a datagram to it would come from the same address.

    Nothing is sent. A public address that a router translates to this machine is not recognized.
    """
    family, _, _, _, socket_address = address
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(socket_address)
            return bool(probe.getsockname()[0] == socket_address[0])
    except OSError:  # there is no route to it, so it is not this machine
        return False


def trust(file: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates of a file and of the system; `OSError` without it."""
    context = ssl.create_default_context()
    context.load_verify_locations(file)
    return context


@dataclass(slots=True)
class _ResponseStream(httpcore2.AsyncNetworkStream):
    """A connection whose writes do not wait, so that an early response is read; reads are bounded."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _left: int = _RESPONSE_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes; the end of the stream is an error, also after a body without a length."""
        if self._left <= 0:
            raise _RefusedError("bad_answer", f"the response has more than {_RESPONSE_BYTES} bytes")
        data = await self.reader.read(max_bytes)
        if not data:
            raise _RefusedError("closed", "the server closed the connection before the response ended")
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Queue bytes."""
        self.writer.write(buffer)

    async def aclose(self) -> None:
        """Cut the connection: nothing more is read or written."""
        self.writer.transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _ResponseStream:
        """Begin TLS; the certificate must be that of the host, although an address was connected to."""
        try:
            await self.writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException:
            self.writer.transport.abort()
            raise
        return self


@dataclass(slots=True)
class _VettedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host once, and connects to one of its addresses if the policy allows all of them."""

    policy: UrlPolicy
    lookup: Resolve

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> _ResponseStream:
        """Connect to the first address that accepts a connection."""
        trouble = ""
        for address in await self._addresses(host, port):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return _ResponseStream(*await asyncio.open_connection(address, port))
            except OSError as error:  # a timeout is one, too
                trouble = f"{address}: {_detail(error)}"
        raise _RefusedError("no_connection", trouble)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve a host, and check all of its addresses.

        A host without addresses has the same `error` as one with a forbidden address: otherwise the owner of
        a webhook could find out which names exist in the network of this process.
        """
        try:
            infos = await self.lookup(host, port)
        except OSError as error:
            raise _RefusedError(_NO_ADDRESS, _detail(error)) from error
        for info in infos:
            if not self.policy.allows(str(info[4][0]), is_own=is_own(info)):
                raise _RefusedError(_NO_ADDRESS, f"{host} has the address {info[4][0]}")
        if not infos:
            raise _RefusedError(_NO_ADDRESS, f"{host} has no address")
        return [str(info[4][0]) for info in infos[:_MAX_ADDRESSES]]


@dataclass(slots=True, kw_only=True)
class HttpSender:
    """Sends requests within `timeout_seconds`, each over a new connection.

    `policy` decides on addresses, `agent` is the User-Agent, `tls` has the trusted certificates (default:
    those of the system). `lookup` resolves names; tests replace it.
    """

    policy: UrlPolicy
    timeout_seconds: float
    agent: str
    tls: ssl.SSLContext | None = None
    lookup: Resolve = resolve

    async def post(self, to: Destination, headers: Mapping[str, str], body: bytes) -> SendResult:
        """Post JSON and return the result; network errors are results, not exceptions."""
        if to.is_tls and self.tls is None:
            self.tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(self.timeout_seconds) as deadline:
                return await self._post(to, headers, body, deadline)
        except _RefusedError as error:
            return SendResult(error=error.error, detail=str(error))
        except TimeoutError:
            return SendResult(error="timeout", detail=f"no response within {self.timeout_seconds:g} s")
        except ssl.SSLError as error:
            return SendResult(error="tls", detail=_detail(error))
        except OSError as error:
            return SendResult(error="closed", detail=_detail(error))
        except httpcore2.ProtocolError as error:
            return SendResult(error="bad_answer", detail=_detail(error))

    async def _post(
        self, to: Destination, headers: Mapping[str, str], body: bytes, deadline: asyncio.Timeout
    ) -> SendResult:
        backend = _VettedBackend(self.policy, self.lookup)
        connection = httpcore2.AsyncHTTPConnection(
            httpcore2.Origin(to.scheme.encode(), to.host.encode(), to.port),
            ssl_context=self.tls,
            network_backend=backend,
        )
        fields = {
            "Host": to.authority,
            "User-Agent": self.agent,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Accept-Encoding": "identity",
            "Connection": "close",
            **headers,
        }
        url = httpcore2.URL(
            scheme=to.scheme.encode(), host=to.host.encode(), port=to.port, target=to.target.encode()
        )
        async with connection.stream("POST", url, headers=list(fields.items()), content=body) as response:
            deadline.reschedule(None)  # the status is known, however slowly the body comes
            if response.status > 599:
                raise _RefusedError("bad_answer", f"the response has the status {response.status}")
            kept = b""
            with contextlib.suppress(_RefusedError, OSError, httpcore2.ProtocolError):
                async with asyncio.timeout(_BODY_SECONDS):  # reading it spares its server an error
                    kept = b"".join([part async for part in response.aiter_stream()])
            error = None if 200 <= response.status < 300 else f"http_{response.status}"
            return SendResult(response.status, error, "", _retry_after(response), kept)


def _retry_after(response: httpcore2.Response) -> float | None:
    """Return the seconds of a Retry-After header; dates, which are rare, are ignored."""
    fields = {name.lower(): value.decode("latin-1").strip() for name, value in response.headers}
    text = fields.get(b"retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _detail(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:300]
