"""Gauges that no signal tells, such as queues without workers.

It asks Postgres and the broker, never what a process remembers; it reads what is counted, and the oldest
of what waits, and costs no scan. Any number may read: they find the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import product

from grns.maintenance import queue_stats as gauge
from grns.maintenance.scan_window import ScanPlaces
from grns.model.agent import HEALTHS
from grns.model.task import TaskStatus
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.telemetry import metrics
from grns.telemetry.metric import Metric
from grns.telemetry.service_signals import GaugesMeasured
from grns.telemetry.signal import Emit


class GaugeCollector:
    """Reads each kind of gauge by itself: where one cannot be read, the others can."""

    def __init__(self, *, database: Database, transport: JetStream, emit: Emit) -> None:
        self._database = database
        self._transport = transport
        self._emit = emit
        self._queues: ScanPlaces[tuple[str, str]] = ScanPlaces()
        self._waiting: ScanPlaces[str] = ScanPlaces()

    @property
    def chores(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        """What there is to read, by name; each says that nothing is left to do at once."""
        return {
            "queue_ages": self.read_queues,
            "states": self.read_states,
            "lags": self.read_lags,
            "workers": self.read_workers,
            "agents": self.read_agents,
            "budgets": self.read_budgets,
            "consumers": self.read_consumers,
        }

    async def read_queues(self) -> bool:
        """Read how old the queues are, and which have no worker."""
        queues = await gauge.queue_ages(self._database, self._queues)
        self._tell(
            metrics.QUEUE_OLDEST,
            [
                ((queue.workspace, queue.agent_type, str(queue.priority)), queue.oldest_seconds)
                for queue in queues
            ],
        )
        unserved: dict[tuple[str, str, str], float] = {}
        for queue in queues:
            for task_type, seconds in queue.unserved_after_seconds.items():
                place = (queue.workspace, queue.agent_type, task_type)
                unserved[place] = max(seconds, unserved.get(place, 0.0))
        self._tell(metrics.UNSERVED_OLDEST, unserved.items())
        return False

    async def read_states(self) -> bool:
        """Read how many tasks are in each state."""
        states = await gauge.states(self._database)
        # All of them, so that the first dead task of a workspace is seen as one more than none.
        counts = dict.fromkeys(product({workspace for workspace, _, _ in states}, TaskStatus), 0)
        counts |= {(workspace, TaskStatus(status)): count for workspace, status, count in states}
        self._tell(metrics.TASKS, counts.items())
        return False

    async def read_lags(self) -> bool:
        """Read what waits for the daemons."""
        lags = await gauge.lags(self._database, self._waiting)
        for metric, seconds in (
            (metrics.DUE_OLDEST, lags.due_seconds),
            (metrics.UNDECIDED_OLDEST, lags.undecided_seconds),
            (metrics.LAPSED_OLDEST, lags.lapsed_seconds),
            (metrics.UNPUBLISHED_OLDEST, lags.unpublished_seconds),
            (metrics.UNCOUNTED_OLDEST, lags.uncounted_seconds),
            (metrics.UNFOLLOWED_OLDEST, lags.unfollowed_seconds),
            (metrics.UNADMITTED_OLDEST, lags.unadmitted_seconds),
            (metrics.UNSEEN_OLDEST, lags.unseen_seconds),
        ):
            self._tell(metric, [((), max(0.0, seconds))])
        return False

    async def read_workers(self) -> bool:
        """Read who is there to work."""
        forces = await gauge.pool_capacities(self._database)
        for metric, numbers in (
            (metrics.WORKERS, [force.workers for force in forces]),
            (metrics.WORKER_SLOTS, [force.slots for force in forces]),
            (metrics.WORKER_SLOTS_TAKEN, [force.running for force in forces]),
        ):
            places = [(force.workspace, force.agent_type) for force in forces]
            self._tell(metric, list(zip(places, numbers, strict=True)))
        return False

    async def read_agents(self) -> bool:
        """Read how many agents are of which health: of each pool all of them, so that none is seen as 0."""
        found = {(space, pool, health): n for space, pool, health, n in await gauge.agents(self._database)}
        pools = {(space, pool) for space, pool, _ in found}
        counts = {(*pool, health): found.get((*pool, health), 0) for pool, health in product(pools, HEALTHS)}
        self._tell(metrics.AGENTS, counts.items())
        return False

    async def read_budgets(self) -> bool:
        """Read which share of each budget is used."""
        rows = await self._database.run("read_budget_shares")
        self._tell(metrics.BUDGET_USED, [((row["workspace"], row["name"]), row["share"]) for row in rows])
        return False

    async def read_consumers(self) -> bool:
        """Read how far the durables are behind; nothing while the broker is away."""
        lags = await self._transport.lags() if self._transport.is_connected else ()
        for metric, numbers in (
            (metrics.CONSUMER_PENDING, [lag.pending for lag in lags]),
            (metrics.CONSUMER_UNACKNOWLEDGED, [lag.unacknowledged for lag in lags]),
            (metrics.CONSUMER_REDELIVERED, [lag.redelivered for lag in lags]),
        ):
            places = [(lag.stream, lag.consumer) for lag in lags]
            self._tell(metric, list(zip(places, numbers, strict=True)))
        return False

    def _tell(self, metric: Metric, readings: Iterable[tuple[Sequence[str], float]]) -> None:
        self._emit(GaugesMeasured(metric.name, list(readings)))
