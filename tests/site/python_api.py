"""The page of the Python API, from the docstrings of the public names."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import grns
from grns.client.limits import TaskLimits
from grns.client.schedules import Schedules
from grns.limits.model import LimitKey, TaskLimit
from grns.model.blob import BlobState
from grns.model.budget import Budget
from grns.model.usage import UsageItem, UsageSum
from grns.schedules.model import Schedule, ScheduleRun
from grns.tasks.blobs import Blobs
from grns.tasks.budgets import Budgets
from grns.tasks.follow_ups import FollowUps, FollowUpState
from grns.tasks.usage import UsageRecords
from tests.site.text import GENERATED

_INTRODUCTION = """
Everything public is in the package `grns`: `import grns`. Names that begin with `_`, and modules below
`grns`, may change at any time. [Errors](errors.md) have a page of their own.

"""


# What no name of the package leads to: attributes of a client, and what their methods return.
_BESIDE = {
    "Client.schedules": Schedules,
    "Client.limits": TaskLimits,
    "Schedule": Schedule,
    "ScheduleRun": ScheduleRun,
    "TaskLimit": TaskLimit,
    "LimitKey": LimitKey,
    "Client.blobs": Blobs,
    "BlobState": BlobState,
    "Client.usage": UsageRecords,
    "Client.budgets": Budgets,
    "Client.follow_ups": FollowUps,
    "FollowUpState": FollowUpState,
    "Budget": Budget,
    "UsageItem": UsageItem,
    "UsageSum": UsageSum,
}


def page() -> str:
    """Return the page."""
    things = {name: getattr(grns, name) for name in grns.__all__} | _BESIDE
    names = [name for name, thing in things.items() if not _is_error(thing)]
    parts = [part for name in sorted(names) for part in _entry(name, things[name])]
    return f"# Python API\n\n{GENERATED}{_INTRODUCTION}" + "\n".join(parts)


def _module(name: str, module: ModuleType) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{_prose(module)}\n"
    for member in sorted(module.__all__):
        thing = getattr(module, member)
        if name == "events":
            yield f"- `{name}.{member}`: {_prose(thing).splitlines()[0]}"
        else:
            yield from _entry(f"{name}.{member}", thing)
    yield ""


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, grns.GrnsError)


def _entry(name: str, thing: Any) -> Iterator[str]:
    if inspect.ismodule(thing):
        yield from _module(name, thing)
        return
    yield f"## `{name}`\n"
    yield from _described(name, thing)
    if not isinstance(thing, type):
        return
    for member, value in [*vars(thing).items(), *_inherited(thing).items()]:
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"### `{name}.{member}`\n"
            yield f"{_prose(value.fget)}\n"
        elif inspect.isfunction(value):
            yield f"### `{name}.{member}()`\n"
            yield from _described(member, value)


def _inherited(thing: type) -> dict[str, Any]:
    """Return what is in the parts of a class, and in theirs: no other page has it."""
    members: dict[str, Any] = {}
    for base in thing.__bases__:
        if base.__name__.endswith(("Methods", "Builder")):
            for part in (vars(base), _inherited(base)):
                members |= {name: value for name, value in part.items() if name not in members}
    return members


def _described(name: str, thing: Any) -> Iterator[str]:
    shown = _signature(name, thing)
    if shown:
        yield f"```text\n{shown}\n```\n"
    yield f"{_prose(thing)}\n"


_SECTIONS = ("Args:", "Returns:", "Raises:", "Example:")


def _prose(thing: Any) -> str:
    """Return the docstring with its sections as lists, and its examples as code."""
    parts: list[str] = []
    for title, lines in _sections((inspect.getdoc(thing) or "").splitlines()):
        text = "\n".join(lines).strip("\n")
        if title == "Example:":
            parts.append(f"```python\n{textwrap.dedent(text)}\n```")
        elif title in ("Args:", "Raises:"):
            rows = re.sub(r"\n {5,}", " ", text).splitlines()
            named = (row.strip().partition(":") for row in rows)
            parts.append(f"**{title[:-1]}**\n\n" + "\n".join(f"- `{name}`:{rest}" for name, _, rest in named))
        elif title:
            parts.append(f"**{title[:-1]}** " + " ".join(line.strip() for line in lines).strip())
        else:
            parts.append(text)
    return "\n\n".join(parts).strip()


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each section (empty for plain text) with its lines."""
    title, found = "", list[str]()
    for line in lines:
        if line in _SECTIONS or (title and line and not line.startswith(" ")):
            yield title, found
            title, found = (line, []) if line in _SECTIONS else ("", [line])
        else:
            found.append(line)
    yield title, found


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [
        re.sub(r": '([^']*)'", r": \1", re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>", "…", str(one)))
        for one in signature.parameters.values()
        if one.name != "self" and one.annotation != "Never"  # which only gives a better error
    ]
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {returned}"
    prefix = "async " if inspect.iscoroutinefunction(inspect.unwrap(thing)) else ""
    keyword = [one for one in signature.parameters.values() if one.kind is one.KEYWORD_ONLY]
    if keyword:
        names = [one for one in signature.parameters if one != "self"]
        place = names.index(keyword[0].name)
        parameters.insert(place, "*")
    line = f"{prefix}{name}({', '.join(parameters)}){arrow}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {one},\n" for one in parameters)
    return f"{prefix}{name}(\n{inner}){arrow}"
