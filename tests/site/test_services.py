"""What pages have somebody run for ever: each is started as it stands there, and is well."""

from __future__ import annotations

import asyncio
import re
import shlex
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.dev.servers.port import free_port
from grns.postgres.database import Database
from tests.site.page import blocks, written
from tests.site.test_commands import typed
from tests.support.harness import START_SECONDS, Fleet, eventually

pytestmark = pytest.mark.timeout(180)

_SHOP = "start.md"
_SERVERS = ("GRNS_DATABASE_URL", "GRNS_NATS_URL")  # those of the test
_VARIABLE = re.compile(r"GRNS_\w+=")
# What ends by itself, and has a test of its own beside the one of commands.
_ENDING = ("admin", "doctor")


@pytest.mark.parametrize("page", ["production.md", "metrics.md", "traces.md"])
async def test_services(
    fleet: Fleet,
    database: Database,
    broker: LocalNats,
    tmp_path: Path,
    page: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", database.url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    written(_SHOP, tmp_path)
    assert (await asyncio.to_thread(typed, "admin", "key", "create", "ops", "--scope", "read"))[0] == 0
    terminal = Terminal(fleet)
    for line in "\n".join(blocks(page)).splitlines():
        await terminal.type(shlex.split(line, comments=True))
    assert fleet.processes


@dataclass
class Terminal:
    """Where services are started: what was exported before, and our own port for each of the page's."""

    fleet: Fleet
    environment: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)

    async def type(self, words: list[str]) -> None:
        """Do what a line says."""
        for place, word in enumerate(words):
            if word == "--metrics-port" or word.startswith("GRNS_METRICS_PORT="):
                self.ports[_port(words, place)] = str(free_port())
        words = [self._ours(word) for word in words]
        said = dict(word.split("=", 1) for word in words if _VARIABLE.match(word))
        words = [word for word in words if not _VARIABLE.match(word)]
        if words[:1] == ["curl"]:
            await _answers(words[-1])
        elif words[:1] == ["export"]:
            self.environment |= {name: value for name, value in said.items() if name not in _SERVERS}
        elif words[:1] == ["grns"] and words[1] not in _ENDING:
            await self._start(words[1:], said)

    async def _start(self, words: list[str], said: dict[str, str]) -> None:
        process = self.fleet.start(*words, **self.environment, **said, GRNS_API_PORT="0")

        async def is_at_work() -> bool:
            assert process.poll() is None, self.fleet.log_of(process)
            return bool(self.fleet.facts_of(process, "service_started"))

        await eventually(is_at_work, within_seconds=START_SECONDS)

    def _ours(self, word: str) -> str:
        for theirs, ours in self.ports.items():
            word = re.sub(rf"\b{theirs}\b", ours, word)
        return word


def _port(words: list[str], place: int) -> str:
    """Return the port that a word, or the one behind it, names."""
    return words[place].split("=")[1] if "=" in words[place] else words[place + 1]


async def _answers(url: str) -> None:
    """Wait until somebody answers there."""

    def ask() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own, on 127.0.0.1
                return bool(answer.status == 200)
        except OSError:
            return False

    async def is_answered() -> bool:
        return await asyncio.to_thread(ask)

    await eventually(is_answered, within_seconds=START_SECONDS)
