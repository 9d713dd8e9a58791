"""What npm installs for programs of other languages: once a run, into a temporary directory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
INSTALL_SECONDS = 240


@pytest.fixture(scope="session")
def programs(directory: Path) -> Path:
    """Where the programs stand beside the packages that they need."""
    place = directory / "foreign"
    shutil.copytree(HERE, place, ignore=shutil.ignore_patterns("*.py", "__pycache__", "node_modules"))
    done = subprocess.run(
        INSTALL, cwd=place, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return place
