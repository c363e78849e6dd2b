# Made from _async/connections.py by generate.py.
"""The package's own connections to one server, for requests that are answered at once.

They stay open, because requests with NOTIFY and SESSION belong to their connection. So whoever waits or holds is told
when one is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Callable
from contextlib import contextmanager
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import Word
from ..source import Source
from . import runtime

#: How many connections there are at most; one, as long as no two requests are under way at a time.
LIMIT = 4


class Connections:
    """A few connections, each for one exchange at a time."""

    def __init__(self, source: Source, lost: Callable[[], None]) -> None:
        self._source = source
        self._lost = lost
        self._free: list[Any] = []
        self._places = runtime.Semaphore(LIMIT)

    def call(self, words: list[Word], again: bool = True) -> Any:
        """The answer to a command. It is sent again, once, if its connection turns out to be lost and ``again``."""
        with self._places:
            try:
                used, connection = True, self._free.pop()
            except IndexError:
                used, connection = False, self._source.connection()
            try:
                answer = self._exchange(connection, words)
            except UNREACHABLE as error:
                if not (used and again) or _timed_out(error):
                    raise
                # The others are as old as this one was.
                self._forget()
                connection = self._source.connection()
                answer = self._exchange(connection, words)
            self._free.append(connection)
        return raised(answer)

    def _exchange(self, connection: Any, words: list[Word]) -> Any:
        try:
            return exchange(connection, words)
        except runtime.Ended:
            runtime.close(connection)
            raise
        except BaseException:
            runtime.close(connection)
            self._lost()
            raise

    def _forget(self) -> None:
        while self._free:
            runtime.close(self._free.pop())

    @contextmanager
    def own(self) -> Iterator[Any]:
        """A connection for requests that block."""
        connection = self._source.connection()
        try:
            yield connection
        finally:
            runtime.close(connection)

    def close(self) -> None:
        """Closes those that are not in use."""
        self._forget()


def exchange(connection: Any, words: list[Word]) -> Any:
    """Sends a command and reads the answer; an error of the server is an answer."""
    # Asked for, because under Sentinel only this finds the master. It does nothing if the connection is there.
    connection.connect()
    connection.send_command(*words, check_health=False)
    try:
        return connection.read_response(disable_decoding=True)
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
