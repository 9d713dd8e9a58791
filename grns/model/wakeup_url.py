"""URLs at which agents ask to be nudged: only on hosts that the operator has named."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from grns.errors import InvalidInputError

_PORTS = {"http": 80, "https": 443}
_LONGEST = 2000
_HOST = re.compile(
    r"([A-Za-z0-9_]([A-Za-z0-9_.-]{0,250}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"
)
# Else two readers of one URL may see two hosts in it.
_URL = re.compile(r"[!-~]{1,2000}")


def hosts(text: str) -> frozenset[str]:
    """Return the hosts that a setting names, by commas; `ValueError` where one is none.

    One without a port is that of its scheme, and no other: what else listens there is not meant.
    """
    found = frozenset(host.strip().lower() for host in text.split(",") if host.strip())
    for host in found:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{ascii(host)[:100]} is no host, as agents.internal or 10.0.0.7:8000")
    return found


def check(url: str, allowed: Collection[str]) -> str:
    """Return a URL that may be asked for; `InvalidInputError('bad_nudge_url')` repeats none of it."""
    if not _URL.fullmatch(url) or "\\" in url:
        raise _bad(f"a URL has {_LONGEST} printable ASCII characters at most, and no backslash")
    try:
        parts = urlsplit(url)
        place = _place(parts)
    except ValueError as error:
        raise _bad("it is no URL") from error
    if parts.scheme not in _PORTS or parts.hostname is None:
        raise _bad("a URL begins with http:// or https://, and a host")
    if "@" in parts.netloc:
        raise _bad("a URL has no user and no password in it")
    host, _, port = place.rpartition(":")
    if place not in allowed and not (host in allowed and int(port) == _PORTS[parts.scheme]):
        raise _bad("its host is none that GRNS_WAKEUP_HOSTS names")
    return url


def shown(url: str) -> str:
    """Return of a URL what may be shown: its path may be a secret."""
    return _place(urlsplit(url))


def _place(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port}"


def _bad(why: str) -> InvalidInputError:
    return InvalidInputError("bad_nudge_url", f"nudge_url: {why}")
