"""The command line: noun, then verb. Each noun is a module, loaded when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from grns.cli import failure
from grns.cli.group import Entry, Root, State, shared_options

root = Root(
    "grns",
    {
        "Try": [
            Entry("dev", "Run Postgres, NATS, all daemons and a worker here, to try things.", "dev:dev"),
            Entry("demo", "Run a thousand real tasks, kill a worker, and check every result.", "demo:demo"),
        ],
        "Tasks": [
            Entry("task", "Submit, list, count, show, wait for, cancel and redrive tasks.", "task:task"),
            Entry("explain", "Say why a task is where it is, and what happened to it.", "explain:explain"),
            Entry("filter", "List what lists can be asked for; save filters under a name.", "filter:filters"),
            Entry("dlq", "Look through dead letters; redrive, discard or export them.", "dlq:dlq"),
            Entry("issue", "Look through failures, grouped; say what is known of each.", "issue:issue"),
            Entry(
                "operation",
                "Follow what is done to many tasks at once; pause or end it.",
                "operation:operation",
            ),
            Entry("pool", "List pools and workers; pause and resume pools.", "pool:pool"),
            Entry("events", "Follow what happens; export it; publish it again.", "event:events"),
            Entry("webhook", "Have events sent to URLs; see what came of it.", "webhook:webhook"),
            Entry("top", "Show how it goes, live: states, rates, pools, workers.", "top:top"),
            Entry("verify", "Hold all tasks against the log, and find what is stuck.", "verify:verify"),
        ],
        "Services": [
            Entry("worker", "Run a pool's handlers.", "worker:worker"),
            Entry("server", "Run all daemons in one process.", "daemon:server"),
            Entry("api", "Serve the HTTP API.", "daemon:api"),
            Entry("relay", "Run a relay: publishes the log.", "daemon:relay"),
            Entry("request-desk", "Run a request desk: creates tasks for who asks.", "daemon:request_desk"),
            Entry("reaper", "Run a reaper: takes back tasks whose worker is gone.", "daemon:reaper"),
            Entry("retry-scheduler", "Run a retry scheduler: queues what is due.", "daemon:retry_scheduler"),
            Entry("counter", "Run a counter: counts tasks and failures.", "daemon:counter"),
            Entry("janitor", "Run a janitor: partitions and retention.", "daemon:janitor"),
            Entry("operation-runner", "Run an operation runner: bulk operations.", "daemon:operation_runner"),
            Entry("webhook-sender", "Run a webhook sender: tells webhooks.", "daemon:webhook_sender"),
        ],
        "Set up": [
            Entry("db", "Bring the database's schema up to date.", "database:db"),
            Entry("broker", "Make the broker's streams, and look at them.", "broker:broker"),
            Entry("nats-config", "Write the users of the broker, one per component.", "broker:nats_config"),
            Entry("bench", "Measure grns on your own Postgres and NATS.", "bench:bench"),
            Entry("doctor", "Look for what is not as it should be, and say what to do.", "doctor:doctor"),
            Entry("workspace", "Make workspaces, and keep them apart.", "workspace:workspace"),
            Entry("key", "Make, list and revoke API keys.", "key:key"),
            Entry("config", "Show the settings and where they come from.", "config:config"),
            Entry("schema", "Write the schemas of all messages.", "schema:schema"),
        ],
    },
    hidden=[Entry("keeper", "", "worker:keeper")],
    help="Run agents' tasks on NATS JetStream, with PostgreSQL as the only truth.",
    params=shared_options(),
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    state = State()
    return failure.guarded(lambda: root.execute(arguments, state), state)


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
