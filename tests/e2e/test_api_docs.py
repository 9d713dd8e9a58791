"""`docs/api.md`, followed: its commands are run as they stand there."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from grns.local import LocalNats
from grns.store.database import Database
from tests.e2e.test_api import url_of
from tests.harness import ROOT, Fleet

pytestmark = pytest.mark.timeout(180)

PAGE = (ROOT / "docs/api.md").read_text()
# Each answer behind a line of its own, with its status: no example is refused.
_PROLOGUE = 'set -eu\ncurl() { command curl -w "\\n%{http_code} $*\\n" "$@"; }\n'


async def test_every_command_of_the_page_works(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    url = await url_of(fleet, server)
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M))
    told = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", _PROLOGUE + script.replace("http://127.0.0.1:8080", url)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    answers = re.findall(r"^([0-9]{3}) (.*)$", told.stdout, re.M)
    assert len(answers) >= script.count("curl ") - 4, "those whose output goes elsewhere, or that are cut"
    assert [answer for answer in answers if not answer[0].startswith("2")] == []
