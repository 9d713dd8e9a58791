"""One small request to an agent's URL: no redirect is followed, no proxy asked, no answer read."""

from __future__ import annotations

import asyncio

import httpx2

from grns.errors import UnavailableError
from grns.model import wakeup_url as nudge_url

_SECONDS = 5.0
_HEADERS = {"Content-Type": "application/json", "User-Agent": "grns"}


async def post(url: str, body: bytes) -> int:
    """Send a body, and return the status of the answer; `UnavailableError` where there is none."""
    try:
        if _place(httpx2.URL(url)) != nudge_url.shown(url):
            raise UnavailableError("its URL names no host that is clear")  # who was checked is who is asked
        async with (
            asyncio.timeout(_SECONDS),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=_HEADERS) as answer,
        ):
            return answer.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # a TimeoutError is an OSError
        raise UnavailableError(f"it does not answer: {type(error).__name__}") from error


def _place(url: httpx2.URL) -> str:
    """Return host and port, as httpx2 understands them."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"
