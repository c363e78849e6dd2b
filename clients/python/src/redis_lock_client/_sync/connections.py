# Made from _async/connections.py by generate.py.
"""The package's own connections to one server, for requests that are answered at once.

They stay open, because requests with NOTIFY and SESSION belong to their connection. So whoever waits or holds is told
when one is lost.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator, Callable
from contextlib import contextmanager
from typing import Any

from ..errors import ANSWERED, UNREACHABLE, NoConnectionError, StandstillError
from ..protocol import Word, code, is_for_session
from ..scripts import taker
from ..source import Source
from . import runtime

#: What leaves a connection in a state that is not known.
BROKEN: tuple[type[BaseException], ...] = (*UNREACHABLE, runtime.Ended)
#: How many connections there are at most, beside that of sessions; one, while no two requests are under way at a time.
LIMIT = 4
#: How many may be kept on which an answer has not been waited for, and how long each is waited for then, in seconds.
UNANSWERED, SETTLE_S = 16, 1.0
#: How late the server may come to a request that was not answered, in seconds; and where its connection is broken.
LATE_S, LATE_BROKEN_S = 60.0, 0.1
#: How often to open a connection anew while the server is a replica, in seconds.
REOPEN_S = 1.0
#: How long to wait for the answer to a PING, in seconds, before it is left to whoever is next on the connection.
PONG_S = 1.0


class Place:
    """Where one connection is kept while no exchange is under way on it."""

    def __init__(self) -> None:
        self.guard = runtime.Lock()
        #: Who has an exchange under way on it.
        self.user: object = None
        self.connection: Any = None
        #: The same, or the one on which something is under way, or was at last.
        self.latest: Any = None
        #: When the server has not answered on it in time; not, if it has answered since.
        self.failed = -math.inf
        #: The answer to a PING is still to come on it.
        self.pinged = False
        #: When that was sent.
        self.pinged_at = -math.inf
        #: When the connection was opened.
        self.opened_at = -math.inf

    @property
    def is_mine(self) -> bool:
        """Whether the exchange under way is the caller's own, who is a signal handler and would wait for ever."""
        return self.guard.locked() and self.user == runtime.user()

    def was_closed(self) -> bool:
        """Whether the server has closed the connection, unless something is under way on it."""

        def has_ended() -> bool:
            return self.connection is not None and not self.pinged and runtime.has_ended(self.connection)

        return runtime.unless_locked(self.guard, has_ended)


class Connections:
    """A few connections, each for one exchange at a time."""

    def __init__(self, source: Source, lost: Callable[[], None]) -> None:
        self._source = source
        self._lost = lost
        self._places = [Place() for _ in range(LIMIT)]
        #: Sessions end with their connection, so it is given up for none of the other requests.
        self._for_sessions = Place()
        #: On which an answer has not been waited for, or not for long enough; and who would have taken a lock by it.
        self._unanswered: list[tuple[Any, Word | None]] = []
        #: Who would have taken a lock by the answers that are being waited for.
        self._awaited: list[Word | None] = []
        self._guard = threading.RLock()
        #: Until when the server may come to a request, of which it is not known whether it has.
        self._late: dict[Word | None, float] = {}
        #: Nobody closes what is opened from now on, for what is done in the background.
        self.closed = False

    def call(self, words: list[Word], again: bool = True, asking: bool = False) -> Any:
        """The answer to a command. It is sent again, once, if its connection turns out to be lost and ``again``.

        With ``asking`` a server answers for a key whose slot is still on its way to it.
        """

        def talk(connection: Any) -> Any:
            if asking:
                exchange(connection, ["ASKING"])
            return exchange(connection, words)

        place = self._for_sessions if is_for_session(words) else self._free_place()
        if place.is_mine:
            raise RuntimeError(
                "a request for a session has been interrupted here, and there cannot be another one meanwhile"
            )
        since, user = runtime.now(), runtime.user()
        with place.guard:
            # At once: a signal handler that comes before would wait for ever.
            place.user = user
            try:
                self._do_not_wait_again(place, since)
                return raised(self._exchange_again(place, talk, taker(words), again))
            finally:
                place.user = None

    def _exchange_again(self, place: Place, talk: Callable[[Any], Any], token: Word | None, again: bool) -> Any:
        if not again:
            self._let_go_if_ended(place)
        used = place.connection is not None
        try:
            return self._exchange(place, talk, token)
        except UNREACHABLE as error:
            if not (used and again) or timed_out(error):
                raise
        try:
            return self._exchange(place, talk, token)
        except UNREACHABLE as error:
            error.was_sent = True  # type: ignore[attr-defined]
            raise

    def _free_place(self) -> Place:
        """One on which nothing is under way, if there is one."""
        free = next((place for place in self._places if not place.guard.locked()), None)
        return free or random.choice([place for place in self._places if not place.is_mine] or self._places)

    def in_session(self, talk: Callable[[Any], Any]) -> Any:
        """What several exchanges on the connection of sessions come to."""
        place, since = self._for_sessions, runtime.now()
        with place.guard:
            self._do_not_wait_again(place, since)
            self._let_go_if_ended(place)
            return raised(self._exchange(place, talk, None))

    def _do_not_wait_again(self, place: Place, since: float) -> None:
        """Raises if the server has not answered others on a connection while it was waited for since then.

        However many ask a server that stands still, none waits for the time-outs of all others.
        """
        if place.failed > since and runtime.now() - since > self._source.timeout_s / 2:
            raise StandstillError("Timeout waiting for a connection on which the server has not answered")

    @property
    def session(self) -> Any:
        """The connection of sessions, if there has been one."""
        return self._for_sessions.latest

    def session_was_closed(self) -> bool:
        """Whether the server has closed the connection of sessions, and with it the sessions."""
        return self._for_sessions.was_closed()

    def let_session_go(self) -> None:
        """Tells those who hold locks by sessions if the server has closed their connection."""
        with self._for_sessions.guard:
            self._let_go_if_ended(self._for_sessions)

    def ping_session(self) -> None:
        """Sends something on the connection of sessions, which others would close if it was idle.

        The answer is not waited for, because that it is late is no reason to give the sessions up.
        """
        place = self._for_sessions
        with place.guard:
            connection, place.connection = place.connection, None
            if connection is None:
                return
            try:
                if not place.pinged:
                    place.pinged_at = runtime.now()
                    connection.send_command("PING", check_health=False)
                self._hear_pong(place, connection, PONG_S)
                place.connection = connection
            except BROKEN as error:
                runtime.close(connection)
                self._lost()
                if isinstance(error, runtime.Ended):
                    raise

    def _hear_pong(self, place: Place, connection: Any, seconds: float) -> None:
        try:
            place.pinged = runtime.receive(connection, seconds) is None
        except ANSWERED:
            place.pinged = False  # There is no right to PING, which is an answer, too.

    def _has_ended(self, place: Place) -> bool:
        """Whether the server has closed a connection, an idle one for instance."""
        try:
            if place.pinged:
                self._hear_pong(place, place.connection, 0)
            return not place.pinged and runtime.has_ended(place.connection)
        except UNREACHABLE:
            return True

    def has_session(self, connection: Any) -> bool:
        """Whether this is still the connection of sessions, and open."""
        place = self._for_sessions
        with place.guard:
            return connection is not None and place.connection is connection and not self._has_ended(place)

    def _exchange(self, place: Place, talk: Callable[[Any], Any], token: Word | None) -> Any:
        # Put back only after the whole exchange: an interrupt leaves no connection with half an answer.
        connection, place.connection = place.connection, None
        try:
            if connection is None:
                connection, place.pinged = self._source.connection(), False
                place.latest, place.opened_at = connection, runtime.now()
            elif place.pinged:
                # The time-out counts from when it was sent: a server that was replaced is not waited for once more.
                # But what has come may not be read yet.
                left = place.pinged_at + self._source.timeout_s - runtime.now()
                self._hear_pong(place, connection, max(left, 0.1))
                if place.pinged:
                    raise StandstillError("Timeout waiting for the answer to PING")
            answer = talk(connection)
            if self.closed:
                runtime.close(connection)
            elif self._may_lead_elsewhere(place, answer):
                runtime.close(connection)
                if place is self._for_sessions:
                    self._lost()
            else:
                place.connection, place.failed = connection, -math.inf
            return answer
        except runtime.Ended:
            runtime.close(connection)
            self._lost()
            raise
        except UNREACHABLE as error:
            if timed_out(error):
                place.failed = runtime.now()
            self._give_up(connection, error, token)
            self._lost()
            raise
        except ANSWERED:
            # Nothing is under way on it: it could not be opened, for want of a right or of a database.
            runtime.close(connection)
            self._lost()
            raise
        except BaseException:
            self._unanswered.append((connection, token))
            self._lost()
            raise

    def _may_lead_elsewhere(self, place: Place, answer: Any) -> bool:
        """Whether the address may be that of another server by now, to which only a new connection leads."""
        is_refused = isinstance(answer, ANSWERED) and code(answer) == "READONLY"
        return is_refused and runtime.now() - place.opened_at > REOPEN_S

    def _let_go_if_ended(self, place: Place) -> None:
        """Closes a connection that the server has closed before anything is sent on it."""
        if place.connection is not None and self._has_ended(place):
            connection, place.connection = place.connection, None
            runtime.close(connection)
            self._lost()

    def _give_up(self, connection: Any, error: Exception, token: Word | None) -> None:
        """Closes a connection; not yet, if the server may come to a request on it that takes a lock."""
        if token is None or not timed_out(error) or not runtime.is_open(connection):
            runtime.close(connection)
        elif len(self._unanswered) < UNANSWERED:
            self._unanswered.append((connection, token))
        else:
            self._late[token] = runtime.now() + LATE_S
            runtime.close(connection)

    @contextmanager
    def own(self, token: bytes) -> Iterator[Any]:
        """A connection for requests that block."""
        connection = self._source.connection()
        try:
            yield connection
        except UNREACHABLE as error:
            self._give_up(connection, error, token)
            raise
        except ANSWERED:
            runtime.close(connection)
            raise
        except BaseException:
            self._unanswered.append((connection, token))
            raise
        runtime.close(connection)

    def settle(self, token: bytes) -> bool:
        """Waits until the server has done what was asked for a token without an answer; whether that is known."""
        while unanswered := self._next_unanswered(token):
            connection, taker = unanswered
            late_s = LATE_BROKEN_S
            try:
                if runtime.drain(connection, min(self._source.timeout_s, SETTLE_S)):
                    late_s = 0.0
            except TimeoutError:
                late_s = LATE_S
            finally:
                self._late[taker] = max(self._late.get(taker, 0.0), runtime.now() + late_s)
                self._awaited.remove(taker)
        for taker, until in list(self._late.items()):
            if until <= runtime.now():
                self._late.pop(taker, None)
        with self._guard:
            return token not in self._late and token not in self._awaited

    def in_doubt(self, token: bytes) -> bool:
        """Whether the server may yet come to a request by which the token would take a lock."""
        with self._guard:
            unanswered = any(taker == token for _, taker in self._unanswered)
            return unanswered or token in self._awaited or self._late.get(token, 0.0) > runtime.now()

    def _next_unanswered(self, token: bytes) -> tuple[Any, Word | None] | None:
        """One that is of the token, or of nobody. Others wait for theirs, so that nobody waits for all."""
        with self._guard:
            for found in [entry for entry in self._unanswered if entry[1] in (None, token)]:
                # A signal handler may have taken it.
                if found in self._unanswered:
                    self._unanswered.remove(found)
                    # Others may settle meanwhile: to them it is not known.
                    self._awaited.append(found[1])
                    return found
            return None

    def close(self) -> None:
        """Closes those that are not in use, and the others after that."""
        self.closed = True
        for place in (*self._places, self._for_sessions):
            connection, place.connection = place.connection, None
            runtime.close(connection)


def exchange(connection: Any, words: list[Word]) -> Any:
    """Sends a command and reads the answer; an error of the server is an answer."""
    # Asked for, because under Sentinel only this finds the master. It does nothing if the connection is there.
    try:
        connection.connect()
    except UNREACHABLE as error:
        error.was_sent = False  # type: ignore[attr-defined]
        raise
    except ANSWERED:
        raise
    except Exception as error:
        # Such as that of who provides credentials: it is tried again like any other.
        raise NoConnectionError(f"No connection could be made: {error!r}") from error
    connection.send_command(*words, check_health=False)
    try:
        # Whether it can be used afterwards is decided by who asks.
        return connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except ANSWERED as error:
        return error


def raised(answer: Any) -> Any:
    """The answer, unless it is an error."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def was_sent(error: Exception) -> bool:
    """Whether the server may have got the request."""
    return getattr(error, "was_sent", True)


def timed_out(error: Exception) -> bool:
    """Whether the server may still be at work on the request, and another try would only wait again."""
    return "TimeoutError" in {kind.__name__ for kind in type(error).__mro__}
