"""The HTTP API, asked by an agent: bodies and answers as JSON, problems as errors of grns."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from grns.errors import (
    ConflictError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
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
    "too_many_requests": RateLimitedError,
}
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
            headers["Authorization"] = f"Bearer {key}"
        if workspace is not None:
            headers["Grns-Workspace"] = workspace
        try:
            base = httpx2.URL(url.rstrip("/").removesuffix(_PREFIX) + _PREFIX)
        except (httpx2.InvalidURL, TypeError) as error:
            raise InvalidInputError("bad_url", "the API's URL is none") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise InvalidInputError("bad_url", "the API's URL begins with http:// or https://, and a host")
        self._client = httpx2.AsyncClient(base_url=base, headers=headers, timeout=_SECONDS)
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

    async def post(self, path: str, body: Mapping[str, Any], *, seconds: float = _SECONDS) -> Any:
        """Send a body, and return the answer's, None where it has none; wait for it so long at most.

        Raises the error that the problem stands for: `UnavailableError` where nothing was done,
        `OutcomeUnknownError` if there was no answer.
        """
        return await self._send("POST", path, body, seconds)

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Put a body, and return the answer's."""
        return await self._send("PUT", path, body, _SECONDS)

    def post_blocking(self, path: str, body: Mapping[str, Any], *, seconds: float) -> Any:
        """Do the same in a thread."""
        with self._making:
            blocking = self._blocking = self._blocking or self._make_blocking()
        try:
            return _answer(blocking.post(path, json=body, timeout=seconds))
        except httpx2.HTTPError as error:
            raise _translated(error) from error

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> Any:
        timeout = httpx2.Timeout(_SECONDS, read=seconds, pool=None)
        try:
            answer = await self._client.request(method, path, json=body, timeout=timeout)
        except httpx2.HTTPError as error:
            raise _translated(error) from error
        return _answer(answer)


def own_name() -> str:
    """Return a name that no other worker has: the host's, and a random suffix."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:48]
    return f"{host}-{secrets.token_hex(4)}"


def _translated(error: httpx2.HTTPError) -> GrnsError:
    kind = UnavailableError if isinstance(error, _NOT_SENT) else OutcomeUnknownError
    return kind(f"the API does not answer: {type(error).__name__} {error}".strip()[:300])


def _answer(answer: httpx2.Response) -> Any:
    if answer.status_code == 204:
        return None
    try:
        said = answer.json()
    except ValueError as error:
        raise OutcomeUnknownError(f"the API's answer is no JSON (HTTP {answer.status_code})") from error
    if answer.is_success:
        return said
    raise _error(answer.status_code, said if isinstance(said, dict) else {})


def _error(status: int, problem: Mapping[str, Any]) -> GrnsError:
    code, detail = str(problem.get("code", f"http_{status}")), str(problem.get("detail", f"HTTP {status}"))
    kind = _ERRORS.get(code) or _BY_STATUS.get(status)
    if kind is not None:
        return kind(detail)
    if status == 503:
        return UnavailableError(detail)
    if status >= 500:
        return OutcomeUnknownError(detail)
    return InvalidInputError(code, detail)
