"""The tools of the storm, in the small: what they name is there, and the checker sees what is wrong."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grns.postgres import statements as statement
from tests.chaos.bugs import MUTANTS, Mutant
from tests.chaos.failpoints import CASES
from tests.chaos.moments import MOMENTS
from tests.chaos.proxy import HOST, Proxy
from tests.chaos.stage import Stage
from tests.chaos.traffic import Traffic
from tests.support.harness import eventually

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code_as_it_is(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert edit.right in (_ROOT / edit.place).read_text()
        assert edit.wrong != edit.right


# In what no storm runs: faults/test_operations.py strikes there.
_SHOWN_ELSEWHERE = {"operation.taken", "operation.read"}


def test_there_are_enough_mutants_and_moments() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert len({str(moment) for moment in MOMENTS}) == len(MOMENTS) >= 40
    assert len(CASES) > 5 * len(MOMENTS)


def test_each_moment_is_in_the_code() -> None:
    reached = {
        name
        for path in (_ROOT / "grns").rglob("*.py")
        for name in re.findall(r'failpoint\.reach\("([a-z_.]+)"', path.read_text())
    }
    named = {moment.name for moment in MOMENTS}
    statements = {name for name in named if _is_of_statement(name)}
    assert named - statements == reached - _SHOWN_ELSEWHERE, "those of the code, and no others"
    for name in statements:
        assert statement.statement(name.rpartition(".")[0])


def test_drop_is_offered_where_the_code_has_a_connection_to_drop() -> None:
    droppable = {
        name
        for path in (_ROOT / "grns").rglob("*.py")
        for name in re.findall(r'failpoint\.reach\("([a-z_.]+)", ', path.read_text())
    }
    named = {
        moment.name for moment in MOMENTS if "drop" in moment.actions and not _is_of_statement(moment.name)
    }
    assert named == droppable
    assert all("drop" in moment.actions for moment in MOMENTS if _is_of_statement(moment.name))


def test_what_a_moment_needs_is_known(tmp_path: Path) -> None:
    traffic = Traffic(Stage(tmp_path), random.Random(0))
    assert {moment.needs for moment in MOMENTS} == set(traffic.needs)
    assert all(seat in {one.name for one in Stage(tmp_path).seats} for seat in {m.seat for m in MOMENTS})
    for beside in {moment.beside for moment in MOMENTS} - {""}:
        assert statement.statement(beside.partition(".answered=drop@")[0])


def _is_of_statement(name: str) -> bool:
    return name.endswith((".asked", ".answered"))


def test_the_failure_contract_names_tests_that_are_there() -> None:
    contract = (_ROOT / "docs" / "failures.md").read_text().partition("## Measured")[0]
    rows = [line for line in contract.splitlines() if line.startswith("| ")]
    kinds = {"storm", "points", "recovery", "make mutants"}
    shown = [row.rstrip(" |").rpartition("|")[2] for row in rows if "shown by" not in row]
    assert len(shown) > 30
    for cell in shown:
        named = re.findall(r"([a-z0-9_/]+[.]py)(?:::([A-Za-z0-9_]+))?", cell)
        assert named or any(kind in cell for kind in kinds), cell
        assert cell.count("::") == sum(bool(test) for _, test in named), cell
        for name, test in named:
            text = (_ROOT / "tests" / name).read_text()
            assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{name}::{test}"


# ---------------------------------------------------------------- the network


@pytest.fixture
async def network() -> AsyncIterator[Proxy]:
    """A network to a server that says everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()


async def _answer(reader: asyncio.StreamReader, seconds: float = 5.0) -> bytes:
    async with asyncio.timeout(seconds):
        return await reader.read(1000)


async def test_a_good_network_forwards_all_and_ends_in_order(network: Proxy) -> None:
    reader, writer = await asyncio.open_connection(HOST, network.port)
    writer.write(b"hello")
    assert await _answer(reader) == b"hello"
    writer.write_eof()
    assert await _answer(reader) == b""
    writer.close()


async def test_a_slow_network_is_slow_in_both_directions(network: Proxy) -> None:
    network.latency_seconds = 0.1
    reader, writer = await asyncio.open_connection(HOST, network.port)
    began = asyncio.get_running_loop().time()
    writer.write(b"hello")
    assert await _answer(reader) == b"hello"
    assert asyncio.get_running_loop().time() - began >= 0.2
    writer.close()


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
async def test_a_silent_network_keeps_what_was_sent(network: Proxy, to_server: bool, to_client: bool) -> None:
    reader, writer = await asyncio.open_connection(HOST, network.port)
    network.silence(to_server=to_server, to_client=to_client)
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        await _answer(reader, 0.2)
    network.heal()
    assert await _answer(reader) == b"hello"
    writer.close()


async def test_a_cut_network_resets_and_a_refusing_one_takes_nobody(network: Proxy) -> None:
    reader, writer = await asyncio.open_connection(HOST, network.port)
    writer.write(b"hello")
    assert await _answer(reader) == b"hello"
    assert network.cut() == 1
    with pytest.raises(ConnectionResetError):
        await _answer(reader)
    network.is_refusing = True
    reader, writer = await asyncio.open_connection(HOST, network.port)
    with pytest.raises(ConnectionResetError):
        await _answer(reader)
    network.heal()
    reader, writer = await asyncio.open_connection(HOST, network.port)
    writer.write(b"hello")
    assert await _answer(reader) == b"hello"
    writer.close()


def test_a_network_that_is_stopped_with_its_loop_ends_its_connections_in_silence() -> None:
    """What asyncio says of a cancelled connection would hide what a storm has found."""
    said: list[dict[str, object]] = []

    async def use() -> socket.socket:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        target = socket.create_server((HOST, 0))
        proxy = Proxy(target.getsockname()[1])
        await proxy.start()
        client = socket.create_connection((HOST, proxy.port))
        served, _ = await asyncio.to_thread(target.accept)
        await eventually(lambda: _is_used(proxy))
        await proxy.stop()
        served.close()
        target.close()
        return client

    with asyncio.run(use()) as client, pytest.raises(ConnectionResetError):
        client.recv(1)
    assert said == []


async def _is_used(proxy: Proxy) -> bool:
    return proxy.is_used
