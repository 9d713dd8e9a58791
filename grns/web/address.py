"""Addresses that somebody has said: only those of pages of ours are followed."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# No address of another site looks like that, however a browser reads it.
_OURS = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")


def ours(said: str | None) -> str | None:
    """Return an address below our own host, None where it is not certainly one."""
    return said if said is not None and _OURS.fullmatch(said) else None


def before(referer: str | None, host: str) -> str | None:
    """Return the page of ours that has led here, None where it was none."""
    try:
        said = urlsplit(referer or "")
    except ValueError:
        return None
    if not said.netloc or said.netloc != host:
        return None
    return ours(said.path + (f"?{said.query}" if said.query else ""))
