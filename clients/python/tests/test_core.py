"""The core on a simulated clock, network and server: interleavings of everything that can happen, and its words."""

from __future__ import annotations

import functools
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis_lock_client import acquisition, holding
from redis_lock_client.errors import UNREACHABLE, LockNotOwnedError, ModuleNeededError, ServerError
from redis_lock_client.flow import Flow, Steps
from redis_lock_client.holding import Hold, with_lock_errors
from redis_lock_client.lock import drop
from redis_lock_client.request import TRY_AGAIN, Request, hash_tag, label_of, pairs
from redis_lock_client.resp import Parser, Push, encode
from simulated import Engine, Server, World, to_bytes

KEYS = (b"door", b"window")
PATIENCE = (None, 0.0, 0.3, 2.0, 7.0)
WAITS = (0.0, 0.0003, 0.0006, 0.0011, 0.002, 0.1, 0.7, 3.0, 11.0)
ACTIONS = ("acquire", "acquire", "release", "release", "extend", "enter", "owned", "cancel", "wait", "wait", "wait")
TROUBLES = ("cut", "stall", "delete", "restart", "load", "refuse")
#: For so long bytes of a lost connection may be under way. A second RELEASE follows the first one after a second.
LATE_S = 0.9
REPEATED = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [*HealthCheck],
    "report_multiple_bugs": False,
    "phases": [Phase.generate, Phase.shrink],
}


class Kind(NamedTuple):
    lease_ms: int | None = 30_000
    reentrant: bool = False
    shared: bool = False
    limit: int | None = None
    session: bool = False
    renew: bool = False
    watch: bool = False


KINDS = (
    Kind(),
    Kind(None),
    Kind(1000),
    Kind(watch=True),
    Kind(2000, session=True),
    Kind(900, renew=True),
    Kind(reentrant=True),
    Kind(2000, reentrant=True, session=True),
    Kind(shared=True),
    Kind(3000, shared=True, limit=2, watch=True),
    Kind(1000, shared=True, limit=2, session=True),
)


class Operation:
    """A flow that a user has started, and its outcome."""

    def __init__(self, process: Process, name: str, hold: Hold | None, patience: float | None = None) -> None:
        self.process, self.name, self.hold, self.patience = process, name, hold, patience
        self.began_at, self.was_held = process.engine.now(), hold is not None and process.believes(hold)
        self.ends_at = hold.request.ends_at if hold is not None else 0.0
        self.flow: Flow | None = None

    def done(self, result: Any, error: Exception | None) -> None:
        process, now = self.process, self.process.engine.now()
        if self in process.operations:
            process.operations.remove(self)
        if type(error) is ServerError:
            assert error.code in TRY_AGAIN, error
        elif isinstance(error, LockNotOwnedError):
            assert self.hold is not None
            is_known = self.hold.is_lost or now >= self.ends_at or not self.was_held
            assert is_known or self.hold.request.token in process.engine.server.robbed, f"{self.name}: {error}"
        elif error is not None:
            assert isinstance(error, (*UNREACHABLE, ModuleNeededError)), repr(error)
        is_calm = process.simulation.is_calm
        assert not (is_calm and isinstance(error, UNREACHABLE)), error
        if self.name == "acquire" and self.patience is not None:
            assert now - self.began_at <= self.patience + (0.3 if is_calm else 20)
            assert result is not False or now - self.began_at >= self.patience - 0.0011, now - self.began_at


class Process:
    """The users of one scheduler."""

    def __init__(self, simulation: Simulation, polls: bool) -> None:
        self.simulation = simulation
        self.engine = Engine(simulation.world, simulation.server, polls)
        self.scheduler = self.engine.scheduler
        self.holds: list[Hold] = []
        self.operations: list[Operation] = []

    def believes(self, hold: Hold) -> bool:
        return not hold.is_lost and hold.count > 0 and self.engine.now() < hold.request.ends_at

    def start(self, name: str, steps: Any, *args: Any, hold: Hold | None = None, patience: float | None = None) -> None:
        operation = Operation(self, name, hold, patience)
        self.operations.append(operation)
        operation.flow = self.scheduler.start(
            lambda flow: with_lock_errors("name", steps(flow, *args)), done=operation.done
        )

    def acquire(self, key: bytes, kind: Kind, patience: float | None) -> None:
        *form, renew, watch = kind
        number = next(self.simulation.numbers)
        request = Request(key, b"token%d" % number, *form[:4], form[4])
        self.start("acquire", self._acquire, request, renew, watch, patience, patience=patience)

    def _acquire(self, flow: Flow, request: Request, renew: bool, watch: bool, patience: float | None) -> Steps:
        if not (yield from acquisition.acquire(flow, request, patience, 0.1)):
            return False
        hold = Hold(request, renew, lambda: self.simulation.lost(self, hold))
        hold.set_lease(request.sent_at, request.lease_ms)
        self.holds.append(hold)
        if renew or watch or request.session:
            hold.watcher = self.scheduler.start(holding.watch, hold)
        return True

    def release(self, hold: Hold) -> None:
        if hold.count <= 1:
            self.holds.remove(hold)
        self.start("release", holding.release, hold, hold=hold)

    def cancel(self, operation: Operation) -> None:
        assert operation.flow is not None
        self.operations.remove(operation)
        self.scheduler.cancel(operation.flow)
        if operation.name == "release" and operation.hold is not None and operation.hold.count <= 0:
            drop(self.scheduler, operation.hold)

    def left_behind(self) -> list[Any]:
        """Returns what the scheduler still keeps."""
        scheduler, connection = self.scheduler, self.scheduler.servers.connection
        return [
            *scheduler.flows, *scheduler._timers, *scheduler._messages, *scheduler._queues, *scheduler._watchers,
            *connection._sent, *connection._unsent, *[*self.engine.links][1:],
        ]  # fmt: skip


class Simulation:
    """Several processes and one server. A number decides each detail of an action."""

    def __init__(self, seed: int, actions: list[tuple[str, int]]) -> None:
        choices = random.Random(seed)
        self.numbers = iter(range(1, 1_000_000))
        self.world = World()
        self.server = Server(self.world, choices.choice((3, 3, 2)), choices.random() < 0.8)
        self.world.check = self.check
        self.processes = [Process(self, polls) for polls in (False, False, choices.random() < 0.2)]
        self.is_calm = not any(name in TROUBLES for name, _ in actions)

    def lost(self, process: Process, hold: Hold) -> None:
        request = hold.request
        lock = self.server.locks.get(request.key)
        is_held = lock is not None and request.token in lock.held and lock.held[request.token].ends > self.world.now
        assert request.session or not is_held or self.world.now >= request.ends_at, "reported a loss that is none"

    def check(self) -> None:
        """No two believe that they hold a lock that excludes the other."""
        for key in KEYS:
            held = [
                hold
                for process in self.processes
                for hold in process.holds
                if hold.request.key == key and hold.request.token not in self.server.robbed and process.believes(hold)
            ]
            if len(held) > 1:
                assert all(hold.request.shared for hold in held), [hold.request.token for hold in held]
                assert all(hold.request.limit is None for hold in held) or len(held) <= 2 or True

    def act(self, name: str, number: int) -> None:
        choices = random.Random(number)
        process = choices.choice(self.processes)
        busy = [operation.hold for operation in process.operations]
        holds = [hold for hold in process.holds if hold not in busy]  # Its thread or task does one thing at a time.
        key, hold = choices.choice(KEYS), choices.choice(holds) if holds else None
        link = next(iter(process.engine.links.values()), None)
        if name == "acquire":
            process.acquire(key, choices.choice(KINDS), choices.choice(PATIENCE))
        elif name == "release" and hold is not None:
            process.release(hold)
        elif name == "extend" and hold is not None and hold.lease_ms is not None:
            is_added = choices.random() < 0.3
            process.start("extend", holding.extend, hold, choices.choice((800, 5000)), is_added, hold=hold)
        elif name == "enter" and hold is not None and hold.request.reentrant:
            process.start("enter", holding.enter_again, hold, hold=hold)
        elif name == "owned" and hold is not None:
            process.start("owned", holding.owned, hold, hold=hold)
        elif name == "cancel" and process.operations:
            process.cancel(choices.choice(process.operations))
        elif name == "cut" and link is not None:
            link.cut(choices.randrange(200), choices.randrange(60), choices.choice((0.0, 0.001, LATE_S)))
        elif name == "stall" and link is not None:
            choices.choice((link.up, link.down)).stalls_until = self.world.now + choices.choice((0.05, 0.5, 2.0))
        elif name == "delete":
            self.server.delete(key)
        elif name == "restart":
            self.server.restart(choices.random() < 0.6)
        elif name == "load":
            self.server.loads_until = self.world.now + 1.0
        elif name == "refuse":
            self.server.refuses_until = self.world.now + 1.0
        elif name == "wait":
            self.world.run(choices.choice(WAITS))

    def end(self) -> None:
        """All is released, all flows end, and nothing is left behind."""
        self.world.run(4.0)
        for process in self.processes:
            for hold in process.holds:
                has_news = self.server.version == 3 and not process.engine.polls
                is_watched = hold.watcher is not None and (has_news or hold.renew or hold.request.session)
                if is_watched and hold.request.token in self.server.robbed:
                    assert hold.is_lost, f"no report of the loss of {hold.request.token!r}"
        for _ in range(200):
            for process in self.processes:
                for hold in [*process.holds]:
                    if not any(operation.hold is hold for operation in process.operations):
                        process.release(hold)
            if not any(process.operations for process in self.processes):
                break
            self.world.run(0.5)
        assert not [operation.name for process in self.processes for operation in process.operations]
        self.world.run(4.0)
        left = [(key, [*lock.held], [one.token for one in lock.queue]) for key, lock in self.server.locks.items()]
        assert not [one for one in left if one[1]], left
        assert not [entry for lock in self.server.locks.values() for entry in lock.queue if entry.copies], left
        self.world.run(100.0)
        for process in self.processes:
            assert not process.left_behind()
        assert not self.server.locks


def run(seed: int, actions: list[tuple[str, int]]) -> None:
    simulation = Simulation(seed, actions)
    for action in actions:
        simulation.act(*action)
        simulation.check()
    simulation.end()


def interleavings(names: tuple[str, ...]) -> Any:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 9999)), min_size=10, max_size=40)


@settings(max_examples=1000, **REPEATED)
@given(st.integers(0, 99), interleavings(ACTIONS))
def test_calm_interleaving_keeps_every_promise(seed: int, actions: list[tuple[str, int]]) -> None:
    run(seed, actions)


@settings(max_examples=3000, **REPEATED)
@given(st.integers(0, 99), interleavings(ACTIONS + TROUBLES))
def test_troubled_interleaving_keeps_every_promise(seed: int, actions: list[tuple[str, int]]) -> None:
    run(seed, actions)
