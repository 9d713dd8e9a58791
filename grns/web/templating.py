"""Templates and static files. Values in templates are always escaped, and hidden characters written out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from grns.model import text
from grns.web import charts, formatting
from grns.web.formatting import DisplayPreferences, Exact

STATIC = Path(__file__).parent / "static"
STATIC_PATH = "/static"
_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIXES = frozenset({".css", ".js", ".svg"})
_IMMUTABLE = "public, max-age=31536000, immutable"
_REVALIDATE = "public, no-cache"


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a rendered template."""
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    """Return the template environment of the process."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "exact": Exact,
        "document": formatting.document,
        "summary": formatting.summary,
        "short": text.shortened,
        "lasted": text.lasted,
        "sized": text.sized,
        "grouped": formatting.grouped,
        "bars": charts.bars,
    }
    made.globals |= {
        "asset": asset_url,
        "counted": formatting.counted,
        "moment": _moment,
        "short_moment": _short_moment,
    }
    return made


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, (Exact, Markup, Undefined)):
        return formatting.visible(value)
    return value


def _moment(value: str | datetime | None, preferences: DisplayPreferences, now: datetime) -> str:
    """Return a time as an element in the preferred form, with the exact time as its title."""
    if value is None:
        return "–"
    at = formatting.instant(value)
    return _time(at, preferences, preferences.format(at, now))


def _short_moment(value: str | datetime, preferences: DisplayPreferences) -> str:
    """Return a time as an element that stays true on a page that is not refreshed."""
    at = formatting.instant(value)
    return _time(at, preferences, preferences.short(at))


def _time(at: datetime, preferences: DisplayPreferences, shown: str) -> str:
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), escape(preferences.exact(at)), escape(shown)
    )


@cache
def asset_version(name: str) -> str:
    """Return the beginning of a static file's digest, which changes with its content."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:16]


def asset_url(name: str) -> str:
    """Return the URL of a static file, with its version."""
    return f"{STATIC_PATH}/{name}?v={asset_version(name)}"


class Assets(StaticFiles):
    """Static files: scripts, styles and images. Browsers keep a URL with the current version for a year."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, with how long it may be cached."""
        try:
            if PurePath(path).suffix not in _SUFFIXES:
                raise HTTPException(404)
            response = await super().get_response(path, scope)
        except HTTPException as error:
            return PlainTextResponse("no such file", error.status_code)
        version = parse_qs(scope["query_string"].decode("latin-1")).get("v", [""])[0]
        is_current = version == asset_version(path)
        response.headers["Cache-Control"] = _IMMUTABLE if is_current else _REVALIDATE
        return response
