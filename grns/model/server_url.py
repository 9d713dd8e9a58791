"""URLs of servers: validation, and the parts that may be shown."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

# One host of a URL. A password with a `/`, `?` or `#` ends the hosts early, in its middle.
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:/@\[\]]*)(?::(\d{1,5}))?")


def check(url: str, schemes: tuple[str, ...]) -> None:
    """Refuse a URL that is invalid or has another scheme, without repeating it: it may hold a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme.partition("+")[0] in schemes and "+" in parts.scheme:
        raise PydanticCustomError(
            "url", f"the name of a driver in it: write {schemes[0]}://…, without the + and what follows it"
        )
    if parts.scheme not in schemes:
        raise PydanticCustomError("url", f"no URL that begins with {schemes[0]}://")
    for host in parts.netloc.rpartition("@")[2].split(","):
        found = _HOST.fullmatch(host)
        if found is None or not 0 < int(found[2] or 1) <= 65535:
            raise PydanticCustomError(
                "url", "no host and port in it; in a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25"
            )


def place(url: str) -> str:
    """Return hosts, ports and path, without user, password and token."""
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:  # perhaps of a password
        return "***"
    return parts.netloc.rpartition("@")[2] + parts.path


def with_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")


def distinct(urls: Iterable[str]) -> list[str]:
    """Return the URLs of NATS servers, each server once: nats-py counts failures by name."""
    by_name: dict[str, str] = {}
    for url in urls:
        by_name.setdefault(_name(url), url)
    return list(by_name.values())


def _name(url: str) -> str:
    """Return the name of a server in nats-py: with its user and its default port."""
    parts = urlsplit(url)
    if parts.port is None and parts.scheme not in ("ws", "wss"):
        return f"{parts.netloc}:4222"
    return parts.netloc


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
