# Made from _async/node.py by generate.py.
"""One server, with all that the package has there: connections, the listener, and what is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import scripts
from ..errors import ANSWERED, UNREACHABLE, ModuleNeededError
from ..protocol import ELSEWHERE, PASSING, Request, Word, code, info
from ..source import Source
from . import runtime
from .connections import Connections
from .keeper import Keeper
from .listener import Listener

if TYPE_CHECKING:
    from .client import Client

#: For how long scripts are used after the server has said that it has no module, in seconds.
SCRIPTS_S = 5.0
#: How long to try to withdraw where there is no lease, and the first pause between two tries, in seconds.
WITHDRAW_S, WITHDRAW_PAUSE_S = 60.0, 0.1


class Node:
    """Sends commands to one server, as scripts where it does not have the module."""

    def __init__(self, source: Source, client: Client) -> None:
        self.source = source
        self.client = client
        self.worker = runtime.Worker()
        self.keeper = Keeper(self)
        self.listener = Listener(source, self.keeper.changed, self.keeper.watches)
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

    def call(self, words: list[Word], again: bool = True, ahead: bool = True) -> Any:
        """The answer to a command, from another server if the key has gone ``ahead`` of its slot."""
        try:
            return self.connections.call(words, again)
        except ANSWERED as error:
            if not ahead or code(error) != "ASK":
                raise
            return self.client.ahead(self, error).connections.call(words, again, asking=True)

    def ask(self, words: list[Word], again: bool = True, ahead: bool = True) -> Any:
        """The answer to a LOCK command; None and ``native`` False if the server does not know it."""
        try:
            answer = self.call(words, again, ahead)
        except ANSWERED as error:
            if code(error) == "UNKNOWN":
                self.native = False
                self._scripts_until = runtime.now() + SCRIPTS_S
                return None
            self.native = True
            raise
        self.native = True
        return answer

    def _either(self, words: list[Word], script: list[Word] | None, again: bool = True) -> Any:
        if self.may_be_native:
            answer = self.ask(words, again)
            if self.native:
                return answer
        if script is None:
            raise ModuleNeededError(f"{words[0]!s} needs the module redis-lock, which this server does not have")
        return self.call(script, again)

    def wait(self, request: Request, block_ms: int) -> Any:
        """Asks for the lock, and to be told when it is granted. Only who has the slot can tell, so ASK is an error."""
        words = request.take(block_ms=block_ms, channel=self.listener.channel)
        return self.ask(words, ahead=False)

    def take(self, request: Request, hold: int = 1) -> int | None:
        """Asks for the lock, or for the n-th hold of it, without waiting."""
        script = None if request.needs_module else scripts.take(request)
        return self._either(request.take(hold), script)  # type: ignore[no-any-return]

    def release(self, request: Request, hold: int | None = None) -> int:
        """Gives up the lock, or its n-th hold; how many remain. What is sent again, and then gone, was released."""
        script = None if hold is not None else scripts.release(request)
        try:
            return self._either(request.release(hold), script, again=False) or 0
        except UNREACHABLE:
            try:
                return self._either(request.release(hold), script) or 0
            except ANSWERED as error:
                if code(error) not in ("NOTHELD", "NOTOWNER"):
                    raise
                return 0

    def extend(self, request: Request, lease_ms: int, add: bool = False) -> int:
        """Sets the lease, or adds to it; what remains of it in milliseconds. An addition is sent only once."""
        script = scripts.extend(request, lease_ms, add)
        return self._either(request.extend(lease_ms, add), script, again=not add)  # type: ignore[no-any-return]

    def fence(self, request: Request, counter: bytes) -> int:
        """Draws a fencing token."""
        return self._either(request.fence(counter), None)  # type: ignore[no-any-return]

    def info(self, key: bytes) -> dict[bytes, object]:
        """Who holds the lock."""
        return info(self._either(["LOCK.INFO", key], scripts.info(key)))

    def share(self, request: Request) -> bool:
        """Whether a share is held: LOCK.INFO does not name those who hold one."""
        end = self.call(["ZSCORE", request.key, request.token])
        if end is None:
            return False
        # It may still be there when its time has passed.
        seconds, microseconds = self.connections.call(["TIME"])
        return float(end) >= int(seconds) * 1000 + int(microseconds) // 1000

    def withdraw(self, request: Request, exchanges: runtime.Exchanges, since: float) -> None:
        """Leaves the line, or gives up the lock if it was granted, however long it takes to reach the server."""
        try:
            settled = self.connections.settle()
            under_way = exchanges.under_way
            self._give_up(request)
            exchanges.settle()
            if under_way:
                # It may have come after, even if it was answered before.
                self._give_up(request)
            elif not settled:
                self._withdraw_again(request, exchanges, since)
        except UNREACHABLE:
            self._withdraw_again(request, exchanges, since)
        except ANSWERED as error:
            if code(error) in PASSING + ELSEWHERE:
                self._withdraw_again(request, exchanges, since)

    def _give_up(self, request: Request) -> None:
        try:
            while self.release(request):
                pass  # One more hold.
        except ANSWERED as error:
            if code(error) not in ("NOTHELD", "NOTOWNER", "WRONGTYPE"):
                raise

    def _withdraw_again(self, request: Request, exchanges: runtime.Exchanges, since: float) -> None:
        """Does it once more after a pause, at the server that has the key then."""
        waited = runtime.now() - since
        if waited < (WITHDRAW_S if request.lease_ms is None else request.lease_ms / 1000):
            pause = min(max(waited, WITHDRAW_PAUSE_S), 2.0)
            node = self.client.successor(self, request.key)
            runtime.call_later(pause, node.worker.do, node.withdraw, request, exchanges, since)

    def close(self) -> None:
        """Closes all connections."""
        self.listener.close()
        self.keeper.close()
        self.connections.close()
