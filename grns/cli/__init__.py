"""The command line: noun, then verb. Each noun is a module, loaded when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from grns.cli import failure
from grns.cli.group import CliState, Root, RootCommand, shared_options

root = Root(
    "grns",
    {
        "Try": [
            RootCommand("dev", "Run everything here, to try grns: servers, daemons, a worker.", "dev:dev"),
            RootCommand("demo", "Run a thousand tasks, kill a worker, check every result.", "demo:demo"),
        ],
        "Tasks": [
            RootCommand(
                "task", "Submit, list, count, show, wait for, cancel and redrive tasks.", "task:task"
            ),
            RootCommand(
                "explain", "Explain why a task has its status, and what happened to it.", "explain:explain"
            ),
            RootCommand("filter", "List filter terms; save filters.", "filter:filters"),
            RootCommand("dlq", "List, redrive, discard and export dead letters.", "dlq:dlq"),
            RootCommand("issue", "List and triage failures, grouped by fingerprint.", "issue:issue"),
            RootCommand(
                "operation",
                "Show, pause, resume and abort bulk operations.",
                "operation:operation",
            ),
            RootCommand("pool", "List pools and workers; pause and resume pools.", "pool:pool"),
            RootCommand("events", "Follow, export and replay events.", "event:events"),
            RootCommand(
                "webhook", "Create and edit webhooks; list and resend deliveries.", "webhook:webhook"
            ),
            RootCommand("top", "Show live status: counts, rates, pools, workers.", "top:top"),
            RootCommand("verify", "Check every task against its history; find stuck tasks.", "verify:verify"),
        ],
        "Services": [
            RootCommand("worker", "Run a pool's handlers.", "worker:worker"),
            RootCommand("server", "Run all daemons in one process.", "daemon:server"),
            RootCommand("api", "Serve the HTTP API.", "daemon:api"),
            RootCommand("relay", "Run a relay: publishes the event log.", "daemon:relay"),
            RootCommand("request-desk", "Run a command gateway: requests over NATS.", "daemon:request_desk"),
            RootCommand("reaper", "Run a reaper: queues tasks of dead workers again.", "daemon:reaper"),
            RootCommand(
                "retry-scheduler", "Run a retry scheduler: queues due tasks.", "daemon:retry_scheduler"
            ),
            RootCommand("counter", "Run a stats aggregator: counts tasks and issues.", "daemon:counter"),
            RootCommand("janitor", "Run a janitor: partitions and retention.", "daemon:janitor"),
            RootCommand(
                "operation-runner", "Run an operation runner: bulk operations.", "daemon:operation_runner"
            ),
            RootCommand("webhook-sender", "Run a webhook sender.", "daemon:webhook_sender"),
        ],
        "Set up": [
            RootCommand("db", "Create and upgrade the database schema.", "database:db"),
            RootCommand("broker", "Create and show the streams of NATS.", "broker:broker"),
            RootCommand("nats-config", "Print NATS users, one per component.", "broker:nats_config"),
            RootCommand("bench", "Measure grns on your PostgreSQL and NATS.", "bench:bench"),
            RootCommand("doctor", "Check the installation, and say what to do.", "doctor:doctor"),
            RootCommand("workspace", "Create and isolate workspaces.", "workspace:workspace"),
            RootCommand("key", "Create, list and revoke API keys.", "key:key"),
            RootCommand("config", "Show the settings and where they come from.", "config:config"),
            RootCommand("schema", "Write the schemas of all messages.", "schema:schema"),
        ],
    },
    hidden=[RootCommand("heartbeat", "", "worker:heartbeat")],
    help="A durable task queue. PostgreSQL is the source of truth; NATS JetStream delivers.",
    params=shared_options(),
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    state = CliState()
    return failure.guarded(lambda: root.execute(arguments, state), state)


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
