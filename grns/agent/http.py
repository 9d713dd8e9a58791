"""The HTTP API, asked by an agent: bodies and answers as JSON, problems as errors of grns."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from grns.errors import (
    ConflictError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    OverBudgetError,
    PermissionDeniedError,
    RateLimitedError,
    SettingsError,
    UnauthenticatedError,
    UnavailableError,
)

try:
    import httpx2
except ModuleNotFoundError as error:
    _missing = SettingsError("AgentClient needs httpx2, which is not installed")
    _missing.add_note("pip install 'grns[http]'")
    raise _missing from error

_PREFIX = "/api/v1"
_SECONDS = 10.0
# What cannot have reached the server.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_ERRORS: dict[str, type[GrnsError]] = {
    "stale_token": LeaseLostError,
    "outcome_unknown": OutcomeUnknownError,
    "over_budget": OverBudgetError,
    "too_many_requests": RateLimitedError,
}
# What a request is refused with, whatever stands between grns and its client. The rest of what is not of grns
# says nothing about it.
_REFUSED = frozenset({400, 413, 414, 415, 431})
_HEADER = re.compile(r"[!-~]+")
_BY_STATUS: dict[int, type[GrnsError]] = {
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}


class AgentHttp:
    """One agent's connections to an API: some for its loop, and one client for the threads that renew."""

    def __init__(self, url: str, *, key: str | None, workspace: str | None) -> None:
        headers = {"User-Agent": "grns"}
        if key is not None:
            headers["Authorization"] = f"Bearer {_header(key, 'key')}"
        if workspace is not None:
            headers["Grns-Workspace"] = _header(workspace, "workspace")
        try:
            base = httpx2.URL(url.rstrip("/").removesuffix(_PREFIX) + _PREFIX)
        except (httpx2.InvalidURL, TypeError) as error:
            raise InvalidInputError("bad_url", "the API's URL is none") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise InvalidInputError("bad_url", "the API's URL begins with http:// or https://, and a host")
        # Each loop that claims holds a connection while it waits.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        self._client = httpx2.AsyncClient(base_url=base, headers=headers, timeout=_SECONDS, limits=limits)
        self._make_blocking = partial(httpx2.Client, base_url=base, headers=headers, timeout=_SECONDS)
        self._making = threading.Lock()
        self._blocking: httpx2.Client | None = None

    async def close(self) -> None:
        """Close the loop's connections."""
        await self._client.aclose()

    def close_blocking(self) -> None:
        """Close the connections of the threads."""
        if self._blocking is not None:
            self._blocking.close()

    async def get(self, path: str) -> Any:
        """Return what the API says."""
        return await self._send("GET", path, None, _SECONDS)

    async def post(
        self, path: str, body: Mapping[str, Any], *, seconds: float = _SECONDS, wants: Sequence[str] = ()
    ) -> Any:
        """Send a body, and return the answer's, None where it has none; wait for it so long at most.

        Raises the error that the problem stands for: `UnavailableError` where nothing was done,
        `OutcomeUnknownError` if there was no answer, or one without the fields that it `wants`.
        """
        said = await self._send("POST", path, body, seconds)
        if said is not None and not (isinstance(said, dict) and all(name in said for name in wants)):
            raise OutcomeUnknownError("the API's answer is not as grns answers")
        return said

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Put a body, and return the answer's."""
        return await self._send("PUT", path, body, _SECONDS)

    async def post_bytes(self, path: str, content: bytes, media_type: str, *, seconds: float) -> Any:
        """Send bytes, and return the answer, which is JSON."""
        try:
            answer = await self._client.post(
                path, content=content, headers={"Content-Type": media_type}, timeout=_timeout(seconds)
            )
        except httpx2.HTTPError as error:
            raise _translated(error) from error
        return _answer(answer)

    async def get_bytes(self, path: str, *, seconds: float) -> bytes:
        """Return bytes."""
        try:
            answer = await self._client.get(path, timeout=_timeout(seconds))
        except httpx2.HTTPError as error:
            raise _translated(error) from error
        if not answer.is_success:
            _answer(answer)  # raises
        content: bytes = answer.content
        return content

    def post_blocking(self, path: str, body: Mapping[str, Any], *, seconds: float) -> Any:
        """Do the same in a thread."""
        with self._making:
            blocking = self._blocking = self._blocking or self._make_blocking()
        try:
            return _answer(blocking.post(path, json=body, timeout=seconds))
        except httpx2.HTTPError as error:
            raise _translated(error) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise _unfit(error) from error

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> Any:
        try:
            answer = await self._client.request(method, path, json=body, timeout=_timeout(seconds))
        except httpx2.HTTPError as error:
            raise _translated(error) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise _unfit(error) from error
        return _answer(answer)


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(_SECONDS, read=seconds, pool=None)


def own_name() -> str:
    """Return a name that no other worker has: the host's, and a random suffix."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:48]
    return f"{host}-{secrets.token_hex(4)}"


def _header(value: str, what: str) -> str:
    """Return a value for a header: a key that was read from a file may have the end of a line."""
    found = value.strip()
    if not _HEADER.fullmatch(found):
        raise InvalidInputError(f"bad_{what}", f"the {what} is empty, or has characters that no {what} has")
    return found


def _translated(error: httpx2.HTTPError) -> GrnsError:
    if isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)):
        return InvalidInputError("bad_request", f"the request cannot be sent: {type(error).__name__}")
    kind = UnavailableError if isinstance(error, _NOT_SENT) else OutcomeUnknownError
    # What was sent may stand in the text of a protocol's error, and with it the key.
    why = "" if isinstance(error, httpx2.ProtocolError) else f" {error}"
    return kind(f"the API does not answer: {type(error).__name__}{why}".strip()[:300])


def _unfit(error: BaseException) -> InvalidInputError:
    return InvalidInputError("bad_json", f"the body is no JSON: {error}"[:300])


def _answer(answer: httpx2.Response) -> Any:
    if answer.status_code == 204:
        return None
    if 300 <= answer.status_code < 400:
        raise InvalidInputError(
            "bad_url", f"there is no API at this URL: it redirects ({answer.status_code})"
        )
    try:
        said = answer.json()
    except ValueError as error:
        if answer.status_code in _REFUSED:
            raise _error(answer.status_code, {}) from error
        raise OutcomeUnknownError(f"the API's answer is no JSON (HTTP {answer.status_code})") from error
    if answer.is_success:
        return said
    raise _error(answer.status_code, said if isinstance(said, dict) else {})


def _error(status: int, problem: Mapping[str, Any]) -> GrnsError:
    code, detail = str(problem.get("code", f"http_{status}")), str(problem.get("detail", f"HTTP {status}"))
    if "code" not in problem and status not in _REFUSED:  # of a proxy: grns has perhaps never seen it
        return OutcomeUnknownError(f"what answers is not grns (HTTP {status})")
    kind = _ERRORS.get(code) or _BY_STATUS.get(status)
    if kind is not None:
        return kind(detail)
    if status == 503:
        return UnavailableError(detail)
    if status >= 500:
        return OutcomeUnknownError(detail)
    return InvalidInputError(code, detail)
