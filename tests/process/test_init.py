"""`grns init`: the project that it writes passes its own tests, also with servers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from grns.cli import root
from grns.cli.group import CliState
from grns.dev.starter import pool_name, requirement

pytestmark = pytest.mark.timeout(180)


def init(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `grns init` in a directory."""
    command = [sys.executable, "-m", "grns", "init", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_project_passes_its_own_tests(tmp_path: Path) -> None:
    done = init(tmp_path, "my.shop")
    assert done.returncode == 0, done.stderr
    project = tmp_path / "my.shop"
    written = {path.name for path in project.iterdir()}
    assert all(name in done.stdout for name in written)
    assert "cd my.shop" in done.stdout
    assert 'grns.Pool("my-shop")' in (project / "tasks.py").read_text()
    assert stat.S_IMODE((project / ".env").stat().st_mode) == 0o600
    assert not any(
        "__" in (project / name).read_text() for name in ("tasks.py", "pyproject.toml", "compose.yml")
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine")
    refused = init(tmp_path, ".", "--pool", "shop")
    assert (refused.returncode, "has tasks.py already" in refused.stderr) == (4, True)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]
    assert (tmp_path / "tasks.py").read_text() == "mine"


def test_containers_run_commands_that_exist(tmp_path: Path) -> None:
    init(tmp_path)
    services: dict[str, Any] = yaml.safe_load((tmp_path / "compose.yml").read_text())["services"]
    run = {name: service["command"] for name, service in services.items() if "build" in service}
    assert run.keys() == {"migrate", "server", "worker"}
    for words in run.values():
        context = root.make_context("grns", list(words), obj=CliState())
        while isinstance(context.command, click.Group):
            _, command, rest = context.command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert command is not None, words
            context = command.make_context(command.name, rest, parent=context)


@pytest.mark.parametrize(
    ("directory", "name"), [("shop", "shop"), ("my.shop", "my-shop"), ("..-", "app"), ("instance", "app")]
)
def test_a_pool_is_named_after_its_directory(tmp_path: Path, directory: str, name: str) -> None:
    assert pool_name(tmp_path / directory) == name


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "grns[dev]==1.5"),
        ('{"url": "file:///src/grns", "dir_info": {}}', "grns[dev] @ file:///src/grns"),
        (
            '{"url": "https://example.org/grns", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}',
            "grns[dev] @ git+https://example.org/grns@c0ffee",
        ),
    ],
)
def test_a_project_needs_the_grns_that_wrote_it(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, expected: str
) -> None:
    class Installed:
        version = "1.5"

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return origin

    monkeypatch.setattr("grns.dev.starter.metadata.distribution", lambda _: Installed())
    assert requirement("dev") == expected
