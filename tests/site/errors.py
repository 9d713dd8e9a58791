"""The page of all errors and their codes, from the code that raises them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grns
from grns import errors
from grns.model import problem
from tests.site.text import GENERATED, code, table

_INTRODUCTION = """
Python raises an exception, the HTTP API answers with a problem ([RFC
9457](https://www.rfc-editor.org/rfc/rfc9457)), the command line exits with a code and prints `<what
failed>: <why>`, and a reply over NATS has the same `code`. Exceptions that have no code of their own
have the one of their class.

"""
_CODED = ("InvalidInputError", "RejectedError", "BrokerRefusedError", "Unfit", "InvalidOption")
_CODE = re.compile(r"[a-z][a-z_]+")


def page() -> str:
    """Return the page."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    classes = [_class(kind) for kind in kinds if issubclass(kind, errors.GrnsError)]
    codes = [(code(name), " / ".join(sorted(texts)[:2])) for name, texts in sorted(_codes().items())]
    return (
        f"# Errors\n\n{GENERATED}{_INTRODUCTION}## Exceptions\n\n"
        + table(("exception", "is a", "HTTP", "code", "exit code", "means"), classes)
        + "\n## Codes\n\nThe messages are examples; `…` stands for a value.\n\n"
        + table(("code", "says"), codes)
    )


def _class(kind: type[errors.GrnsError]) -> tuple[str, str, str, str, str, str]:
    base = kind.__mro__[1]
    means = (kind.__doc__ or "").partition("\n")[0]
    status, name = next(
        ((str(int(status)), name) for known, status, name in problem.KINDS if issubclass(kind, known)),
        ("400", "") if issubclass(kind, errors.InvalidInputError) else ("", ""),
    )
    public = kind.__name__ in grns.__all__
    return (
        code(f"grns.{kind.__name__}" if public else f"grns.errors.{kind.__name__}"),
        code(base.__name__) if base is not Exception else "",
        status,
        code(name),
        str(kind.exit_code),
        means,
    )


def _codes() -> dict[str, set[str]]:
    """Return the messages of each code that is written in the code."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(Path(grns.__file__).parent.rglob("*.py")):
        for name, text in _raised(ast.parse(path.read_text())):
            found[name].add(text)
    return found


def _raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CODED):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and _CODE.fullmatch(first.value):
            yield first.value, _text(node.args[1]) if len(node.args) > 1 else ""


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    return "…"
