"""The relay alone: it begins with a log that nobody has published."""

from __future__ import annotations

from tests.bench import bare
from tests.bench.figure import MESSAGES, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import LIMIT_SECONDS
from tests.support.harness import check_stream

_MESSAGES_PER_TASK = 4
_BATCH = 100


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round: from the first message that the broker stores to the last one.

    It counts only where the relay's cursor has all, and the stream has every event, each task's in order.
    """
    tasks = sizes.messages // _MESSAGES_PER_TASK
    async with ground.stage() as stage:
        await bare.run(stage.database, await stage.submit(tasks), _BATCH)
        stage.start("relay")
        await stage.relayed()
        times = [at for stream in ("GRNS_CMD", "GRNS_EVT") for at in await stage.stored(stream)]
        seconds = max(times) - min(times)
        await check_stream(stage.database, stage.broker.url, within_seconds=LIMIT_SECONDS)
    figures.note("relay.rate", _MESSAGES_PER_TASK * tasks / seconds, MESSAGES)
