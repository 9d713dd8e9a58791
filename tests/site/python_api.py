"""The page of the Python API, from the docstrings of the public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import grns
from tests.site.text import GENERATED

_INTRODUCTION = """
Everything public is in the package `grns`: `import grns`. Names that begin with `_`, and modules below
`grns`, may change at any time. [Errors](errors.md) have a page of their own.

"""


def page() -> str:
    """Return the page."""
    names = [name for name in grns.__all__ if not _is_error(getattr(grns, name))]
    parts = [part for name in sorted(names) for part in _entry(name, getattr(grns, name))]
    return f"# Python API\n\n{GENERATED}{_INTRODUCTION}" + "\n".join(parts)


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, grns.GrnsError)


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield from _described(name, thing)
    if not isinstance(thing, type):
        return
    for member, value in vars(thing).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"### `{name}.{member}`\n"
            yield f"{_prose(value.fget)}\n"
        elif inspect.isfunction(value):
            yield f"### `{name}.{member}()`\n"
            yield from _described(member, value)


def _described(name: str, thing: Any) -> Iterator[str]:
    shown = _signature(name, thing)
    if shown:
        yield f"```text\n{shown}\n```\n"
    yield f"{_prose(thing)}\n"


def _prose(thing: Any) -> str:
    """Return the docstring: a section such as `Args:` becomes a list."""
    lines: list[str] = []
    in_section = False
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line.rstrip() in ("Args:", "Returns:", "Raises:", "Example:", "Examples:", "Source:"):
            in_section = True
            lines += ["", f"**{line.strip(': ')}**", ""]
        elif in_section and line.startswith("    ") and not line.startswith("     "):
            lines.append(f"- {line.strip()}")
        elif in_section and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join(lines).strip()


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [
        re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>", "…", str(one))
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {returned}"
    prefix = "async " if inspect.iscoroutinefunction(thing) else ""
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
