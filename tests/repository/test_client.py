"""The distribution `grns-client`: the files that workers over HTTP need, and nothing else."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.harness import ROOT

ENTRIES = ("grns.agent.client", "grns.agent.shell", "grns.agent.listener")
# They are used where they are installed.
OPTIONAL = {"orjson"}


def file_of(module: str) -> Path | None:
    """Return the file of a module of grns."""
    path = ROOT / Path(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.exists() else None


def imported(nodes: list[ast.stmt]) -> Iterator[str]:
    """Yield what a module imports when it is imported itself."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                full = f"{node.module}.{one.name}"
                yield full if file_of(full) else str(node.module)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from imported([*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.ClassDef):
            yield from imported(node.body)


def needed() -> tuple[set[Path], set[str]]:
    """Return the files that the entries need, and the other packages."""
    files: set[Path] = set()
    others: set[str] = set()
    left = list(ENTRIES)
    while left:
        module = left.pop()
        file = file_of(module)
        if file is None:
            top = module.partition(".")[0]
            others |= {top} - set(sys.stdlib_module_names)
        elif file not in files:
            files.add(file)
            parent = module.rpartition(".")[0]
            left += [parent] if parent else []
            left += imported(ast.parse(file.read_text()).body)
    return files, others - {"grns"}


def test_the_wheel_has_the_files_that_are_needed() -> None:
    project = tomllib.loads((ROOT / "client/pyproject.toml").read_text())
    listed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files, _ = needed()
    wanted = {str(file.relative_to(ROOT)) for file in files} | {"grns/py.typed"}
    assert {f"../{name}": name for name in wanted} == listed


def test_it_needs_one_package() -> None:
    assert needed()[1] - OPTIONAL == {"httpx2"}
    both = [
        tomllib.loads((ROOT / name).read_text())["project"]
        for name in ("pyproject.toml", "client/pyproject.toml")
    ]
    assert both[1]["dependencies"] == both[0]["optional-dependencies"]["http"]
    assert both[0]["version"] == both[1]["version"]
    assert both[0]["scripts"]["grns-agent"] == both[1]["scripts"]["grns-agent"]
