"""What posts, against servers that fail, hang, lie and never end."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from grns.model.url_policy import Destination, UrlPolicy, guard
from grns.webhooks.http import AddressInfo, HttpSender, SendResult, is_own, resolve, trust
from tests.support.webhooks import (
    FINE,
    GUARD,
    HERE,
    Manner,
    Receiver,
    Request,
    answering,
    hanging,
    serving,
    status,
)

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

TIMEOUT = 1.0
PATIENCE = 5.0  # where an answer comes
BODY = b'{"a": 1}'

# Of `hook.example`, until the year 2126. Nobody else uses it.
_CERTIFICATE = (
    "MIIBnTCCAUSgAwIBAgIUTcja3ilhWusIqI9irF3dkMD3qZ4wCgYIKoZIzj0EAwIwFzEVMBMGA1UEAwwMaG9vay5leGFtcGxlMCAX"
    "DTI2MTEyMjIyMTEzN1oYDzIxMjYxMDI5MjIxMTM3WjAXMRUwEwYDVQQDDAxob29rLmV4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjO"
    "PQMBBwNCAARi1tsFHtlSZzWSyHjZPiBGzcOBwPONL9D8bvaaqDX+wtnCdMAFgdP7VRpy5rWZcBXXN/8rWGFRnCMm8fPTB1Fvo2ww"
    "ajAdBgNVHQ4EFgQU/EBx2CHAl1A+nlt6NEQmKOIlUtgwHwYDVR0jBBgwFoAU/EBx2CHAl1A+nlt6NEQmKOIlUtgwFwYDVR0RBBAw"
    "DoIMaG9vay5leGFtcGxlMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgBN2HYMYSoCAVq08wLCu8Cyj8jZhNj8UG"
    "9H5mnN5NhFQCIC2LZST7v5jYIVIaVPsdaYu5B/M1qt6b4OP3Jv4uChlf"
)
_KEY = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgOTB5n1lpasEH8Nrz4jMJ2tBGiKiQ7+2KyazhpFi5fDuhRANCAARi"
    "1tsFHtlSZzWSyHjZPiBGzcOBwPONL9D8bvaaqDX+wtnCdMAFgdP7VRpy5rWZcBXXN/8rWGFRnCMm8fPTB1Fv"
)


def poster(policy: UrlPolicy = GUARD, **said: Any) -> HttpSender:
    """Return what posts, with little patience."""
    return HttpSender(**{"policy": policy, "timeout_seconds": TIMEOUT, "agent": "grns/1", **said})


def at(port: int, host: str = "127.0.0.1", scheme: str = "http") -> Destination:
    """Return where something is posted to."""
    return Destination(scheme, host, port, "/hook?a=b")


def leads(*addresses: str) -> Any:
    """Return a look-up by which each name leads to these addresses."""

    async def look(_host: str, port: int) -> Sequence[AddressInfo]:
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in addresses
        ]

    return look


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Somebody's server."""
    async with Receiver().listening() as server:
        yield server


async def posted(receiver: Receiver, manner: Manner, **said: Any) -> SendResult:
    """Post to a server that has such a manner."""
    receiver.manner = manner
    return await poster(**said).post(at(receiver.port), {"webhook-id": "m1"}, BODY)


async def test_what_is_posted(receiver: Receiver) -> None:
    found = await posted(receiver, answering(FINE), timeout_seconds=PATIENCE)
    assert found == SendResult(200)
    assert found.is_success
    (request,) = receiver.requests
    assert (request.line, request.body) == ("POST /hook?a=b HTTP/1.1", BODY)
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": "grns/1",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "accept-encoding": "identity",
        "connection": "close",
        "webhook-id": "m1",
    }


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
async def test_what_is_taken(receiver: Receiver, code: int) -> None:
    assert await posted(receiver, status(code), timeout_seconds=PATIENCE) == SendResult(code)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308, 400, 401, 404, 410, 429, 500, 503, 599])
async def test_any_other_status_is_told_and_nothing_is_followed(receiver: Receiver, code: int) -> None:
    async with Receiver().listening() as other:
        found = await posted(receiver, status(code, f"Location: {other.url}"), timeout_seconds=PATIENCE)
        assert (found.status, found.error, found.is_success) == (code, f"http_{code}", False)
        assert other.requests == []
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("said", "seconds"), [("7", 7.0), ("0", 0.0), ("-1", None), ("soon", None), ("1" * 400, None)]
)
async def test_who_asks_for_patience_is_understood(
    receiver: Receiver, said: str, seconds: float | None
) -> None:
    found = await posted(receiver, status(503, f"Retry-After: {said}"), timeout_seconds=PATIENCE)
    assert found.retry_after_seconds == seconds


async def _drip(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer so slowly that it never becomes an answer."""
    for place in range(len(FINE)):
        writer.write(FINE[place : place + 1])
        await asyncio.sleep(TIMEOUT / 5)


async def _reset(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize(
    ("manner", "error"),
    [
        (hanging, "timeout"),
        (_drip, "timeout"),
        (_reset, "closed"),
        (answering(b""), "closed"),
        (answering(b"HTTP/1.1 200 OK\r\nContent-Le"), "closed"),
        (answering(b"HTTP/1.1 200 OK\r\n"), "closed"),
        (answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "bad_answer"),
        (answering(b"HTTP/2 200\r\n\r\n"), "bad_answer"),
        (answering(b"HTTP/1.1 20 OK\r\n\r\n"), "bad_answer"),
        (answering(b"HTTP/1.1 999 OK\r\n\r\n"), "bad_answer"),
        (answering(b"\x16\x03\x01\x02\x00\x01\r\n\r\n"), "bad_answer"),
        (answering(b"HTTP/1.1 200 " + 100_000 * b"O"), "bad_answer"),
        (answering(b"HTTP/1.1 200 OK\r\n" + 20_000 * b"X: y\r\n"), "bad_answer"),
        (answering(4_000 * b"HTTP/1.1 100 Continue\r\n\r\n"), "bad_answer"),
    ],
)
async def test_what_is_no_answer(receiver: Receiver, manner: Manner, error: str) -> None:
    began_at = time.monotonic()
    found = await posted(receiver, manner)
    assert (found.status, found.error) == (None, error)
    assert found.detail
    assert time.monotonic() - began_at < 5 * TIMEOUT


async def test_interim_answers_are_passed_over(receiver: Receiver) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert await posted(receiver, answering(b"HTTP/1.1 100 Continue\r\n\r\n" + early + FINE)) == SendResult(
        200
    )


async def _endless(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(64 * 1024 * b"x")
            await writer.drain()


async def _dribble(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("manner", [_endless, _dribble])
async def test_an_answer_that_never_ends_is_an_answer(receiver: Receiver, manner: Manner) -> None:
    """It was taken: how long its server goes on talking is no matter, and ours is the bound."""
    began_at = time.monotonic()
    assert await posted(receiver, manner) == SendResult(200)
    assert time.monotonic() - began_at < TIMEOUT + 2.0


async def test_an_answer_before_all_was_read_counts(receiver: Receiver) -> None:
    """As of a server to which it is too much: it says so, and reads no further."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 So\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(TIMEOUT / 2)

    async with serving(refuse) as port:
        found = await poster().post(at(port), {}, 8_000_000 * b" ")
    assert found.status == 413


async def test_a_server_that_does_not_read_holds_nobody_up() -> None:
    async def ignore(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(ignore) as port:
        found = await poster().post(at(port), {}, 8_000_000 * b" ")
    assert found.error == "timeout"


# ---------------------------------------------------------------- where it goes


async def test_nobody_listens(receiver: Receiver) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = await poster().post(at(taken.getsockname()[1]), {}, BODY)
    assert found.error == "no_connection"


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["127.0.0.1", "10.0.0.1"],
        ["10.0.0.1", "127.0.0.1"],
        ["::1"],
        ["::ffff:10.0.0.1", "127.0.0.1"],
        ["127.0.0.1", "fe80::1%1"],
    ],
)
async def test_a_name_that_leads_to_where_it_must_not(receiver: Receiver, addresses: list[str]) -> None:
    """One forbidden address is enough: who has put it there means no good with the others."""
    found = await poster(lookup=leads(*addresses)).post(at(receiver.port, "hook.example"), {}, BODY)
    assert found.error == "no_allowed_address"
    assert receiver.requests == []


async def test_without_leave_this_machine_is_not_posted_to(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1"):
        found = await poster(UrlPolicy()).post(at(receiver.port, host), {}, BODY)
        assert found.error == "no_allowed_address", host
    assert receiver.requests == []


async def test_a_name_is_looked_up_once(receiver: Receiver) -> None:
    """What it leads to at a second look is nobody's affair: it could be somewhere else."""
    looks: list[str] = []

    async def look(host: str, port: int) -> Sequence[AddressInfo]:
        looks.append(host)
        return await leads("127.0.0.1" if len(looks) == 1 else "10.0.0.1")(host, port)  # type: ignore[no-any-return]

    found = await poster(lookup=look).post(at(receiver.port, "hook.example"), {}, BODY)
    assert (found.status, looks) == (200, ["hook.example"])
    assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"


async def test_the_next_address_is_tried_where_one_takes_nobody(receiver: Receiver) -> None:
    lookup = leads("127.0.0.9", "127.0.0.1")  # the server listens on the second alone
    assert (await poster(lookup=lookup).post(at(receiver.port, "hook.example"), {}, BODY)).status == 200


async def test_post_without_ipv6_uses_the_ipv4_address(receiver: Receiver) -> None:
    """Names may have an address of version 6 first, also on machines without that version."""
    lookup, policy = leads("::1", "127.0.0.1"), guard(f"{HERE}, ::1/128", allows_http=True)
    assert (
        await poster(policy, lookup=lookup).post(at(receiver.port, "hook.example"), {}, BODY)
    ).status == 200


async def test_host_that_leads_nowhere_has_the_error_of_one_that_leads_inside() -> None:
    """L13: two errors told the owner of a webhook which internal names exist."""
    inside = await poster(UrlPolicy(), lookup=leads("10.0.0.1")).post(at(80, "hook.example"), {}, BODY)

    async def fail(_host: str, _port: int) -> Sequence[AddressInfo]:
        raise socket.gaierror(-2, "Name or service not known")

    async def hang(_host: str, _port: int) -> Sequence[AddressInfo]:
        await asyncio.sleep(60)
        return []

    for lookup, error in ((fail, inside.error), (leads(), inside.error), (hang, "timeout")):
        assert (await poster(lookup=lookup).post(at(80, "hook.example"), {}, BODY)).error == error
    strange = await poster().post(at(80, "a" * 64 + ".example"), {}, BODY)
    assert strange.error == inside.error


async def test_names_are_looked_up_as_the_system_does() -> None:
    assert "127.0.0.1" in {one[4][0] for one in await resolve("localhost", 80)}


# ---------------------------------------------------------------- over TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """The certificate of `hook.example`."""
    place = tmp_path / "certificate.pem"
    place.write_text(ssl.DER_cert_to_PEM_cert(base64.b64decode(_CERTIFICATE)))
    return place


@pytest.fixture
async def secure(certificate: Path, tmp_path: Path) -> AsyncIterator[Receiver]:
    """Somebody's server, over TLS."""
    key = tmp_path / "key.pem"
    kind = "PRIVATE KEY"
    key.write_text(f"-----BEGIN {kind}-----\n{_KEY}\n-----END {kind}-----\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with Receiver().listening(context) as server:
        yield server


async def test_a_certificate_is_that_of_the_name(secure: Receiver, certificate: Path) -> None:
    """Although it is an address that is connected to."""
    ours = poster(lookup=leads("127.0.0.1"), tls=trust(str(certificate)), timeout_seconds=5.0)
    assert await ours.post(at(secure.port, "hook.example", "https"), {}, BODY) == SendResult(200)
    for host in ("other.example", "127.0.0.1"):
        assert (await ours.post(at(secure.port, host, "https"), {}, BODY)).error == "tls"
    strangers = poster(lookup=leads("127.0.0.1"), timeout_seconds=5.0)
    found = await strangers.post(at(secure.port, "hook.example", "https"), {}, BODY)
    assert (found.error, "CERTIFICATE_VERIFY_FAILED" in found.detail) == ("tls", True)
    assert len(secure.requests) == 1


async def test_what_speaks_no_tls(receiver: Receiver) -> None:
    found = await poster().post(at(receiver.port, scheme="https"), {}, BODY)
    assert found.error in ("tls", "timeout", "closed")
    assert receiver.requests == []


class _Unspecial(UrlPolicy):
    """Treats every address as public: what is left to refuse is this machine's own."""

    def allows(self, address: str, *, is_own: bool = False) -> bool:
        """Return whether the address is another machine's."""
        return not is_own


async def test_post_to_an_address_of_this_machine_is_refused(receiver: Receiver) -> None:
    """A public address of ours is in no list: the operating system says that it is ours."""
    found = await poster(_Unspecial(), lookup=leads("127.0.0.1")).post(
        at(receiver.port, "hook.example"), {}, BODY
    )
    assert (found.error, receiver.requests) == ("no_allowed_address", [])


@pytest.mark.parametrize(("address", "expected"), [("127.0.0.1", True), ("192.0.2.1", False)])
async def test_is_own_asks_the_operating_system(address: str, expected: bool) -> None:
    assert is_own((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80))) is expected
