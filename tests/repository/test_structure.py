"""How the code is laid out: names, sizes, and where statements stand."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import grns
from grns.postgres.statements import paths

ROOT = Path(grns.__file__).parent
MOST_LINES = 400
MOST_ENTRIES = 37


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_files_are_short() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_package_has_few_entries() -> None:
    entries = [path.name for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES


def test_statement_names_are_unique() -> None:
    names = Counter(path.stem for path in ROOT.glob("*/sql/*.sql"))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) == len(paths())


def test_contributing_names_files_that_exist() -> None:
    named = re.findall(r"`(grns/[a-z_/.]+)`", (ROOT.parent / "CONTRIBUTING.md").read_text())
    assert len(named) > 15
    assert [name for name in named if not (ROOT.parent / name).exists()] == []
