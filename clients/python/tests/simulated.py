"""A simulated server with the module."""

import math
from typing import Any

from simulated_network import NO_REPLY_YET, Link, World

from redis_lock_client import scripts
from redis_lock_client.connection import Push
from redis_lock_client.errors import ServerError

EPOCH_MS = 1_700_000_000_000
FORMS = {b"LOCK.ACQUIRE": "mutex", b"LOCK.REENTER": "reentrant", b"LOCK.SHARE": "shared"}
SCRIPTS = {getattr(scripts, name): name for name in ("TAKE", "RELEASE", "EXTEND", "INFO", "KEEP_FOR_EVER")}


class Held:
    """What the server knows of a holder."""

    def __init__(self, lease: float) -> None:
        self.lease, self.ends, self.grace, self.session = lease, 0.0, 0.0, set[Link]()


class Waiter:
    """A queue entry: the latest request with this token."""

    def __init__(self, form: str, token: bytes, link: Link, options: dict[bytes, Any]) -> None:
        self.form, self.token, self.link, self.options = form, token, link, options


class Lock:
    """The state of a key: its holders by their tokens, and its queue."""

    def __init__(self) -> None:
        self.form, self.held, self.queue = "free", dict[bytes, Held](), list[Waiter]()


class Server:
    """What the module, scripts and the server do, as far as the package uses them."""

    def __init__(self, world: World, version: int = 3, may_subscribe: bool = True) -> None:
        self.world, self.version, self.may_subscribe, self.has_module = world, version, may_subscribe, True
        self.locks, self.links = dict[bytes, Lock](), list[Link]()
        #: Tokens whose lock was deleted by another client.
        self.robbed = set[bytes]()
        self.refuses_until = self.busy_until = self.accepts_at = 0.0

    # ---- what happens to it ------------------------------------------------------------------------------------------

    def delete(self, key: bytes) -> None:
        if key in self.locks:
            self.robbed |= {*self.locks[key].held}
            self.locks[key].held.clear()
            self._changed(key)
            self._review(key)

    def restart(self, has_module: bool) -> None:
        for link in self.links[:]:
            link.cut()
            link.end(0)
        self.has_module = has_module

    def unsubscribe(self, link: Link) -> None:
        """Ends the waits on a connection, as when a slot moves."""
        for channel in link.channels:
            link.reply(Push([b"sunsubscribe", channel, 0]))
        link.channels.clear()
        for lock in self.locks.values():
            lock.queue = [one for one in lock.queue if one.link is not link]

    def closed(self, link: Link) -> None:
        self.links.remove(link)
        for key, lock in [*self.locks.items()]:
            lock.queue = [one for one in lock.queue if one.link is not link]
            for token, held in [*lock.held.items()]:
                if held.session == {link}:
                    self._set_lease(key, token, held.grace)
                held.session.discard(link)
            self._review(key)

    # ---- locks -------------------------------------------------------------------------------------------------------

    def _lock(self, key: bytes) -> Lock:
        """Returns the lock after what has expired was removed."""
        lock = self.locks.setdefault(key, Lock())
        for token, held in [*lock.held.items()]:
            if held.ends <= self.world.now:
                del lock.held[token]
                self._changed(key)
        if not lock.held:
            lock.form = "free"
            if not lock.queue:
                del self.locks[key]
        return lock

    def _set_lease(self, key: bytes, token: bytes, seconds: float) -> None:
        held = self.locks[key].held[token]
        held.ends = self.world.now + seconds
        if seconds < math.inf:
            self.world.after(seconds, lambda: self._review(key))
        self._changed(key)

    def _renew(self, key: bytes, token: bytes, held: Held) -> None:
        """Renews the lease of a session after each third."""
        if key in self.locks and self.locks[key].held.get(token) is held and held.session:
            self._set_lease(key, token, held.lease)
            self.world.after(held.lease / 3, lambda: self._renew(key, token, held))

    def _changed(self, key: bytes) -> None:
        for link in [link for link in self.links if key in link.tracked]:
            link.tracked.discard(key)
            link.reply(Push([b"invalidate", [key]]))

    def _can_have(self, lock: Lock, form: str, options: dict[bytes, Any]) -> bool:
        return not lock.held or (form == lock.form == "shared" and len(lock.held) < options.get(b"LIMIT", math.inf))

    def _review(self, key: bytes) -> None:
        """Grants to the first waiters."""
        if key in self.locks:
            lock = self._lock(key)
            while lock.queue and self._can_have(lock, lock.queue[0].form, lock.queue[0].options):
                first = lock.queue.pop(0)
                self._hold(key, lock, first)
                self._end_wait(key, first, "granted")

    def _end_wait(self, key: bytes, waiter: Waiter, event: str) -> None:
        channel, link = waiter.options.get(b"NOTIFY"), waiter.link
        if channel is not None:
            link.reply(Push([b"smessage", channel, b"%b 0 0 %b %b" % (event.encode(), waiter.token, key)]))
        else:
            link.is_blocked = False
            link.reply(1 if event == "granted" else None)
            link.go_on()

    def _hold(self, key: bytes, lock: Lock, waiter: Waiter) -> None:
        lock.form, options = waiter.form, waiter.options
        lease, held = options.get(b"PX", math.inf) / 1000, lock.held.get(waiter.token)
        if held is None:
            held = lock.held[waiter.token] = Held(lease)
            self.robbed.discard(waiter.token)
        if (lease < math.inf and held.ends < self.world.now + lease) or not held.ends:
            self._set_lease(key, waiter.token, lease)
        if b"SESSION" in options and waiter.link.is_open:
            held.session.add(waiter.link)
            held.lease, held.grace = lease, options[b"GRACE"] / 1000
            self.world.after(lease / 3, lambda: self._renew(key, waiter.token, held))

    def _time_out(self, key: bytes, waiter: Waiter) -> None:
        if key in self.locks and waiter in self.locks[key].queue:
            self.locks[key].queue.remove(waiter)
            self._end_wait(key, waiter, "timeout")
            self._review(key)

    def _not_held(self, lock: Lock) -> ServerError:
        return ServerError("NOTOWNER Somebody else holds it" if lock.held else "NOTHELD Nobody holds it")

    def _acquire(self, link: Link, form: str, key: bytes, token: bytes, options: dict[bytes, Any]) -> Any:
        lock, waiter = self._lock(key), Waiter(form, token, link, options)
        if token in lock.held:
            assert lock.form == form
            self._hold(key, lock, waiter)
            return 1
        others = [one for one in lock.queue if one.token != token]
        if self._can_have(lock, form, options) and not others:
            self.locks[key], lock.queue = lock, []
            self._hold(key, lock, waiter)
            return 1
        if b"BLOCK" not in options:
            return None
        channel = options.get(b"NOTIFY")
        if channel is not None and channel not in link.channels:
            return ServerError("NOSUBSCRIBER")
        earlier = next((one for one in lock.queue if one.token == token), None)
        lock.queue = [waiter if one is earlier else one for one in lock.queue] + [waiter] * (earlier is None)
        self.world.after(options[b"BLOCK"] / 1000, lambda: self._time_out(key, waiter))
        link.is_blocked = channel is None
        return NO_REPLY_YET if channel is None else "WAITING"

    def _release(self, key: bytes, token: bytes) -> Any:
        lock = self._lock(key)
        held, waits = lock.held.get(token), [one for one in lock.queue if one.token == token]
        for waiter in waits:
            lock.queue.remove(waiter)
            self._end_wait(key, waiter, "withdrawn")
        if held is None:
            self._review(key)
            return None if waits else self._not_held(lock)
        del lock.held[token]
        self._changed(key)
        self._review(key)
        return 0

    def _extend(self, key: bytes, token: bytes, lease_ms: int, add: bool) -> Any:
        lock = self._lock(key)
        held = lock.held.get(token)
        if held is None:
            return self._not_held(lock)
        if held.ends == math.inf:
            return ServerError("NOLEASE")
        lease_ms += int((held.ends - self.world.now) * 1000) if add else 0
        held.lease = lease_ms / 1000
        self._set_lease(key, token, held.lease)
        return lease_ms

    def _info(self, link: Link, key: bytes) -> list[Any]:
        lock = self._lock(key)
        end = max((held.ends for held in lock.held.values()), default=math.inf)
        if link.tracks:
            link.tracked.add(key)
        owner, left = next(iter(lock.held), None), -1 if end == math.inf else int((end - self.world.now) * 1000)
        return ["state", lock.form, "owner", owner if lock.form != "shared" else None, "lease-ms", left]

    # ---- commands ----------------------------------------------------------------------------------------------------

    def execute(self, link: Link, words: list[bytes]) -> Any:
        name = words[0]
        if name.startswith(b"LOCK.") and not self.has_module:
            return ServerError(f"ERR unknown command '{name.decode()}', with args beginning with: ")
        is_refused = name.startswith((b"LOCK.", b"EVAL", b"SSUBSCRIBE")) or b"TRACKING" in words
        if is_refused and self.world.now < self.busy_until:
            return ServerError("BUSY Redis is busy running a script")
        match words:
            case [b"CLIENT", b"TRACKING", b"ON"]:
                link.tracks = True
            case [b"HELLO", b"3"]:
                if self.version == 2:
                    return ServerError("NOPROTO unsupported protocol version")
                link.version = 3
                return {"server": b"redis", "proto": 3, "modules": []}
            case [b"SSUBSCRIBE", channel]:
                if not self.may_subscribe:
                    return ServerError("NOPERM No permissions to access a channel")
                link.channels.add(channel)
                return Push([b"ssubscribe", channel, 1])
            case [b"ZSCORE", key, token]:
                self._info(link, key)
                held = self._lock(key).held.get(token)
                return None if held is None else float(held.ends * 1000 + EPOCH_MS)
            case [b"TIME"]:
                micros = int(self.world.now * 1_000_000) + EPOCH_MS * 1000
                return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]
            case [b"EVAL", text, b"1", key, *rest]:
                return self._run_script(link, SCRIPTS[text.decode()], key, rest)
            case [b"LOCK.INFO", key]:
                info = [*self._info(link, key), "waiters", len(self._lock(key).queue)]
                return dict(zip(info[::2], info[1::2], strict=True))
            case [_, key, token, *rest] if name.startswith(b"LOCK."):
                return self._lock_command(link, name, key, token, rest)
        return "OK"

    def _lock_command(self, link: Link, name: bytes, key: bytes, token: bytes, rest: list[bytes]) -> Any:
        words, options = iter(rest), dict[bytes, Any]()
        for word in words:
            value = b"1" if word in (b"SESSION", b"ADD") else next(words)
            options[word] = value if word == b"NOTIFY" else int(value)
        if name in FORMS:
            return self._acquire(link, FORMS[name], key, token, options)
        if name == b"LOCK.RELEASE":
            return self._release(key, token)
        assert name == b"LOCK.EXTEND", name
        return self._extend(key, token, options[b"PX"], b"ADD" in options)

    def _run_script(self, link: Link, name: str, key: bytes, rest: list[bytes]) -> Any:
        if name == "INFO":
            return self._info(link, key)
        token, first, second = (*rest, b"", b"")[:3]
        if name == "RELEASE":
            return self._release(key, token)
        if name == "EXTEND":
            return self._extend(key, token, int(first), second == b"1")
        if name == "KEEP_FOR_EVER":
            lock = self._lock(key)
            return self._not_held(lock) if token not in lock.held else self._set_lease(key, token, math.inf) or 1
        form = "reentrant" if second == b"hash" else "mutex"
        return self._acquire(link, form, key, token, {b"PX": int(first)} if first else {})
