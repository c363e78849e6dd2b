"""The holder of a lock, such as a leader: reported at each change."""

from __future__ import annotations

from typing import Any

from .acquisition import RETRY_S, SILENCE_S, ask
from .connection import track
from .errors import UNREACHABLE, ServerError
from .flow import Change, Flow, Pause, Steps
from .request import TRY_AGAIN, info, label_of, pairs


def observe(flow: Flow, key: bytes, report: Any) -> Steps:
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
