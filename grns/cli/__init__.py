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
            RootCommand(
                "dev", "Run Postgres, NATS, all daemons and a worker here, to try things.", "dev:dev"
            ),
            RootCommand(
                "demo", "Run a thousand real tasks, kill a worker, and check every result.", "demo:demo"
            ),
        ],
        "Tasks": [
            RootCommand(
                "task", "Submit, list, count, show, wait for, cancel and redrive tasks.", "task:task"
            ),
            RootCommand(
                "explain", "Say why a task is where it is, and what happened to it.", "explain:explain"
            ),
            RootCommand(
                "filter", "List what lists can be asked for; save filters under a name.", "filter:filters"
            ),
            RootCommand("dlq", "Look through dead letters; redrive, discard or export them.", "dlq:dlq"),
            RootCommand("issue", "Look through failures, grouped; say what is known of each.", "issue:issue"),
            RootCommand(
                "operation",
                "Follow what is done to many tasks at once; pause or end it.",
                "operation:operation",
            ),
            RootCommand("pool", "List pools and workers; pause and resume pools.", "pool:pool"),
            RootCommand("events", "Follow what happens; export it; publish it again.", "event:events"),
            RootCommand("webhook", "Have events sent to URLs; see what came of it.", "webhook:webhook"),
            RootCommand("top", "Show how it goes, live: states, rates, pools, workers.", "top:top"),
            RootCommand("verify", "Hold all tasks against the log, and find what is stuck.", "verify:verify"),
        ],
        "Services": [
            RootCommand("worker", "Run a pool's handlers.", "worker:worker"),
            RootCommand("server", "Run all daemons in one process.", "daemon:server"),
            RootCommand("api", "Serve the HTTP API.", "daemon:api"),
            RootCommand("relay", "Run a relay: publishes the log.", "daemon:relay"),
            RootCommand(
                "request-desk", "Run a request desk: creates tasks for who asks.", "daemon:request_desk"
            ),
            RootCommand("reaper", "Run a reaper: takes back tasks whose worker is gone.", "daemon:reaper"),
            RootCommand(
                "retry-scheduler", "Run a retry scheduler: queues what is due.", "daemon:retry_scheduler"
            ),
            RootCommand("counter", "Run a counter: counts tasks and failures.", "daemon:counter"),
            RootCommand("janitor", "Run a janitor: partitions and retention.", "daemon:janitor"),
            RootCommand(
                "operation-runner", "Run an operation runner: bulk operations.", "daemon:operation_runner"
            ),
            RootCommand("webhook-sender", "Run a webhook sender: tells webhooks.", "daemon:webhook_sender"),
        ],
        "Set up": [
            RootCommand("db", "Bring the database's schema up to date.", "database:db"),
            RootCommand("broker", "Make the broker's streams, and look at them.", "broker:broker"),
            RootCommand(
                "nats-config", "Write the users of the broker, one per component.", "broker:nats_config"
            ),
            RootCommand("bench", "Measure grns on your own Postgres and NATS.", "bench:bench"),
            RootCommand(
                "doctor", "Look for what is not as it should be, and say what to do.", "doctor:doctor"
            ),
            RootCommand("workspace", "Make workspaces, and keep them apart.", "workspace:workspace"),
            RootCommand("key", "Make, list and revoke API keys.", "key:key"),
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
