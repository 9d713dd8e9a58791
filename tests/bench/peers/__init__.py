"""Other task queues, doing the same work on the same machine, to compare with.

`peer.py` what each of them can do, and the rule by which it is timed; `drain.py` that rule;
`packages.py` where their packages go; `program.py` how the `*_worker.*` are run, which are the peers' own
side: each with the interpreter of its own packages, none of them with ours; `postgres.py` those that keep
their jobs in Postgres; `broker.py` and `rabbitmq.py` those that need a broker.

Each is configured as its documentation advises for many short jobs; what was chosen stands in its worker.
"""

from __future__ import annotations

from tests.bench.peers import rabbitmq
from tests.bench.peers.broker import BrokerPeer, nats
from tests.bench.peers.packages import NodePackages, PythonPackages
from tests.bench.peers.peer import Peer, PeerUnavailable
from tests.bench.peers.postgres import JobTable, PostgresPeer
from tests.bench.peers.program import Program

__all__ = ["PEERS", "Peer", "PeerUnavailable"]

_PGQUEUER = PythonPackages("pgqueuer", "1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
_PROCRASTINATE = PythonPackages("procrastinate", "3.10.0", "psycopg[binary,pool]==3.3.9")
_GRAPHILE = NodePackages("graphile-worker", "0.18.0", node="24.21.0")
_CELERY = PythonPackages("celery", "5.7.0")
_DRAMATIQ = PythonPackages("dramatiq", "2.2.1", "pika")
_TASKIQ = PythonPackages("taskiq-nats", "0.7.0", "uvloop==0.23.0")

_PEERS: list[Peer] = [
    PostgresPeer(
        Program("pgqueuer_worker.py", _PGQUEUER),
        JobTable("pgqueuer", untaken="status = 'queued'"),
    ),
    PostgresPeer(
        Program("procrastinate_worker.py", _PROCRASTINATE),
        JobTable("procrastinate_jobs", untaken="status = 'todo'"),
    ),
    PostgresPeer(
        # Unless told not to, it writes a line for each job.
        Program("graphile_worker.mjs", _GRAPHILE, {"NO_LOG_SUCCESS": "1"}),
        JobTable("graphile_worker._private_jobs", untaken="locked_at is null"),
    ),
    BrokerPeer(Program("celery_worker.py", _CELERY), rabbitmq.broker),
    BrokerPeer(Program("dramatiq_worker.py", _DRAMATIQ), rabbitmq.broker),
    BrokerPeer(Program("taskiq_worker.py", _TASKIQ), nats),
]

PEERS: dict[str, Peer] = {peer.name: peer for peer in _PEERS}
