"""The words of pages, help, settings, metrics and messages: those of the glossary."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from grns.cli import root
from grns.schemas import export
from grns.settings import Settings
from grns.telemetry import metrics
from grns.telemetry.metric import Metric
from tests.support.harness import ROOT

# A hit is a reason to rewrite the sentence, not to swap the word.
EXCLUDED = re.compile(
    r"\b(somebody|nobody|everybody|anybody|whoever|mend|mends|mended|goes on|by itself|front door|graveyard"
    r"|clerk|keeper|lane|lanes|ledger|request desk|stranger|strangers|farewell)\b",
    re.IGNORECASE,
)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "NOTES.md"
)


def hits(text: str) -> list[str]:
    """Return the excluded words of a text, with what is around them."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    return [prose[max(0, m.start() - 30) : m.end() + 30] for m in EXCLUDED.finditer(prose)]


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_excluded_word(page: str) -> None:
    assert hits((ROOT / page).read_text()) == []


def described() -> Iterator[tuple[str, str]]:
    """Yield what the program says of itself, with where it stands."""
    for name, command in root.commands.items():
        yield f"command {name}", command.help or ""
    for name, field in Settings.model_fields.items():
        yield f"setting {name}", field.description or ""
    for value in vars(metrics).values():
        if isinstance(value, Metric):
            yield f"metric {value.name}", value.help
    for name, text in export.documents().items():
        for words in re.findall(r'"(?:description|summary)": "((?:[^"\\\\]|\\\\.)*)"', text):
            yield f"{name}: {words[:60]}", json.loads(f'"{words}"')


def test_descriptions_have_no_excluded_word() -> None:
    assert {where: hits(text) for where, text in described() if hits(text)} == {}


# Of names, docstrings and comments: the glossary has a term for what these stood for.
_PRIVATE = re.compile(
    r"(?<![a-z])(somebody|nobody|everybody|anybody|whoever|graveyard|clerk|keeper|lane|front door"
    r"|waiting room|ledger|parcel|corpse|bury|buried|farewell)s?(?![a-z])"
)
# The system's user, and a policy of the initial migration.
_NAMES = {"grns/dev/servers/identity.py", "grns/postgres/migrations/sql/0001_initial/11_tenants.sql"}


def test_code_has_no_private_word() -> None:
    files = [*(ROOT / "grns").rglob("*.py"), *(ROOT / "grns").rglob("*.sql")]
    found = {
        f"{path.relative_to(ROOT)}:{number}": line.strip()
        for path in files
        if str(path.relative_to(ROOT)) not in _NAMES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _PRIVATE.search(line.lower())
    }
    assert found == {}
