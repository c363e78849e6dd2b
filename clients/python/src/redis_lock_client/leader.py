"""The holder of a lock, such as a leader: reported at each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .acquisition import RETRY_S, SILENCE_S, ask
from .arguments import bytes_of, check_client
from .connection import track
from .errors import UNREACHABLE, LockError, ServerError
from .flow import Change, Flow, Pause, Steps
from .request import TRY_AGAIN, info, label_of, pairs
from .source import source_of


def begin(redis: Any, name: str | bytes, engine_of: Any, report: Callable[[Any], None], has_loop: bool) -> Any:
    """Begins to report the labels of the holders of a lock, and the error that ends it. Returns what ends it."""
    check_client(redis, has_loop)
    key, engine, flows = bytes_of(name, "the name of a lock"), engine_of(source_of(redis)), list[Flow]()

    def done(_: object, error: Exception | None) -> None:
        report(error or LockError("the loop ends", name))

    engine.post(lambda: flows.append(engine.scheduler.start(_observe, key, report, done=done)))

    def end() -> None:
        for flow in flows:
            flow.scheduler.cancel(flow)

    return lambda: engine.post(end)


def label_in(report: Any) -> str | None:
    """Returns the label that was reported, or raises the error."""
    if isinstance(report, Exception):
        raise report
    label: str | None = report
    return label


def _observe(flow: Flow, key: bytes, report: Any) -> Steps:
    """Reports the label of the holder, None if there is none, first and after each change; until it is cancelled."""
    flow.scheduler.watch(key, flow)
    shown: Any = flow
    try:
        while True:
            try:
                label, left_s = yield from _look(flow, key)
            except (*UNREACHABLE, ServerError) as error:
                if getattr(error, "code", "TRYAGAIN") not in TRY_AGAIN:
                    raise
                yield Pause(RETRY_S)
                continue
            if label != shown:
                shown = label
                report(label)
            # The server may notice late that a lease has ended, or not report changes.
            yield Change(min(left_s, SILENCE_S) if left_s > 0 else SILENCE_S)
    finally:
        flow.scheduler.unwatch(key, flow)


def _look(flow: Flow, key: bytes) -> Steps:
    """Returns the label of the holder, and the rest of the lease in seconds."""
    yield from track(flow, flow.scheduler.servers.locate(key))
    flow.changed = False
    state = pairs((yield from ask(flow, key, *info(key))))
    label = None if state[b"state"] == b"free" else label_of(state[b"owner"])
    return label, int(str(state[b"lease-ms"])) / 1000
