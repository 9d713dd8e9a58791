"""A run: first what is measured in rounds, then the rest.

In a round all of these take their turn, so that what is compared has met the same machine.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.bench import against
from tests.bench.figure import Figures
from tests.bench.ground import Ground, ground
from tests.bench.machine import machine
from tests.bench.scenario import PEERS, SCENARIOS, Scenario
from tests.bench.size import Sizes
from tests.chaos.show import progress_on

_INSTALLED = Path(__file__).parent.parent.parent / ".grns" / "peers"


class Run:
    """Measures the scenarios that are named. What breaks in one of them costs the others nothing."""

    def __init__(self, sizes: Sizes, names: Sequence[str]) -> None:
        self._sizes = sizes
        self._names = names
        self.figures = Figures()
        self.machine: dict[str, str] = {}
        self.failed: set[str] = set()

    async def measure(self, directory: Path, console: Console) -> None:
        """Measure everything, and show on this console what is being measured."""
        chosen = [scenario for scenario in SCENARIOS if scenario.name in self._names]
        async with ground(directory) as here:
            self.machine = await machine(here.admin)
            if PEERS in self._names:
                chosen.insert(0, await self._peers(console))
            repeated = [scenario for scenario in chosen if scenario.is_repeated]
            single = [scenario for scenario in chosen if not scenario.is_repeated]
            with progress_on(console) as progress:
                bar = progress.add_task("", total=self._sizes.rounds * len(repeated) + len(single))

                def tell(text: str) -> None:
                    progress.update(bar, description=text)
                    if not console.is_terminal:
                        console.print(text, markup=False)

                for number in range(1, self._sizes.rounds + 1):
                    for scenario in repeated:
                        tell(f"{scenario.what}, round {number} of {self._sizes.rounds}")
                        await self._try(scenario, here)
                        progress.advance(bar)
                for scenario in single:
                    tell(scenario.what)
                    await self._try(scenario, here)
                    progress.advance(bar)

    async def _peers(self, console: Console) -> Scenario:
        console.print("installing the peers", markup=False)
        peers, versions = await against.prepare(_INSTALLED, self.figures)
        self.machine |= versions
        return Scenario(PEERS, "the peers", peers.measure)

    async def _try(self, scenario: Scenario, here: Ground) -> None:
        if scenario.name in self.failed:
            return
        try:
            await scenario.measure(here, self._sizes, self.figures)
        except Exception as error:  # whatever it was: it is told, and the others are measured
            self.failed.add(scenario.name)
            told = "".join(traceback.format_exception(error))
            self.figures.remarks.append(f"{scenario.name} broke: {told}".rstrip())
