"""One server, with all that the package has there: connections, the listener, and what is held."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import scripts
from ..errors import ANSWERED, UNREACHABLE, ModuleNeededError
from ..protocol import ELSEWHERE, PASSING, Request, Word, code, hash_tag, info
from ..source import Source
from . import runtime
from .connections import Connections, exchange, raised
from .keeper import Keeper
from .listener import Listener

if TYPE_CHECKING:
    from .client import Client

#: For how long scripts are used after the server has said that it has no module, in seconds.
SCRIPTS_S = 5.0
#: How long to try to withdraw where there is no lease, and the first and the longest pause between two tries, in
#: seconds.
WITHDRAW_S, WITHDRAW_PAUSE_S, WITHDRAW_LAST_PAUSE_S = 60.0, 0.1, 30.0

#: In place of an answer: the server does not have the module.
UNKNOWN = object()


class Node:
    """Sends commands to one server, as scripts where it does not have the module."""

    def __init__(self, source: Source, client: Client) -> None:
        self.source = source
        self.client = client
        #: Sees to what is held; nothing that is given up holds it up, or the locks would be lost.
        self.worker = runtime.Worker()
        #: Gives up.
        self.withdrawer = runtime.Worker()
        self.keeper = Keeper(self)
        self.listener = Listener(source, self.keeper.changed, self.keeper.watched)
        self.connections = Connections(source, self._connection_lost)
        #: Whether the server has the module, as far as is known.
        self.native: bool | None = None
        self._scripts_until = 0.0

    def _connection_lost(self) -> None:
        self.listener.lose_all()
        self.keeper.changed(None)

    @property
    def may_be_native(self) -> bool:
        """Whether to ask for the module (again)."""
        return runtime.now() >= self._scripts_until

    async def call(self, words: list[Word], again: bool = True, ahead: bool = True) -> Any:
        """The answer to a command, from another server if the key has gone ``ahead`` of its slot."""
        try:
            return await self.connections.call(words, again)
        except ANSWERED as error:
            if not ahead or code(error) != "ASK":
                raise
            return await self.client.ahead(self, error).connections.call(words, again, asking=True)

    async def ask(self, words: list[Word], again: bool = True, ahead: bool = True) -> Any:
        """The answer to a LOCK command; UNKNOWN if the server does not know it.

        ``native`` is for all threads, so it does not tell what has become of this command.
        """
        try:
            answer = await self.call(words, again, ahead)
        except ANSWERED as error:
            if code(error) == "UNKNOWN":
                self.native = False
                self._scripts_until = runtime.now() + SCRIPTS_S
                return UNKNOWN
            self.native = True
            raise
        self.native = True
        return answer

    async def _either(self, words: list[Word], script: list[Word] | None, again: bool = True) -> Any:
        if self.may_be_native:
            answer = await self.ask(words, again)
            if answer is not UNKNOWN:
                return answer
        if script is None:
            raise ModuleNeededError(f"{words[0]!s} needs the module redis-lock, which this server does not have")
        return await self.call(script, again)

    async def wait(self, request: Request, block_ms: int) -> Any:
        """Asks for the lock, and to be told when it is granted. Only who has the slot can tell, so ASK is an error."""
        channel = self.listener.channel
        try:
            return await self.ask(request.take(block_ms=block_ms, channel=channel), ahead=False)
        except ANSWERED as error:
            if code(error) == "NOSUBSCRIBER":
                self.listener.is_deaf(channel)
            raise

    async def take(self, request: Request, hold: int = 1) -> int | None:
        """Asks for the lock, or for the n-th hold of it, without waiting."""
        script = None if request.needs_module else scripts.take(request, hold)
        return await self._either(request.take(hold), script)  # type: ignore[no-any-return]

    async def release(self, request: Request, hold: int | None = None) -> int:
        """Gives up the lock, or its n-th hold; how many remain. What is sent again, and then gone, was released."""
        script = scripts.release(request if self._can_signal(request) else replace(request, signal=None), hold)
        try:
            return await self._either(request.release(hold), script, again=False) or 0
        except UNREACHABLE:
            if self.client.given.is_anothers(request):
                raise
            try:
                return await self._either(request.release(hold), script) or 0
            except ANSWERED as error:
                if code(error) not in ("NOTHELD", "NOTOWNER"):
                    raise
                return 0

    async def release_for_good(self, request: Request, hold: int | None, exchanges: runtime.Exchanges) -> bool:
        """Gives up the lock, or its n-th hold, and in the background what the server may come to later.

        That is a request which was not answered in time: another one was, which has taken the lock. False if it is not
        given up, because it is another one's by the same token.
        """
        given = self.client.given
        try:
            with given.giving_up(request):
                if given.is_anothers(request):
                    return False
                await self.release(request, hold)
                return True
        finally:
            given.is_over(request)
            if self.connections.in_doubt(request.token):
                await self.begin_to_withdraw(request, exchanges)

    def _can_signal(self, request: Request) -> bool:
        """Whether the list where others wait can be written with the lock: in a cluster it may be elsewhere."""
        if request.signal is None or not self.source.in_cluster:
            return True
        return hash_tag(request.signal[0]) == hash_tag(request.key)

    async def extend(self, request: Request, lease_ms: int, add: bool = False) -> int:
        """Sets the lease, or adds to it; what remains of it in milliseconds. An addition is sent only once."""
        script = None if request.shared else scripts.extend(request, lease_ms, add)
        return await self._either(request.extend(lease_ms, add), script, again=not add)  # type: ignore[no-any-return]

    async def begin_session_anew(self, request: Request) -> bool | None:
        """Asks for the session again where the lock has outlasted it; whether the lock is held.

        It is not taken anew, even if it is lost in between: then somebody else may have had it. None if the key has
        changed meanwhile, so that nothing was done.
        """

        async def talk(connection: Any) -> Any:
            answer = await exchange(connection, ["WATCH", request.key])
            if isinstance(answer, Exception):
                return answer
            answer = await exchange(connection, request.look())
            holds = answer if isinstance(answer, Exception) else _holds(request, answer)
            if isinstance(holds, Exception) or not holds:
                await exchange(connection, ["UNWATCH"])
                return holds
            transaction: list[list[Word]] = [["MULTI"], request.take(holds)]
            for command in transaction:
                answer = await exchange(connection, command)
                if isinstance(answer, Exception):
                    await exchange(connection, ["DISCARD"])
                    await exchange(connection, ["UNWATCH"])
                    return answer
            return await exchange(connection, ["EXEC"])

        answer = await self.connections.in_session(talk)
        if isinstance(answer, list):
            return raised(answer[0]) is not None
        return None if answer is None else False

    async def fence(self, request: Request, counter: bytes) -> int:
        """Draws a fencing token."""
        return await self._either(request.fence(counter), None)  # type: ignore[no-any-return]

    async def info(self, key: bytes) -> dict[bytes, object]:
        """Who holds the lock."""
        return info(await self._either(["LOCK.INFO", key], scripts.info(key)))

    async def share(self, request: Request) -> int | None:
        """What remains of the lease of a share."""
        return await self.left_of_share(await self.call(request.look_at_share()))

    async def left_of_share(self, end: bytes | None) -> int | None:
        """What remains in milliseconds until a lease ends; -1 if it does not end, None if it has."""
        if end is None:
            return None
        if float(end) == math.inf:
            return -1
        # It may still be there when its time has passed.
        seconds, microseconds = await self.connections.call(["TIME"])
        left_ms = int(float(end)) - (int(seconds) * 1000 + int(microseconds) // 1000)
        return left_ms if left_ms >= 0 else None

    async def settle(self, token: bytes) -> None:
        """Waits until the server has done what was asked without an answer, as far as can be."""
        await self.connections.settle(token)

    async def begin_to_withdraw(self, request: Request, exchanges: runtime.Exchanges) -> runtime.Event:
        """Withdraws in the background; the event says when that is done, or when it is left to a later time."""
        since = runtime.now()
        try:
            return self.withdrawer.do(self.withdraw, request, exchanges, since)
        except RuntimeError:
            # No thread can begin: there are too many, or the interpreter is at its end.
            await self.withdraw(request, exchanges, since)
            done = runtime.Event()
            done.set()
            return done

    async def withdraw(self, request: Request, exchanges: runtime.Exchanges, since: float) -> None:
        """Leaves the line, or gives up the lock if it was granted, however long it takes to reach the server."""
        try:
            settled = await self.connections.settle(request.token)
            under_way = exchanges.under_way
            await self.give_up(request)
            await exchanges.settle()
            if under_way:
                # It may have come after, even if it was answered before; and it may not have been answered in time.
                settled = await self.connections.settle(request.token)
                await self.give_up(request)
            if not settled:
                await self._withdraw_again(request, exchanges, since)
        except UNREACHABLE:
            await self._withdraw_again(request, exchanges, since)
        except ANSWERED as error:
            if code(error) in PASSING + ELSEWHERE:
                await self._withdraw_again(request, exchanges, since)

    async def give_up(self, request: Request) -> None:
        """Gives up the lock with all its holds, or the place in line, if there is any.

        Not if the same token was given again since: it would be taken from that.
        """
        given = self.client.given
        with given.giving_up(request):
            try:
                while given.may_be_given_up(request) and await self.release(request):
                    pass  # One more hold.
            except ANSWERED as error:
                if code(error) not in ("NOTHELD", "NOTOWNER", "WRONGTYPE"):
                    raise
            finally:
                given.is_over(request)

    async def _withdraw_again(self, request: Request, exchanges: runtime.Exchanges, since: float) -> None:
        """Does it once more after a pause, at the server that has the key then."""
        waited = runtime.now() - since
        lease_s = WITHDRAW_S if request.lease_ms is None else request.lease_ms / 1000
        # The end of the lease gives up what could not be given up, but not a session's, which the server renews for as
        # long as it takes the connection for open.
        if waited < lease_s or (request.session and (waited < WITHDRAW_S or not self.connections.closed)):
            pause = min(max(waited / 4, WITHDRAW_PAUSE_S), WITHDRAW_LAST_PAUSE_S)
            node = await self.client.successor(self, request.key)
            runtime.call_later(pause, node.withdrawer.do, node.withdraw, request, exchanges, since)

    async def close(self) -> None:
        """Closes all connections."""
        self.listener.close()
        await self.keeper.close()
        await self.connections.close()


def _holds(request: Request, answer: Any) -> int:
    """How many holds the token has, by what the server says of the lock."""
    if request.shared:
        return 0 if answer is None else 1
    told: Any = info(answer)
    return int(told[b"holds"]) if told[b"owner"] == request.token else 0
