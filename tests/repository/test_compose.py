"""The files with which containers run: who may do what in them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from grns.dev.servers import LocalPostgres
from grns.dev.servers.identity import nats_server
from grns.dev.servers.port import free_port
from grns.nats.users import authorization, users
from grns.settings import Settings

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file by name."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """What `infra/make-env` writes."""
    lines = subprocess.run([INFRA / "make-env"], capture_output=True, check=True, text=True).stdout.split()
    return dict(line.split("=", 1) for line in lines)


def test_users_of_the_broker_are_those_of_nats_config() -> None:
    """M10: the broker of the compose file let everybody do everything."""
    assert (INFRA / "nats-users.conf").read_text() == authorization(users(Settings()))


def test_services_use_the_users_that_exist_and_their_inboxes(services: dict[str, Any]) -> None:
    """M10: each component has a user of its own."""
    known = {user.name: user for user in users(Settings())}
    connected = 0
    for name, service in services.items():
        environment = service.get("environment", {})
        if "GRNS_NATS_URL" not in environment:
            assert name in ("postgres", "nats", "migrate", "prometheus", "grafana")
            continue
        user = known[re.findall(r"nats://([a-z-]+):", environment["GRNS_NATS_URL"])[0]]
        assert environment["GRNS_NATS_INBOX_PREFIX"] == user.inbox
        assert environment["GRNS_DATABASE_URL"].startswith("postgresql://grns:")
        connected += 1
    assert connected >= 10


def test_nothing_that_reads_files_runs_by_default(services: dict[str, Any]) -> None:
    """M4: any submitter had the files of the default worker hashed."""
    for name, service in services.items():
        if "worker" in str(service.get("command")):
            assert service["profiles"] == ["example"], name


def test_observers_reach_neither_postgres_nor_nats(services: dict[str, Any]) -> None:
    """L14: Postgres, NATS, Prometheus and Grafana shared one network."""
    for name in ("prometheus", "grafana"):
        assert services[name]["networks"] == ["metrics"]
    for name in ("postgres", "nats"):
        assert services[name]["networks"] == ["data"]


def test_passwords_need_no_escaping_in_a_url(environment: dict[str, str]) -> None:
    """L14: the password went into a URL unescaped."""
    assert len(set(environment.values())) == len(environment)
    assert all(re.fullmatch(r"p[0-9a-f]{40}", password) for password in environment.values())


def test_broker_takes_the_configuration(environment: dict[str, str]) -> None:
    """M10: nats-server reads every password from its environment."""
    command = [str(nats_server()), "-t", "--config", str(INFRA / "nats.conf")]
    tested = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    without = {name: value for name, value in environment.items() if name != "GRNS_NATS_PASSWORD_RELAY"}
    refused = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert "GRNS_NATS_PASSWORD_RELAY" in refused.stderr


async def test_role_of_grns_is_no_superuser(tmp_path: Path) -> None:
    """L14: the role of grns was Postgres' superuser."""
    script = (INFRA / "postgres-roles.sh").read_text().partition("<<'SQL'\n")[2].partition("\nSQL\n")[0]
    first, second = script.replace(":'password'", "'p1'").split("\\connect grns\n")
    with LocalPostgres(tmp_path / "postgres", port=free_port()) as server:
        admin = await asyncpg.connect(server.admin_url)
        # The embedded cluster has roles of these names already; the image's has none.
        await admin.execute("drop database grns")
        await admin.execute("drop role grns, grns_tenant")
        for statement in first.split(";")[:-1]:
            await admin.execute(statement)
        role = await admin.fetchrow("select * from pg_roles where rolname = 'grns'")
        await admin.close()
        inside = await asyncpg.connect(f"{server.admin_url.removesuffix('postgres')}grns")
        await inside.execute(second)
        await inside.close()
        assert role is not None
        for right in ("rolsuper", "rolcreaterole", "rolcreatedb", "rolbypassrls", "rolreplication"):
            assert not role[right], right
        url = f"postgresql://grns:p1@127.0.0.1:{server.port}/grns"
        upgrading = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grns",
            "admin",
            "db",
            "upgrade",
            env=os.environ | {"GRNS_DATABASE_URL": url},
        )
        assert await upgrading.wait() == 0
