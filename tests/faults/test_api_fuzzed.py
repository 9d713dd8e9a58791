"""Whatever anybody makes up of the API's own document gets an answer that the document knows, and no bug."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.support.harness import Fleet

pytestmark = pytest.mark.timeout(600)

_EXAMPLES = 25
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


async def test_what_a_fuzzer_makes_up_is_answered(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    made, _ = await create_key(database, workspace=None, name="root", scopes=["admin"], actor="cli:ann@desk")
    server = fleet.start("server", "--api", GRNS_API_PORT="0", GRNS_HTTP_WAIT_SECONDS="0.2")
    url = await url_of(fleet, server)
    told = await asyncio.to_thread(
        subprocess.run,
        [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/api/v1/openapi.json",
            "--header", f"Authorization: Bearer {made.reveal()}",
            "--checks", ",".join(_CHECKS), "--max-examples", str(_EXAMPLES), "--phases", "coverage,fuzzing",
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-10_000:] + told.stderr[-2_000:]
    assert not fleet.facts_of(server, "request_crashed")
    assert made.secret not in fleet.log_of(server)
