"""`manage.py grns_worker`: run the handlers of a pool, with Django set up."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from grns.cli import run
from grns.cli.worker import load_pool, run_and_reload
from grns.errors import SettingsError
from grns.integrations.django import options, with_connections
from grns.settings import load

_OPTIONS = {
    "concurrency": "handlers that run at the same time",
    "processes": "worker processes, or auto",
    "metrics-port": "port of /metrics and of the health checks",
}


class GrnsWorkerCommand(BaseCommand):  # type: ignore[misc]  # Django has no types of its own
    """The command `grns_worker`."""

    help = "Run the handlers of a pool: settings.GRNS_POOL, or the one that you name."
    requires_system_checks = "__all__"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("target", nargs="?", help="MODULE:POOL, such as shop_tasks:pool")
        for name, meaning in _OPTIONS.items():
            parser.add_argument(f"--{name}", help=meaning)
        parser.add_argument("--reload", action="store_true", help="start again when a Python file changes")

    def handle(self, *_: Any, target: str | None, reload: bool, **given: Any) -> None:
        """Run a worker until SIGTERM or SIGINT."""
        if reload:
            run_and_reload([sys.executable, *sys.argv], load().shutdown_grace_seconds)
            return
        target = target or getattr(settings, "GRNS_POOL", None)
        if target is None:
            raise CommandError('name a pool, such as shop.tasks:pool, or set GRNS_POOL = "shop.tasks:pool"')
        for name, value in options().items():
            if name != "actor":  # who submits
                os.environ[f"GRNS_{name.upper()}"] = str(value)
        try:
            load(**{name: value for name, value in options().items() if name != "actor"})
            pool = load_pool(target)
        except SettingsError as error:
            hints = getattr(error, "__notes__", [])
            raise CommandError("\n  try: ".join([str(error), *hints])) from error
        for handler in pool.handlers.values():
            if not handler.is_async:
                handler.function = with_connections(handler.function)
        values = {name: given[name.replace("-", "_")] for name in _OPTIONS}
        chosen = [f"--{name}={value}" for name, value in values.items() if value is not None]
        sys.exit(run(["worker", "start", target, *chosen]))


Command = GrnsWorkerCommand  # the name that Django looks for
