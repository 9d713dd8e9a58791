"""Templates: what is data is escaped, always, and nothing in it stays hidden."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup, escape

from grns.web import figure, static
from grns.web import formatting as words
from grns.web.formatting import Exact
from grns.web.preferences import DisplayPreferences

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    """Return what templates are rendered with: one for the process."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "exact": Exact,
        "document": words.document,
        "summary": words.summary,
        "short": words.shortened,
        "lasted": words.lasted,
        "sized": words.sized,
        "grouped": words.grouped,
        "bars": figure.bars,
    }
    found.globals |= {"asset": static.url, "counted": words.counted, "moment": moment, "clocked": clocked}
    return found


def _shown(value: Any) -> Any:
    """Return what is written of a value: of nothing nothing, of a text what nobody would see, too."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, (Exact, Markup, Undefined)):
        return words.visible(value)
    return value


def moment(value: str | datetime | None, look: DisplayPreferences, now: datetime) -> str:
    """Return a time as an element, in the form that is wanted, with the exact time as its title."""
    if value is None:
        return "–"
    then = words.instant(value)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.isoformat(), escape(look.exactly(then)), escape(look.written(then, now))
    )


def clocked(value: str | datetime, look: DisplayPreferences) -> str:
    """Return a time as an element that stays true: for lists that are not brought up to date."""
    then = words.instant(value)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.isoformat(), escape(look.exactly(then)), escape(look.clocked(then))
    )
