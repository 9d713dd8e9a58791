"""What the pages say is so: generated ones are up to date, what is named exists, every command is tried."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from grns.model.task import TRANSITIONS, TaskStatus
from grns.nats.users import users
from grns.settings import PREFIX, Settings
from tests.site import reference
from tests.site.page import DOCS, blocks, names, text
from tests.site.test_commands import TYPED
from tests.support.harness import ROOT

# Pages with commands or programs, and who runs them, where test_commands does not.
RUN_BY = {
    "agents.md": "tests/site/test_api.py",
    "api.md": "tests/site/test_api.py",
    "archive.md": "tests/site/test_archive.py",
    "connect.md": "tests/foreign/test_agents.py",
    "dashboard.md": "tests/browser",
    "events.md": "tests/process/test_readme.py",
    "frameworks.md": "tests/site/test_frameworks.py",
    "guarantees.md": "tests/site/test_programs.py",
    "limits.md": "tests/site/test_programs.py",
    "presence.md": "tests/site/test_presence.py",
    "mail.md": "tests/site/test_mail.py",
    "mcp.md": "tests/site/test_mcp.py",
    "routing.md": "tests/site/test_mail.py",
    "unique.md": "tests/site/test_programs.py",
    "secrets.md": "tests/site/test_secrets.py",
    "blobs.md": "tests/site/test_blobs.py",
    "usage.md": "tests/site/test_usage.py",
    "steps.md": "tests/site/test_programs.py",
    "output.md": "tests/site/test_programs.py",
    "progress.md": "tests/site/test_programs.py",
    "people.md": "tests/site/test_programs.py",
    "research.md": "tests/site/test_research.py",
    "pydantic-ai.md": "tests/site/test_research.py",
    "languages.md": "tests/site/test_programs.py",
    "memory.md": "tests/foreign/test_memory.py",
    "migrate-celery.md": "tests/process/test_pytest_plugin.py",
    "metrics.md": "tests/site/test_services.py",
    "pool.md": "tests/site/test_programs.py",
    "production.md": "tests/site/test_services.py",
    "requests.md": "tests/foreign/test_nats_js.py",
    "security.md": "tests/process/test_nats_users.py",
    "start.md": "tests/site/test_start.py",
    "testing.md": "tests/process/test_pytest_plugin.py",
    "tutorial.md": "tests/site/test_tutorial.py",
    "schedules.md": "tests/site/test_programs.py",
    "submit.md": "tests/site/test_programs.py",
    "traces.md": "tests/site/test_services.py",
    "workflows.md": "tests/site/test_programs.py",
}
# Settings of Django.
_DJANGO = {"GRNS_POOL", "GRNS_OPTIONS", "GRNS_EAGER", "GRNS_MIGRATE"}
_VARIABLES = _DJANGO | {"GRNS_DEBUG", "GRNS_FAILPOINTS", "GRNS_POSTGRES_PASSWORD", "GRNS_CHROMIUM"} | {
    "GRNS_API_KEY", "GRNS_API_URL", "GRNS_MCP_URL", "GRNS_TOKEN", "GRNS_PAYLOAD", "GRNS_CHECKPOINT",
    "GRNS_TASK_ID", "GRNS_TASK_TYPE", "GRNS_ATTEMPT", "GRNS_AGENT_LIFE",
    "GRNS_EMBED_API_KEY", "GRNS_EMBED_DIR", "GRNS_EMBED_MODEL", "GRNS_EMBED_URL",
}  # fmt: skip
_STREAMS = {"GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT"}
_PASSWORDS = {user.variable for user in users(Settings())}


@pytest.mark.parametrize("path", list(reference.PAGES), ids=lambda path: path.name)
def test_reference_is_up_to_date(path: Path) -> None:
    assert path.read_text() == reference.PAGES[path](), "`make docs` writes it anew"


def test_every_page_with_commands_is_run() -> None:
    run = {*TYPED, *RUN_BY, "reference/python.md"}  # its examples are fragments
    shown = {page for page in names() if blocks(page) or blocks(page, "python") or blocks(page, "sql")}
    assert shown - run == set()
    for page, who in RUN_BY.items():
        assert (ROOT / who).exists(), (page, who)


def test_every_page_is_in_the_menu() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(_pages(project["nav"])) == names()


def _pages(entry: object) -> list[str]:
    """Return the pages of a menu."""
    if isinstance(entry, str):
        return [entry]
    inner = (
        list(entry.values()) if isinstance(entry, dict) else list(entry) if isinstance(entry, list) else []
    )
    return [page for one in inner for page in _pages(one)]


def test_transitions_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (?:`(\w+)`)? ?\| (\w+) \| `(\w+)` \| `([\w.]+)` \|$", text("states.md"), re.M)
    known = [(one.source or "", one.by, one.target, one.event) for one in TRANSITIONS]
    assert sorted(rows) == sorted(set(known))
    states = re.findall(r"^\| `(\w+)` \| \w+", text("states.md").split("## Transitions")[0], re.M)
    assert set(states) == {str(status) for status in TaskStatus}


@pytest.mark.parametrize("page", names())
def test_settings_that_are_named_exist(page: str) -> None:
    for name in re.findall(r"\bGRNS_[A-Z_]+[A-Z]\b", text(page)):
        setting = (
            name.removesuffix("_FILE")
            if name.removeprefix(PREFIX).lower() not in Settings.model_fields
            else name
        )
        assert (
            name in _VARIABLES | _STREAMS | _PASSWORDS
            or setting.removeprefix(PREFIX).lower() in Settings.model_fields
        ), name


@pytest.mark.parametrize("page", names())
def test_pictures_are_there(page: str) -> None:
    for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text(page)):
        assert ((DOCS / page).parent / path).resolve().is_file(), path
