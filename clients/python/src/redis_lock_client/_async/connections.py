"""The package's own connections to one server, for requests that are answered at once.

They stay open, because requests with NOTIFY and SESSION belong to their connection. So whoever waits or holds is told
when one is lost.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import Word
from ..source import Source
from . import runtime

#: How many connections there are at most; one, as long as no two requests are under way at a time.
LIMIT = 4


class _Place:
    """Where one connection is kept while no exchange is under way on it."""

    def __init__(self) -> None:
        self.guard = runtime.Lock()
        self.connection: Any = None


class Connections:
    """A few connections, each for one exchange at a time."""

    def __init__(self, source: Source, lost: Callable[[], None]) -> None:
        self._source = source
        self._lost = lost
        self._places = [_Place() for _ in range(LIMIT)]
        #: On which an answer has not been waited for, since who asked was interrupted.
        self._interrupted: list[Any] = []

    async def call(self, words: list[Word], again: bool = True, asking: bool = False) -> Any:
        """The answer to a command. It is sent again, once, if its connection turns out to be lost and ``again``.

        With ``asking`` a server answers for a key whose slot is still on its way to it.
        """
        free = (place for place in self._places if not place.guard.locked())
        place = next(free, None) or random.choice(self._places)
        async with place.guard:
            used = place.connection is not None
            try:
                return raised(await self._exchange(place, words, asking))
            except UNREACHABLE as error:
                if not (used and again) or _timed_out(error):
                    raise
            return raised(await self._exchange(place, words, asking))

    async def _exchange(self, place: _Place, words: list[Word], asking: bool) -> Any:
        # Put back only after the whole exchange: an interrupt leaves no connection with half an answer.
        connection, place.connection = place.connection, None
        try:
            connection = connection or self._source.connection()
            if asking:
                await exchange(connection, ["ASKING"])
            answer = await exchange(connection, words)
            place.connection = connection
            return answer
        except runtime.Ended:
            await runtime.close(connection)
            raise
        except UNREACHABLE:
            await runtime.close(connection)
            self._lost()
            raise
        except BaseException:
            self._interrupted.append(connection)
            self._lost()
            raise

    @asynccontextmanager
    async def own(self) -> AsyncIterator[Any]:
        """A connection for requests that block."""
        connection = self._source.connection()
        try:
            yield connection
        except UNREACHABLE:
            await runtime.close(connection)
            raise
        except BaseException:
            self._interrupted.append(connection)
            raise
        await runtime.close(connection)

    async def settle(self) -> bool:
        """Waits until the server has done what those have asked who were interrupted; whether that is known."""
        known = True
        while self._interrupted:
            known &= await runtime.drain(self._interrupted.pop(), self._source.timeout_s)
        return known

    async def close(self) -> None:
        """Closes those that are not in use."""
        for place in self._places:
            connection, place.connection = place.connection, None
            await runtime.close(connection)


async def exchange(connection: Any, words: list[Word]) -> Any:
    """Sends a command and reads the answer; an error of the server is an answer."""
    # Asked for, because under Sentinel only this finds the master. It does nothing if the connection is there.
    await connection.connect()
    await connection.send_command(*words, check_health=False)
    try:
        # Whether it can be used afterwards is decided by who asks.
        return await connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except ANSWERED as error:
        return error


def raised(answer: Any) -> Any:
    """The answer, unless it is an error."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _timed_out(error: Exception) -> bool:
    """Whether the server may still be at work on the request, and another try would only wait again."""
    return "TimeoutError" in {kind.__name__ for kind in type(error).__mro__}
