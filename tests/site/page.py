"""The pages of `docs/`, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.harness import ROOT

DOCS = ROOT / "docs"


def names() -> list[str]:
    """Return the pages, as they are named within `docs/`."""
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def text(page: str) -> str:
    """Return a page."""
    return (DOCS / page).read_text()


def blocks(page: str, language: str = "sh") -> list[str]:
    """Return the blocks of a page in one language, those in lists, too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text(page), re.S | re.M)
    return [re.sub(rf"^{indent}", "", code, flags=re.M) for indent, code in found]


def commands(page: str, beginning: str = "grns ") -> list[str]:
    """Return the command lines of a page that begin so, without what stands behind them."""
    lines = "\n".join(blocks(page)).splitlines()
    return [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith(beginning)]


def written(page: str, into: Path) -> list[Path]:
    """Write the programs of a page into a directory, by the name in their first line, or by their number."""
    paths = []
    for place, code in enumerate(blocks(page, "python")):
        named = re.match(r"# (\w+\.py)\n", code)
        paths.append(into / (named[1] if named else f"program_{place}.py"))
        paths[-1].write_text(code)
    return paths
