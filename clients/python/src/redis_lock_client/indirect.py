"""Commands of a client that executes them in its own way: fakeredis, or a client with key prefixes."""

from typing import Any

from .connection import Connection, Sent
from .errors import Disconnected, ServerError, library_classes

_REPLIES = library_classes("ResponseError")
#: What the libraries raise.
_ERRORS = tuple(one.__base__ for one in library_classes("ConnectionError"))
#: The codes that libraries leave out of the text of these errors.
_CODES = {"ReadOnlyError": "READONLY"}


def execute(connection: Connection) -> None:
    """Executes the commands that are to be sent, by the client, in the caller's thread."""
    while connection.sent:
        sent = connection.sent[0]
        try:
            result = connection.scheduler.source.client.execute_command(*sent.words)
        except Exception as error:
            if connection.engine.is_driven and not isinstance(error, _ERRORS):
                raise  # A signal handler may have raised it.
            result = error
        _answer(connection, sent, plain(result))


async def execute_async(connection: Connection) -> None:
    """Executes the commands that are to be sent, by the client, one after another."""
    while connection.sent:
        sent = connection.sent[0]
        try:
            result = await connection.scheduler.source.client.execute_command(*sent.words)
        except Exception as error:
            result = error
        except BaseException:
            _answer(connection, sent, Disconnected("the task was cancelled", sent=True))
            raise
        _answer(connection, sent, plain(result))


def _answer(connection: Connection, sent: Sent, reply: Any) -> None:
    if not connection.sent or connection.sent[0] is not sent:
        return  # The connection was closed before.
    if isinstance(reply, Exception) and not isinstance(reply, ServerError):
        connection.close(reply)
    else:
        connection.scheduler.heard_at = connection.scheduler.now()
        connection.reply(reply)


def plain(value: Any) -> Any:
    """Returns a reply as the server has sent it: text is bytes, and an error that is one is a ServerError."""
    if isinstance(value, _REPLIES):
        code, text = getattr(value, "status_code", None) or _CODES.get(type(value).__name__), str(value)
        return ServerError(f"{code} {text}" if code and code != "ERR" and not text.startswith(code) else text)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(name): plain(item) for name, item in value.items()}
    return value
