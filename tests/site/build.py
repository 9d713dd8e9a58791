"""The site, built into `site/`, and read again as a browser without a network would."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.harness import ROOT

SITE = ROOT / "site"
# What a browser fetches by itself, as opposed to a link that somebody follows.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\b(?:src|srcset)=["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preload|preconnect|modulepreload))[^>]*?\bhref=["']?(?P<href>[^"'\s>]+)"""
)
_OF_STYLES = re.compile(r"""(?:@import\s+|url\()["']?(?P<url>[^"')\s]+)""")
_FOREIGN = re.compile(r"(?:https?:)?//")


def build() -> None:
    """Build it; what does not lead anywhere is an error."""
    program = Path(sys.executable).parent / "zensical"
    subprocess.run([program, "build", "--clean", "--strict"], cwd=ROOT, check=True)


def foreign() -> list[str]:
    """Return what its pages and styles would take from other hosts."""
    return [
        f"{path.relative_to(SITE)}: {address}"
        for path in sorted(SITE.rglob("*"))
        if path.suffix in (".html", ".css")
        for address in _fetched(path)
        if _FOREIGN.match(address)
    ]


def _fetched(path: Path) -> Iterator[str]:
    pattern = _FETCHED if path.suffix == ".html" else _OF_STYLES
    for found in pattern.finditer(path.read_text()):
        yield next(address for address in found.groups() if address is not None)
