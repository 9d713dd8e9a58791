"""The admission book against a plain model: never too many, never stuck, fair."""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grns.limits.book import HEADS, AdmissionBook, Standing
from grns.limits.key import LimitRule

WS = "default"


class Queue:
    """Tasks as Postgres would have them, and the book that follows them."""

    def __init__(self, rules: dict[str, LimitRule]) -> None:
        self.rules = rules
        self.tasks: dict[str, tuple[tuple[str, ...], int, str | None]] = {}
        self.book = AdmissionBook(0.0)
        self.book.set_rules({(WS, name): rule for name, rule in rules.items()})
        self.starts: list[tuple[float, tuple[str, ...]]] = []

    def add(self, *keys: str, priority: int = 2) -> str:
        """Submit a task."""
        task_id = f"gr-{len(self.tasks):06d}"
        self.set(task_id, "waiting", keys, priority)
        return task_id

    def set(self, task_id: str, standing: Standing | None, keys: Any = None, priority: int = 2) -> None:
        """Change a task, and tell the book."""
        old = self.tasks.get(task_id)
        keys = old[0] if old else keys
        priority = old[1] if old else priority
        self.tasks[task_id] = (keys, priority, standing)
        self.book.note(task_id, WS, keys, priority, standing)

    def admit(self, most: int = 500) -> list[str]:
        """Read and admit until there is nothing more."""
        admitted = []
        while self.book.has_work:
            for workspace, keys in self.book.unread(100):
                waiting = sorted(
                    (priority, one)
                    for one, (has, priority, standing) in self.tasks.items()
                    if has == keys and standing == "waiting"
                )
                self.book.note_heads(workspace, keys, waiting[:HEADS])
            for task_id in self.book.admit(most):
                keys, priority, standing = self.tasks[task_id]
                assert standing == "waiting"
                self.tasks[task_id] = (keys, priority, "queued")
                admitted.append(task_id)
            self.check()
        return admitted

    def begin(self, task_id: str) -> None:
        """Claim a task."""
        self.set(task_id, "running")
        self.starts.append((self.book.now, self.tasks[task_id][0]))

    def held(self, key: str) -> int:
        """Return how many tasks of a key are queued or running."""
        return sum(
            key in keys and standing in ("queued", "running") for keys, _, standing in self.tasks.values()
        )

    def named(self, standing: str) -> list[str]:
        """Return the tasks that stand so."""
        return [one for one, task in self.tasks.items() if task[2] == standing]

    def check(self) -> None:
        """Hold what is queued and running against the limits."""
        held = Counter(
            key
            for keys, _, standing in self.tasks.values()
            if standing in ("queued", "running")
            for key in keys
        )
        for key, number in held.items():
            assert number <= self.rules.get(key.partition(":")[0], LimitRule()).most

    def blocked(self, task_id: str) -> bool:
        """Return whether a task that waits has a reason to."""
        keys = self.tasks[task_id][0]
        return any(self.held(key) >= self.rules.get(key.partition(":")[0], LimitRule()).most for key in keys)


def test_as_many_are_admitted_as_may_run_at_once() -> None:
    queue = Queue({"tenant": LimitRule(most=2)})
    tasks = [queue.add("tenant:acme") for _ in range(5)]
    assert queue.admit() == tasks[:2]
    queue.begin(tasks[0])
    assert queue.admit() == []
    queue.set(tasks[0], None)
    assert queue.admit() == tasks[2:3]


def test_urgent_tasks_are_admitted_first() -> None:
    queue = Queue({"one": LimitRule(most=1)})
    first, later, urgent = queue.add("one"), queue.add("one"), queue.add("one", priority=0)
    assert queue.admit() == [urgent]
    queue.set(urgent, None)
    another = queue.add("one", priority=1)
    assert queue.admit() == [another]
    for before, after in ((another, first), (first, later)):
        queue.set(before, None)
        assert queue.admit() == [after]


def test_a_full_key_holds_up_no_other_one() -> None:
    queue = Queue({"api": LimitRule(most=10), "tenant": LimitRule(most=3)})
    for _ in range(2000):
        queue.add("api", "tenant:large")
    small = [queue.add("api", "tenant:small") for _ in range(2)]
    assert set(small) <= set(queue.admit())
    assert queue.held("tenant:large") == 3


def test_lines_that_share_a_limit_take_turns() -> None:
    queue = Queue({"api": LimitRule(most=20)})
    for _ in range(1000):
        queue.add("api", "tenant:large")
    for _ in range(30):
        queue.add("api", "tenant:small")
    for _ in range(10):
        admitted = queue.admit()
        counts = Counter(queue.tasks[one][0][1] for one in admitted)
        if queue.named("waiting") and any(
            queue.tasks[one][0][1] == "tenant:small" for one in queue.named("waiting")
        ):
            assert abs(counts["tenant:large"] - counts["tenant:small"]) <= 1
        for task_id in queue.named("queued"):
            queue.set(task_id, None)


@pytest.mark.parametrize("weight", [0.25, 1.0, 3.0])
def test_keys_take_turns_by_their_weights(weight: float) -> None:
    queue = Queue({"api": LimitRule(most=20), "tenant:large": LimitRule(weight=weight)})
    for _ in range(HEADS - 1):  # of more than are read at once, a line may miss turns while the rest is read
        queue.add("api", "tenant:large")
        queue.add("api", "tenant:small")
    counts: Counter[str] = Counter()
    for _ in range(10):
        counts.update(queue.tasks[one][0][1] for one in queue.admit())
        assert abs(counts["tenant:large"] - weight * counts["tenant:small"]) <= max(1.0, weight)
        for task_id in queue.named("queued"):
            queue.set(task_id, None)


@settings(max_examples=200, deadline=None)
@given(
    weights=st.tuples(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]), st.sampled_from([0.5, 1.0, 3.0])),
    most=st.integers(1, 40),
    batch=st.integers(1, 60),
)
def test_no_key_that_waits_falls_behind_by_more_than_a_batch(
    weights: tuple[float, float], most: int, batch: int
) -> None:
    rules = {"api": LimitRule(most=most)} | {
        f"tenant:{name}": LimitRule(weight=weight) for name, weight in zip("ab", weights, strict=True)
    }
    queue = Queue(rules)
    for _ in range(HEADS - 1):
        queue.add("api", "tenant:a")
        queue.add("api", "tenant:b")
    counts = Counter({"tenant:a": 0, "tenant:b": 0})
    while max(counts.values()) < HEADS - 1 - most:
        admitted = queue.admit(batch)
        assert admitted
        counts.update(queue.tasks[one][0][1] for one in admitted)
        assert (
            abs(counts["tenant:a"] / weights[0] - counts["tenant:b"] / weights[1]) <= 1 / min(weights) + 1e-9
        )
        for task_id in admitted:
            queue.set(task_id, None)


def test_a_line_of_one_gets_its_turn_among_hundreds() -> None:
    queue = Queue({"api": LimitRule(most=5)})
    for number in range(300):
        for _ in range(2):
            queue.add("api", f"job:{number}")
    lone = queue.add("api", "tenant:small")
    turns = 0
    while lone not in queue.admit():
        turns += 1
        for task_id in queue.named("queued"):
            queue.set(task_id, None)
    assert turns <= 301 // 5 + 1


def test_a_rate_bounds_how_many_begin() -> None:
    queue = Queue({"api": LimitRule(per_second=10, burst=5)})
    for _ in range(100):
        queue.add("api")
    assert len(queue.admit()) == 5
    assert queue.book.opens_at == inf  # those have yet to begin
    for task_id in queue.named("queued"):
        queue.begin(task_id)
    assert queue.admit() == []
    assert queue.book.opens_at == pytest.approx(0.1)
    queue.book.now = 0.35
    assert len(queue.admit()) == 3
    queue.book.now = 100.0  # no worker: what is queued counts against the burst
    assert len(queue.admit()) == 2
    for task_id in queue.named("queued"):
        queue.begin(task_id)
    assert queue.admit() == []
    queue.book.now = 200.0
    assert len(queue.admit()) == 5


def test_a_repeated_attempt_is_paid_for_later() -> None:
    queue = Queue({"api": LimitRule(per_second=1, burst=1)})
    first, second = queue.add("api"), queue.add("api")
    assert queue.admit() == [first]
    queue.begin(first)
    queue.book.now = 10.0
    queue.set(first, "queued")  # its lease was lost
    queue.book.note_repeat(first)
    queue.begin(first)
    assert queue.admit() == []
    queue.book.now = 11.0
    assert queue.admit() == [second]


def test_a_changed_rule_acts_at_once() -> None:
    queue = Queue({"api": LimitRule(most=1)})
    tasks = [queue.add("api") for _ in range(6)]
    assert queue.admit() == tasks[:1]
    for rule, number in ((LimitRule(most=3), 2), (LimitRule(most=3, is_paused=True), 0), (LimitRule(), 3)):
        queue.rules = {"api": rule}
        queue.book.set_rules({(WS, "api"): rule})
        assert len(queue.admit()) == number


def test_what_could_not_be_queued_is_read_again() -> None:
    queue = Queue({"api": LimitRule(most=1, per_second=1, burst=1)})
    first = queue.add("api")
    assert queue.book.admit(10) == [first]
    queue.book.take_back([first])
    assert queue.book.is_empty
    queue.book.note(first, WS, ("api",), 2, "waiting")
    assert queue.book.admit(10) == [first]


def test_idle_keys_are_forgotten_once_they_are_full() -> None:
    queue = Queue({"api": LimitRule(per_second=1, burst=2)})
    (task_id,) = [queue.add("api")]
    queue.admit()
    queue.begin(task_id)
    queue.set(task_id, None)
    assert queue.book.forget_idle() == []
    queue.book.now = 1.0
    assert queue.book.forget_idle() == [(WS, "api")]
    assert queue.book.is_empty


def test_cleaning_gives_on_the_turn_of_a_line_that_has_no_task_any_more() -> None:
    queue = Queue({"k": LimitRule(most=1)})
    first = queue.add("k")
    queue.admit()
    gone, stays = queue.add("a", "k"), queue.add("b", "k")
    assert queue.admit() == []
    queue.set(first, None)
    assert queue.book.has_work  # the line of `gone` has its turn
    queue.set(gone, None)
    queue.book.forget_idle()
    assert queue.admit() == [stays]


def test_a_rate_that_is_set_again_gives_no_second_burst() -> None:
    queue = Queue({"api": LimitRule(per_second=0.001, burst=3)})
    tasks = [queue.add("api") for _ in range(9)]
    assert queue.admit() == tasks[:3]
    for rule in (LimitRule(most=3), LimitRule(per_second=0.001, burst=3)) * 2:
        queue.book.set_rules({(WS, "api"): rule})
        for task_id in queue.named("queued"):
            queue.begin(task_id)
    assert queue.admit() == []


def test_a_task_that_never_began_gives_its_token_back() -> None:
    queue = Queue({"api": LimitRule(per_second=0.001, burst=1)})
    first, second, third = (queue.add("api") for _ in range(3))
    assert queue.admit() == [first]
    queue.set(first, None)
    assert queue.admit() == [second]
    queue.book.note(second, WS, ("api",), 2, None, has_begun=True)
    assert queue.admit() == []
    assert queue.named("waiting") == [third]


def test_of_a_long_line_the_first_are_known_and_all_have_their_turn() -> None:
    queue = Queue({"api": LimitRule(most=1)})
    tasks = [queue.add("api") for _ in range(1000)]
    queue.admit()
    assert queue.book.standings["waiting"] <= 2 * HEADS + 1
    done = []
    while held := queue.named("queued"):
        done += held
        queue.begin(held[0])
        queue.set(held[0], None)
        queue.admit()
    assert done == tasks


def test_a_tenant_that_was_held_up_by_its_own_limit_has_no_turns_left_over() -> None:
    queue = Queue({"tenant": LimitRule(most=1), "all": LimitRule(most=2)})
    first = queue.add("all", "tenant:held")
    queue.admit()
    queue.begin(first)
    for _ in range(100):
        queue.add("all", "tenant:held")
    queue.rules["tenant"] = LimitRule(most=100)  # from now on only what all share holds them up
    others = [[queue.add("all", f"tenant:{name}") for _ in range(50)] for name in range(5)]
    for _ in range(60):
        for task_id in queue.admit():
            queue.begin(task_id)
            queue.set(task_id, None)
    queue.book.set_rules({(WS, name): rule for name, rule in queue.rules.items()})
    queue.set(first, None)
    begun: Counter[str] = Counter()
    for _ in range(30):
        for task_id in queue.admit(2):
            begun[queue.tasks[task_id][0][1]] += 1
            queue.begin(task_id)
            queue.set(task_id, None)
    assert others
    assert begun["tenant:held"] <= 15


RULES = {
    "one": LimitRule(most=1),
    "few": LimitRule(most=3),
    "key": LimitRule(most=2),
    "rate": LimitRule(per_second=2.0, burst=3),
    "free": LimitRule(),
}
KEYS = st.lists(
    st.sampled_from(["one", "few", "key:a", "key:b", "key:c", "rate", "free", "gone"]),
    min_size=1,
    max_size=3,
    unique=True,
).map(sorted)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), heads=st.sampled_from([1, 3, 200]))
def test_random_traffic_is_never_too_much_and_never_stuck(data: st.DataObject, heads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grns.limits.book.HEADS", heads)
        patch.setattr(f"{__name__}.HEADS", heads)
        queue = Queue(RULES)
        for keys in data.draw(st.lists(KEYS, min_size=1, max_size=30)):
            queue.add(*keys, priority=data.draw(st.integers(0, 3)))
        shuffled = random.Random(data.draw(st.integers(0, 10_000)))
        for _ in range(data.draw(st.integers(1, 60))):
            move(queue, shuffled)
        # At the end all run, one after the other.
        for _ in range(1000):
            queue.book.now += 0.5
            queue.admit()
            for task_id in queue.named("queued"):
                queue.begin(task_id)
            for task_id in queue.named("running"):
                queue.set(task_id, None)
            if not queue.named("waiting"):
                break
        assert queue.named("waiting") == []
        queue.admit()  # a line that was put aside is asked once more whether it has tasks
        queue.book.forget_idle()
        assert queue.book.is_empty
        assert_rate_is_kept(queue)


def move(queue: Queue, chance: random.Random) -> None:
    """Let one thing happen."""
    kind = chance.randrange(8)
    names = list(queue.tasks)
    task_id = chance.choice(names)
    keys, _, standing = queue.tasks[task_id]
    if kind == 0:
        queue.add(*keys, priority=chance.randrange(4))
    elif kind == 1 and standing == "queued":
        queue.begin(task_id)
    elif kind == 2 and standing in ("queued", "running", "waiting"):
        queue.set(task_id, None)  # it ended, or was cancelled or paused
    elif kind == 3 and standing is None:
        queue.set(task_id, "waiting")  # a retry, or a redrive
    elif kind == 4:
        queue.book.now += chance.choice((chance.random(), chance.random(), 60.0))  # no worker was there
    elif kind == 5 and standing == "waiting":
        queue.tasks[task_id] = (keys, changed := chance.randrange(4), standing)
        queue.book.note(task_id, WS, keys, changed, "waiting")
    elif kind == 6:
        queue.book.forget_idle()
    else:
        for unadmitted in set(queue.named("waiting")) - set(queue.admit()):
            assert "rate" in queue.tasks[unadmitted][0] or queue.blocked(unadmitted)


def assert_rate_is_kept(queue: Queue) -> None:
    """Hold every window of starts against the rate."""
    starts = [at for at, keys in queue.starts if "rate" in keys]
    rule = RULES["rate"]
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rule.burst + rule.per_second * (starts[last] - starts[first]) + 1e-6
