"""Posts a document to somebody else's server, once: to the address that was looked at, and nowhere else.

Nothing is followed (no redirect, no proxy of the environment), nothing is kept (no cookie, no connection),
and of the answer hardly more than its first line is read, in a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grns.model.url_policy import Destination, UrlPolicy

# What a name leads to: an entry is as `socket.getaddrinfo` has it.
Found = tuple[int, int, int, str, tuple[Any, ...]]
Resolve = Callable[[str, int], Awaitable[Sequence[Found]]]

_CONNECT_SECONDS = 5.0
_NO_ADDRESS = "no_allowed_address"
_MOST_ADDRESSES = 4
_LINE_BYTES = 8 * 1024
_MOST_LINES = 100
_MOST_INTERIM = 5
# The end of an answer tells nothing; it is read for the sake of whoever writes it, for so long and so far.
_REST_SECONDS = 1.0
_REST_BYTES = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r?\n")
_WITHOUT_BODY = (204, 304)


@dataclass(frozen=True, slots=True)
class SendResult:
    """What came of it: the `status` that was answered, or an `error` in one word. Neither repeats the URL.

    `detail` is for the log of whoever runs this, and for nobody else: it may name addresses.
    """

    status: int | None = None
    error: str | None = None
    detail: str = ""
    retry_after_seconds: float | None = None

    @property
    def is_taken(self) -> bool:
        """Say whether whoever was posted to has taken it."""
        return self.status is not None and 200 <= self.status < 300


class _Refused(Exception):
    """Why nothing was answered that counts."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(detail)
        self.error = error


async def resolve(host: str, port: int) -> Sequence[Found]:
    """Look a name up, in a thread of its own: whoever's servers never answer holds up nobody else."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Found]] = loop.create_future()

    def settle(found: Sequence[Found] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def look() -> None:
        found: Sequence[Found] | OSError
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            found = error
        except UnicodeError as error:
            found = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=look, name="resolve", daemon=True).start()
    return await answer


def is_own(address: Found) -> bool:
    """Return whether an address is one of this machine's: a datagram to it would come from the same one.

    Nothing is sent. The address under which a router shows this machine to the world is not known here.
    """
    family, _, _, _, place = address
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return bool(probe.getsockname()[0] == place[0])
    except OSError:  # no way leads there, so it is not this machine
        return False


def believing(file: str) -> ssl.SSLContext:
    """Return what believes the certificates of a file, and those of the system; `OSError` without it."""
    context = ssl.create_default_context()
    context.load_verify_locations(file)
    return context


class WebhookHttp:
    """Posts within `timeout_seconds`, each time over a connection of its own.

    `guard` judges addresses; `agent` is how we call ourselves; `tls` says whose certificates are believed,
    those that the system believes where it is None. `lookup` is for tests: what names lead to.
    """

    def __init__(
        self,
        *,
        guard: UrlPolicy,
        timeout_seconds: float,
        agent: str,
        tls: ssl.SSLContext | None = None,
        lookup: Resolve = resolve,
    ) -> None:
        self._guard = guard
        self._timeout_seconds = timeout_seconds
        self._agent = agent
        self._tls = tls
        self._lookup = lookup

    async def post(self, to: Destination, headers: Mapping[str, str], body: bytes) -> SendResult:
        """Post JSON and return what came of it; nothing that can be wrong on the way is raised."""
        try:
            async with asyncio.timeout(self._timeout_seconds) as patience:
                return await self._post(to, headers, body, patience)
        except _Refused as error:
            return SendResult(error=error.error, detail=str(error))
        except TimeoutError:
            return SendResult(error="timeout", detail=f"no answer within {self._timeout_seconds:g} s")
        except ssl.SSLError as error:
            return SendResult(error="tls", detail=_said(error))
        except OSError as error:
            return SendResult(error="closed", detail=_said(error))

    async def _post(
        self, to: Destination, headers: Mapping[str, str], body: bytes, patience: asyncio.Timeout
    ) -> SendResult:
        addresses = await self._addresses(to)
        connection = await self._connected(addresses)
        try:
            reader, writer = await asyncio.open_connection(
                sock=connection,
                ssl=self._context() if to.is_tls else None,
                server_hostname=to.host if to.is_tls else None,
                limit=_LINE_BYTES,
            )
        except BaseException:
            connection.close()
            raise
        try:
            # Nobody waits until it is written: who answers early is heard all the same.
            writer.write(self._request(to, headers, len(body)) + body)
            return await _answer(reader, patience)
        finally:
            writer.transport.abort()  # it has answered, or is given up: nothing is waited for any more

    async def _addresses(self, to: Destination) -> Sequence[Found]:
        """Return what a host leads to; not one of it may be forbidden.

        A host that leads nowhere has the same `error` as one that leads to a forbidden address: otherwise the
        owner of a webhook could ask which names exist in the network of this process.
        """
        try:
            found = await self._lookup(to.host, to.port)
        except OSError as error:
            raise _Refused(_NO_ADDRESS, _said(error)) from error
        for one in found:
            if not self._guard.allows(str(one[4][0]), is_own=is_own(one)):
                raise _Refused(_NO_ADDRESS, f"{to.host} leads to {one[4][0]}")
        if not found:
            raise _Refused(_NO_ADDRESS, f"{to.host} leads nowhere")
        return found[:_MOST_ADDRESSES]

    async def _connected(self, addresses: Sequence[Found]) -> socket.socket:
        """Return a connection to the first address that takes it."""
        trouble = ""
        for family, kind, protocol, _, address in addresses:
            try:
                connection = socket.socket(family, kind, protocol)
            except OSError as error:  # as of version 6, where this machine has none
                trouble = f"{address[0]}: {_said(error)}"
                continue
            try:
                connection.setblocking(False)
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(connection, address)
            except OSError as error:  # a timeout is one, too
                connection.close()
                trouble = f"{address[0]}: {_said(error)}"
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise _Refused("no_connection", trouble)

    def _request(self, to: Destination, headers: Mapping[str, str], length: int) -> bytes:
        lines = [
            f"POST {to.target} HTTP/1.1",
            f"Host: {to.authority}",
            f"User-Agent: {self._agent}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            "Accept-Encoding: identity",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


async def _answer(reader: asyncio.StreamReader, patience: asyncio.Timeout) -> SendResult:
    for _ in range(_MOST_INTERIM):
        status = await _status(reader)
        fields = await _fields(reader)
        if status >= 200:
            patience.reschedule(None)  # this is the answer, however slowly the rest of it comes
            if status not in _WITHOUT_BODY:
                await _read_rest(reader, fields.get("content-length", ""))
            return SendResult(status, None if 200 <= status < 300 else f"http_{status}", "", _asked(fields))
    raise _Refused("bad_answer", "interim answers, and no last one")


async def _status(reader: asyncio.StreamReader) -> int:
    line = await _line(reader)
    if not line:
        raise _Refused("closed", "the connection was closed before an answer came")
    found = _STATUS.fullmatch(line)
    if found is None:
        raise _Refused("bad_answer", f"it begins with {line[:40]!a}")
    return int(found[1])


async def _fields(reader: asyncio.StreamReader) -> dict[str, str]:
    fields: dict[str, str] = {}
    for _ in range(_MOST_LINES):
        line = await _line(reader)
        if not line.endswith(b"\n"):
            raise _Refused("closed", "the connection was closed within an answer")
        if not line.strip():
            return fields
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.strip().lower()] = value.strip()
    raise _Refused("bad_answer", f"its head has more than {_MOST_LINES} lines")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError as error:
        raise _Refused("bad_answer", f"it has a line of more than {_LINE_BYTES} bytes") from error


async def _read_rest(reader: asyncio.StreamReader, length: str) -> None:
    left = min(int(length), _REST_BYTES) if length.isdecimal() and len(length) < 20 else _REST_BYTES
    with contextlib.suppress(OSError):
        async with asyncio.timeout(_REST_SECONDS):
            while left > 0 and (part := await reader.read(left)):
                left -= len(part)


def _asked(fields: Mapping[str, str]) -> float | None:
    """Return for how many seconds an answer asks to be left alone; a date, which few send, is not read."""
    said = fields.get("retry-after", "")
    return float(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:300]
