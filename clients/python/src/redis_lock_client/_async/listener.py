"""The one connection on which a server tells how waits end, and which keys have changed."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import ELSEWHERE, News, code, hash_tag
from ..source import Source
from . import runtime
from .connections import exchange, raised

#: Seconds of silence after which something may have got lost; less than lock.rejoin-grace-ms.
SILENCE_S = 5.0
#: How long to stay subscribed when nobody waits, in seconds.
IDLE_S = 60.0
#: From which to which pause it tries to connect again, in seconds.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 0.25
#: For how long not to listen where this user may not, or the server cannot let anybody, in seconds.
REFUSED_S = 60.0


class Wait:
    """Where the news of one token arrive."""

    def __init__(self) -> None:
        self._event = runtime.Event()
        self._news = ""

    def tell(self, news: str) -> None:
        """Notes news. A grant is final: nothing that comes later takes its place."""
        if self._news != "granted":
            self._news = news
        self._event.set()

    async def news(self, timeout: float) -> str:
        """What has been told, or ``lost`` after so many seconds of silence."""
        if not await runtime.wait(self._event, timeout):
            return "lost"
        self._event.clear()
        return self._news


class Listener:
    """Subscribes to a channel of its own while somebody waits, and passes on what comes."""

    def __init__(
        self, source: Source, changed: Callable[[bytes | None], None], watched: Callable[[], bytes | None]
    ) -> None:
        self._source = source
        self._changed = changed
        self._watched = watched
        #: By key and token: a token that a caller has chosen may be for several locks.
        self._waits: dict[tuple[bytes, bytes], Wait] = {}
        #: Locked by whoever listens: there is one at most, however many begin to.
        self._runs = threading.Lock()
        #: Where redis-py sends, a cancellation may get lost (``asyncio.wait_for`` before Python 3.12).
        self._exchanges = runtime.Exchanges()
        self._closed = False
        #: The server does not know that it listens.
        self._deaf = False
        self._used = 0.0
        self._pause = FIRST_PAUSE_S
        #: It has subscribed; it has subscribed or failed to.
        self._ready, self._tried = runtime.Event(), runtime.Event()
        #: The number of its connection, by which another one has the changes of keys sent here.
        self.client_id: int | None = None
        self.channel = b""
        self._refused_until = -math.inf

    @property
    def listens(self) -> bool:
        """Whether it has subscribed."""
        return self._ready.is_set()

    @property
    def refused(self) -> bool:
        """Whether the server has said lately that it does not let this user listen."""
        return runtime.now() < self._refused_until

    def can_serve(self, key: bytes) -> bool:
        """Whether news of this key can come: a channel must belong to a node of a cluster as the key does."""
        return not self.refused and (not self._source.in_cluster or hash_tag(key) is not None)

    def note(self, token: bytes, key: bytes, wait: Wait) -> None:
        """Notes who waits, before anything is sent."""
        self._waits[key, token] = wait

    def forget(self, token: bytes, key: bytes, wait: Wait | None) -> None:
        """Who has noted this waits no more; another one with the same token may wait already."""
        if wait is not None and self._waits.get((key, token)) is wait:
            self._waits.pop((key, token), None)

    def lose_all(self) -> None:
        """Something may have got lost: each wait is asked again."""
        for wait in list(self._waits.values()):
            wait.tell("lost")

    async def ready(self, key: bytes, timeout: float) -> bool:
        """Whether it has subscribed, for which it is given some time."""
        self._used = runtime.now()
        if not self._runs.locked() and not self._closed:
            runtime.spawn(self._run, key)
        # Until the next attempt, however many there have been: whoever asks goes no faster than it does.
        self._tried.clear()
        if not self.listens and not self.refused:
            await runtime.wait(self._tried, min(timeout, LAST_PAUSE_S))
        return self.listens

    def is_deaf(self, channel: bytes) -> None:
        """The server that grants knows nobody on this channel: the address may lead to another one by now."""
        if channel == self.channel:
            self._deaf = True

    def close(self) -> None:
        """Listens no more; takes effect within a few seconds."""
        self._closed = True

    def _wanted(self) -> bytes | None:
        """A key that somebody waits for, or watches."""
        return next((key for key, _ in list(self._waits)), None) or self._watched()

    def _needed(self) -> bool:
        if self._waits or self._watched() is not None:
            self._used = runtime.now()
        return not self._closed and not self.refused and runtime.now() - self._used < IDLE_S

    async def _run(self, key: bytes) -> None:
        if not self._runs.acquire(blocking=False):
            return
        self._pause, ended = FIRST_PAUSE_S, False
        try:
            while self._needed():
                try:
                    await self._stay(key)
                except UNREACHABLE:
                    pass
                if self._needed():
                    await runtime.sleep(self._pause)
                    self._pause = min(self._pause * 2, LAST_PAUSE_S)
                    key = self._wanted() or key
        except runtime.Ended:
            ended = True
            raise
        finally:
            self._runs.release()
            self._tried.set()
            if ended:
                # Somebody has cancelled all tasks of the loop: whoever watches looks, and so begins to listen again.
                self._changed(None)

    async def _stay(self, key: bytes) -> None:
        connection = self._source.connection()
        try:
            self.client_id = await self._exchanges.run(self._subscribe(connection, key))
            self._deaf = False
            self._pause = FIRST_PAUSE_S
            self._ready.set()
            self._tried.set()
            # What was asked before has had no listener.
            self.lose_all()
            self._changed(None)
            await self._listen(connection)
        except ANSWERED as error:
            if code(error) in ("NOPERM", "UNKNOWN"):
                # The right to the channel may be given, and the server be another one, later.
                self._refused_until = runtime.now() + REFUSED_S
            if code(error) in ELSEWHERE:
                self._used = -IDLE_S  # The slot has moved: there is nothing to stay for, unless for other keys.
        finally:
            self._ready.clear()
            self._tried.set()
            self.client_id = None
            await runtime.close(connection)
            self.lose_all()

    async def _subscribe(self, connection: Any, key: bytes) -> int | None:
        """Subscribes; the number of the connection, if it can have the changes of keys."""
        tag = hash_tag(key) if self._source.in_cluster else b"redis-lock"
        self.channel = b"{%b}:%b" % (tag or b"", secrets.token_hex(16).encode())
        client_id: int = raised(await exchange(connection, ["CLIENT", "ID"]))
        raised(await exchange(connection, ["SSUBSCRIBE", self.channel]))
        answer = await exchange(connection, ["SUBSCRIBE", "__redis__:invalidate"])
        return None if isinstance(answer, Exception) else client_id

    async def _listen(self, connection: Any) -> None:
        silent = False
        while self._needed() and not self._deaf:
            try:
                message = await runtime.receive(connection, SILENCE_S)
            except ANSWERED:
                message = [b"pong"]  # There is no right to PING, which is an answer, too.
            if message is not None:
                silent = False
                if not self._hear(message):
                    return
            elif silent:
                return  # Not even an answer to PING.
            else:
                silent = True
                await self._exchanges.run(connection.send_command("PING", check_health=False))

    def _hear(self, message: list[Any]) -> bool:
        match message[0]:
            case b"smessage":
                news = News.read(message[2])
                if wait := self._waits.get((news.key, news.token)):
                    wait.tell(news.event)
            case b"message":
                for key in message[2] or [None]:
                    self._changed(key)
            case b"sunsubscribe":
                return False
        return True
