"""Files that pages need: read once, never written, known by their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

ROOT = Path(__file__).parent / "static"
PREFIX = "/static/"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_GOOD = "public, max-age=31536000, immutable"
_ASK_AGAIN = "public, no-cache"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    content: bytes
    kind: str
    digest: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return all files by their names; of others nobody gets to know."""
    found = {}
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in _KINDS:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[path.relative_to(ROOT).as_posix()] = Asset(content, _KINDS[path.suffix], digest)
    return found


def url(name: str) -> str:
    """Return where a file is; it is another place when the file is another one."""
    return f"{PREFIX}{name}?v={assets()[name].digest}"


async def serve(request: Request) -> Response:
    """Send a file."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return Response("there is no such file", status_code=404, media_type="text/plain")
    is_named = request.query_params.get("v") == asset.digest
    headers = {"ETag": f'"{asset.digest}"', "Cache-Control": _FOR_GOOD if is_named else _ASK_AGAIN}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.kind, headers=headers)
