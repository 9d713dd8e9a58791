"""The page about web frameworks: its applications answer, with a worker beside them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from grns.cli.worker import load_pool
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.site.page import written
from tests.support.harness import Fleet, ready
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)

# What visits each application, with the test client of its framework.
VISITS = {
    "django": """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.test import Client
from django.test.utils import setup_test_environment
setup_test_environment()
visitor = Client()
try:
    visitor.post("/orders?fail=1")
except ValueError:
    pass
placed = visitor.post("/orders").json()
print(visitor.get(f"/receipts/{placed['task']}").json()["receipt"].replace(str(placed["order"]), "7"))
""",
    "django-tests": """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
import grns
django.setup()
import shop_tasks
from django.db import connection, transaction
from django.test import override_settings
from grns.integrations.django import client, submit

@shop_tasks.pool.task
def count_orders() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from orders")
        return cursor.fetchone()[0]

def counted(**options):
    return submit(count_orders, **options).result()

former = connection.settings_dict["NAME"]
connection.creation.create_test_db(verbosity=0)
try:
    submit(count_orders)
except grns.UnavailableError as error:
    assert "GRNS_MIGRATE = True" in str(error), error
connection.creation.destroy_test_db(former, verbosity=0)
with override_settings(GRNS_MIGRATE=True):
    former = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0)
with transaction.atomic():  # a database of Django's tests has the schema of grns
    assert submit(count_orders, run_at=None).created
connection.creation.destroy_test_db(former, verbosity=0)

with transaction.atomic(), connection.cursor() as cursor:
    cursor.execute("insert into orders default values")
    with override_settings(GRNS_EAGER=True):
        assert counted(idempotency_key="once") == 1
        assert counted(idempotency_key="once") == 1
        assert len(client().tasks) == 1
    with override_settings(GRNS_EAGER=True):
        assert not client().tasks, "a test sees the tasks of another one"
        client().submit("send_receipt", {"order": 7}, pool=shop_tasks.pool.name)
        (task,) = client().tasks.values()
print(task.result)
""",
    "fastapi": """
from fastapi.testclient import TestClient
from fastapi_shop import app
with TestClient(app) as visitor:
    print(visitor.post("/orders/7").json()["receipt"])
""",
    "flask": """
from flask_shop import app
print(app.test_client().post("/orders/7").json["receipt"])
""",
}


async def test_the_tests_of_the_page_pass(database: Database, tmp_path: Path) -> None:
    written("frameworks.md", tmp_path)
    ran = await _run(["manage.py", "test"], environment_of(database, tmp_path), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Ran 1 test" in ran.stderr


MIGRATED = """
from django.db import connection, transaction
from django.test import TransactionTestCase
from grns.integrations.django import client, submit
from shop_tasks import Receipt, send_receipt


class RollbackTest(TransactionTestCase):
    def test_a_rollback_undoes_the_task(self):
        self.addCleanup(client().close)
        with transaction.atomic():
            kept = submit(send_receipt, Receipt(order=1))
        with self.assertRaises(ValueError), transaction.atomic():
            submit(send_receipt, Receipt(order=2))
            flow = client().workflow("orders")
            flow.task(send_receipt, Receipt(order=3))
            flow.submit(connection=connection)
            raise ValueError
        self.assertEqual([task.id for task in client().list().rows], [kept.id])
"""


async def test_a_database_of_tests_with_the_schema_is_deleted(database: Database, tmp_path: Path) -> None:
    written("frameworks.md", tmp_path)
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write("GRNS_MIGRATE = True\n")
    (tmp_path / "test_views.py").write_text(MIGRATED)
    ran = await _run(["manage.py", "test"], environment_of(database, tmp_path), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Ran 1 test" in ran.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["grns_worker", "shop_taks:pool"], "CommandError: cannot import shop_taks"),
        (["check"], 'grns needs PostgreSQL, and DATABASES["default"] is sqlite'),
    ],
)
async def test_what_is_wrong_is_said_without_a_traceback(
    database: Database, tmp_path: Path, command: list[str], said: str
) -> None:
    written("frameworks.md", tmp_path)
    if command == ["check"]:
        with (tmp_path / "settings.py").open("a") as settings:
            settings.write(
                'DATABASES["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop"}\n'
            )
    ran = await _run(["manage.py", *command], environment_of(database, tmp_path), tmp_path)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_worker_without_django_says_where_it_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain_tasks.py").write_text(
        "import grns\npool = grns.Pool('shop')\n@pool.task\ndef pack(payload: dict): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    load_pool("plain_tasks:pool")
    assert not capsys.readouterr().err
    (tmp_path / "manage.py").touch()
    load_pool("plain_tasks:pool")
    assert "python manage.py grns_worker plain_tasks:pool" in capsys.readouterr().err


def environment_of(database: Database, directory: Path) -> dict[str, str]:
    """Return the variables that the settings of the page read."""
    place = make_url(database.url)
    return {
        "PGDATABASE": str(place.database), "PGUSER": str(place.username), "PGPASSWORD": str(place.password),
        "PGHOST": str(place.host), "PGPORT": str(place.port), "PYTHONPATH": str(directory),
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": "nats://127.0.0.1:1",
    }  # fmt: skip


async def _run(
    arguments: list[str], environment: dict[str, str], directory: Path
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("framework", ["script", *VISITS])
async def test_the_application_of_the_page_gets_its_receipt(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path, framework: str
) -> None:
    written("frameworks.md", tmp_path)
    environment = environment_of(database, tmp_path) | {"GRNS_NATS_URL": broker.url}
    await fetch(database, "create table orders (id serial primary key)")
    fleet.start("server")
    if framework == "django":
        worker = subprocess.Popen(  # noqa: ASYNC220 - a fork
            [sys.executable, str(tmp_path / "manage.py"), "grns_worker", "--concurrency=2", "--reload"],
            env=os.environ | environment,
            cwd=tmp_path,
        )
    else:
        worker = fleet.start("worker", "start", "shop_tasks:pool", PYTHONPATH=str(tmp_path))
        await ready(database, worker)
    try:
        arguments = ["-c", VISITS[framework]] if framework in VISITS else ["program_0.py"]
        ran = await _run(arguments, environment, tmp_path)
    finally:
        worker.terminate()
        worker.wait(30)
    assert (ran.returncode, ran.stdout) == (0, "sent the receipt of order 7\n"), ran.stderr
    tasks = await fetch(database, "select status from grns.tasks")
    expected = [] if framework == "django-tests" else ["succeeded"]  # eager ones are in no table
    assert [task["status"] for task in tasks] == expected, "what was rolled back has no task"
