"""Pages with a test module: it passes, fixtures with servers included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.page import written

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(("page", "module", "tests"), [
    ("testing.md", "test_bazaar.py", 4), ("migrate-celery.md", "test_shop.py", 5),
])  # fmt: skip
def test_the_test_module_of_the_page_passes(tmp_path: Path, page: str, module: str, tests: int) -> None:
    written(page, tmp_path)
    pytest_options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", module]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *pytest_options],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{tests} passed" in run.stdout, run.stdout + run.stderr
