"""The core on a simulated clock, network and server: interleavings of everything that can happen, and its words."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from simulated import Server
from simulated_network import Engine, World

from redis_lock_client import acquisition, holding
from redis_lock_client.errors import UNREACHABLE, LockNotOwnedError, ModuleNeededError, ServerError
from redis_lock_client.flow import Flow, Steps
from redis_lock_client.holding import Hold, for_holder
from redis_lock_client.lease import Held
from redis_lock_client.request import TRY_AGAIN, Kind

KEYS = (b"door", b"window")
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"lease_ms": None},
    {"lease_ms": 1000},
    {"watch": True},
    {"lease_ms": 2000, "session": True},
    {"lease_ms": 900, "renew": True},
    {"reentrant": True},
    {"lease_ms": 2000, "reentrant": True, "session": True},
    {"shared": True},
    {"lease_ms": 3000, "shared": True, "limit": 2, "watch": True},
    {"lease_ms": 1000, "shared": True, "limit": 2, "session": True},
)
PATIENCE = (None, 0.0, 0.3, 2.0, 7.0)
WAITS_S = (0.0003, 0.0006, 0.0011, 0.002, 0.1, 0.7, 3.0, 11.0)
ACTIONS = ("acquire", "acquire", "release", "release", "extend", "enter", "owned", "cancel", "wait", "wait", "wait")
TROUBLES = ("cut", "stall", "delete", "restart", "busy", "refuse", "accept", "unsubscribe")
REPEATED: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [*HealthCheck],
    "report_multiple_bugs": False,
    "phases": [Phase.generate, Phase.shrink],
}


class Operation:
    """A flow that a user has started, and its outcome."""

    def __init__(self, process: Process, name: str, hold: Hold | None, patience: float | None) -> None:
        self.process, self.name, self.hold, self.patience = process, name, hold, patience
        self.began_at, self.was_held = process.engine.now(), hold is not None and process.believes(hold)
        self.flow: Flow | None = None

    def done(self, result: Any, error: Exception | None) -> None:
        process, is_calm, took = self.process, self.process.is_calm, self.process.engine.now() - self.began_at
        if self in process.operations:
            process.operations.remove(self)
        if isinstance(error, LockNotOwnedError):
            assert self.hold is not None
            is_known = not self.was_held or self.hold.is_lost or process.engine.now() >= process.held[self.hold].ends_at
            assert is_known or self.hold.token in process.engine.server.robbed, f"{self.name}: {error}"
        elif error is not None:
            assert isinstance(error, (*UNREACHABLE, ServerError, ModuleNeededError)), repr(error)
            assert not is_calm, repr(error)
            assert type(error) is not ServerError or error.code in TRY_AGAIN, error
        if self.name == "acquire" and self.patience is not None:
            assert took <= self.patience + (0.3 if is_calm else 40)
            assert result is not False or took >= self.patience - 0.0011


class Process:
    """The users of one scheduler."""

    def __init__(self, server: Server, is_calm: bool = True) -> None:
        self.engine, self.is_calm = Engine(server.world, server), is_calm
        self.scheduler = self.engine.scheduler
        self.holds: list[Hold] = []
        self.held: dict[Hold, Held] = {}  # Also after the loss.
        self.operations: list[Operation] = []

    def believes(self, hold: Hold) -> bool:
        return hold.held is not None and self.engine.now() < hold.held.ends_at

    def start(self, name: str, steps: Any, *args: Any, hold: Hold | None = None, patience: float | None = None) -> None:
        operation = Operation(self, name, hold, patience)
        self.operations.append(operation)
        operation.flow = self.scheduler.start(for_holder, "name", steps, *args, done=operation.done)

    def acquire(
        self,
        key: bytes,
        token: bytes,
        patience: float | None = None,
        watch: bool = False,
        lease_ms: int | None = 30_000,
        **kind: Any,
    ) -> None:
        hold = Hold(Kind(key, **kind, on_lost=lambda: self._check_loss(hold)), token, lease_ms, engine=self.engine)
        self.start("acquire", self._acquire, hold, watch, patience, patience=patience)

    def _acquire(self, flow: Flow, hold: Hold, watch: bool, patience: float | None) -> Steps:
        if not (yield from acquisition.acquire(flow, hold, patience, 0.1)):
            return False
        assert hold.sent is not None
        hold.acquired(hold.sent.at)
        assert hold.held is not None
        self.held[hold] = hold.held
        assert self.believes(hold) or not self.is_calm
        self.holds.append(hold)
        if hold.kind.renew or watch or hold.kind.session:
            hold.begin_watch()
        return True

    def _check_loss(self, hold: Hold) -> None:
        lock, now = self.engine.server.locks.get(hold.key), self.engine.now()
        is_held = lock is not None and hold.token in lock.held and lock.held[hold.token].ends > now
        assert hold.kind.session or not is_held or now >= self.held[hold].ends_at, "reported a loss that is none"

    def release(self, hold: Hold) -> None:
        if hold.count <= 1:
            self.holds.remove(hold)
        self.start("release", holding.release, hold, hold=hold)

    def release_all(self) -> None:
        for hold in self.free_holds():
            self.release(hold)

    def free_holds(self) -> list[Hold]:
        """Returns the holds whose thread or task does nothing else with them."""
        busy = [operation.hold for operation in self.operations]
        return [hold for hold in self.holds if hold not in busy]

    def cancel(self, operation: Operation) -> None:
        assert operation.flow is not None
        self.operations.remove(operation)
        self.scheduler.cancel(operation.flow)
        if operation.name == "release" and operation.hold is not None and operation.hold.count <= 0:
            operation.hold.drop()

    def left_behind(self) -> list[Any]:
        """Returns what the scheduler still keeps."""
        scheduler, connection = self.scheduler, self.scheduler.servers.locate(b"")
        kept = (scheduler.flows, scheduler._timers, scheduler._messages, scheduler._queues, scheduler.watchers)
        return [
            *(one for some in kept for one in some),
            *connection.sent,
            *[*self.engine.links][1:],
        ]


class Simulation:
    """Several processes and one server. A number decides each detail of an action."""

    def __init__(self, seed: int, actions: list[tuple[str, int]]) -> None:
        choices = random.Random(seed)
        self.world, self.tokens = World(), iter(range(1_000_000))
        self.server = Server(self.world, choices.choice((3, 3, 2)), choices.random() < 0.8)
        self.world.check = self.check
        is_calm = not any(name in TROUBLES for name, _ in actions)
        self.processes = [Process(self.server, is_calm) for _ in range(3)]

    def check(self) -> None:
        """No two believe that they hold a lock that excludes the other."""
        for key in KEYS:
            held = [
                hold
                for process in self.processes
                for hold in process.holds
                if hold.key == key and hold.token not in self.server.robbed and process.believes(hold)
            ]
            assert len(held) < 2 or all(hold.kind.shared for hold in held), [hold.token for hold in held]
            limits = [hold for hold in held if hold.kind.limit]
            assert len(limits) < 3, [hold.token for hold in held]

    def act(self, name: str, number: int) -> None:
        choices = random.Random(number)
        process, key = choices.choice(self.processes), choices.choice(KEYS)
        hold = choices.choice(process.free_holds() or [None])
        link = next(iter(process.engine.links.values()), None)
        now = self.world.now
        if name == "acquire":
            token = b"token%s%d" % (choices.choice((b"", b"", b" ")), next(self.tokens))
            process.acquire(key, token, choices.choice(PATIENCE), **choices.choice(KINDS))
        elif name == "release" and hold is not None:
            process.release(hold)
        elif name == "extend" and hold is not None and hold.lease_ms is not None:
            is_added = choices.random() < 0.3
            process.start("extend", holding.extend, hold, choices.choice((800, 5000)), is_added, hold=hold)
        elif name == "enter" and hold is not None and hold.kind.reentrant:
            process.start("enter", holding.enter_again, hold, hold=hold)
        elif name == "owned" and hold is not None:
            process.start("owned", holding.owned, hold, hold=hold)
        elif name == "cancel" and process.operations:
            process.cancel(choices.choice(process.operations))
        elif name == "cut" and link is not None:
            # A second RELEASE follows the first one after a second: until then bytes can be under way.
            up = choices.choice((choices.randrange(200), 10_000))
            link.cut(up, choices.randrange(60), choices.choice((0.0, 0.001, 0.9)))
        elif name == "stall" and link is not None:
            choices.choice((link.up, link.down)).stalls_until = now + choices.choice((0.05, 0.5, 2.0, 8.0, 25.0))
        elif name == "unsubscribe" and link is not None:
            self.server.unsubscribe(link)
        elif name == "delete":
            self.server.delete(key)
        elif name == "restart":
            self.server.restart(choices.random() < 0.6)
        elif name == "busy":
            self.server.busy_until = now + choices.choice((1.0, 4.0))
        elif name == "refuse":
            self.server.refuses_until = now + 1.0
        elif name == "accept":  # Connections are opened late.
            self.server.accepts_at = now + choices.choice((0.3, 8.0, 25.0))
        elif name == "wait":
            self.world.run(choices.choice(WAITS_S))

    def end(self) -> None:
        """Reports have arrived, all is released, all flows end, and nothing is left behind."""
        self.world.run(30.0)
        for process in self.processes:
            for hold in process.holds:
                is_kept = self.server.version == 3 or hold.kind.renew or hold.kind.session
                is_watched = is_kept and hold.held is not None and hold.held.watcher is not None
                assert not is_watched or hold.token not in self.server.robbed, "no report"
        for _ in range(200):
            for process in self.processes:
                process.release_all()
            self.world.run(0.5)
            if not any(process.holds or process.operations for process in self.processes):
                break
        assert not [operation.name for process in self.processes for operation in process.operations]
        self.world.run(3.0)  # Less than the leases of 30 s.
        held = [token for lock in self.server.locks.values() for token in lock.held]
        waiting = [waiter.token for lock in self.server.locks.values() for waiter in lock.queue]
        assert not held and not waiting, (held, waiting)
        self.world.run(100.0)
        assert not [left for process in self.processes for left in process.left_behind()]


def run(seed: int, actions: list[tuple[str, int]]) -> None:
    simulation = Simulation(seed, actions)
    for action in actions:
        simulation.act(*action)
        simulation.check()
    simulation.end()


def interleavings(names: tuple[str, ...]) -> Any:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 1 << 30)), min_size=15, max_size=50)


# They compute all the time, and share the processors of a test machine with other tests.
@pytest.mark.timeout(600)
@settings(max_examples=300, **REPEATED)
@given(st.integers(0, 99), interleavings(ACTIONS))
def test_calm_interleaving_keeps_every_promise(seed: int, actions: list[tuple[str, int]]) -> None:
    run(seed, actions)


@pytest.mark.timeout(600)
@settings(max_examples=1200, **REPEATED)
@given(st.integers(0, 99), interleavings(ACTIONS + TROUBLES))
def test_troubled_interleaving_keeps_every_promise(seed: int, actions: list[tuple[str, int]]) -> None:
    run(seed, actions)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("version", (2, 3))
def test_request_later_than_its_release_leaves_nothing(kind: dict[str, Any], version: int) -> None:
    for step, patience, is_free in itertools.product(range(1, 80), (0.0, 7.0), (True, False)):
        simulation = Simulation(0, [("cut", 0)])
        process, other = simulation.processes[:2]
        simulation.server.version = version
        if not is_free:
            other.acquire(b"door", b"other")
            simulation.world.run(0.05)
        process.acquire(b"door", b"one", patience, **kind)
        simulation.world.run(step * 0.0001)
        for link in [*process.engine.links.values()]:
            link.cut(10_000, 0, 0.9)
        for _ in range(20):
            other.release_all()
            process.release_all()
            simulation.world.run(0.003)
        for operation in [*process.operations]:
            process.cancel(operation)
        simulation.world.run(4.0)
        assert not simulation.server.locks, (step, patience, is_free)


def test_cut_takeover_does_not_acquire_a_free_lock() -> None:
    server = Server(World())
    process, execute, is_cut = Process(server, is_calm=False), server.execute, []
    holding_one = Hold(Kind(b"door", session=True), b"one", 30_000, engine=process.engine)

    def execute_and_cut(link: Any, words: list[bytes]) -> Any:
        if b"SESSION" not in words or is_cut:
            return execute(link, words)
        is_cut.append(True)
        server.delete(b"door")
        link.cut()
        return None

    process.acquire(b"door", b"one")
    server.world.run(0.1)
    server.execute = execute_and_cut  # type: ignore[method-assign]
    process.start("attach", holding.attach, holding_one, hold=holding_one)
    server.world.run(1.0)
    assert is_cut and not process.operations
    assert b"door" not in server.locks


def test_bytes_that_are_no_reply_close_the_connection() -> None:
    process = Process(Server(World()), is_calm=False)
    process.acquire(b"door", b"one")
    process.engine.world.run(0.1)
    next(iter(process.engine.links.values())).down.send(b"?\r\n")
    process.engine.world.run(0.1)
    assert not process.engine.links
    process.release_all()
    process.engine.world.run(10.0)
    assert not process.engine.server.locks and not process.left_behind()
