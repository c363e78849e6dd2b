"""Commands of a client that executes them in its own way: fakeredis, or a client with key prefixes."""

from __future__ import annotations

from typing import Any

from .connection import Connection, Sent
from .errors import ServerError, library_classes

_REPLIES = library_classes("ResponseError")
#: The codes that libraries leave out of the text of these errors.
_CODES = {"NoScriptError": "NOSCRIPT", "ReadOnlyError": "READONLY"}


def execute(connection: Connection) -> None:
    """Executes the commands that are to be sent, by the client, in the caller's thread."""
    while connection.sent:
        sent, result = connection.sent[0], None
        try:
            result = connection.scheduler.source.client.execute_command(*sent.words)
        except Exception as error:
            result = error
        answer(connection, sent, result)


async def execute_async(connection: Connection) -> None:
    """Executes the commands that are to be sent, by the client, one after another."""
    while connection.sent:
        sent, result = connection.sent[0], None
        try:
            result = await connection.scheduler.source.client.execute_command(*sent.words)
        except BaseException as error:
            result = error
            if not isinstance(error, Exception):
                raise
        finally:
            answer(connection, sent, result)


def answer(connection: Connection, sent: Sent, result: Any) -> None:
    """Reports what a client has returned or raised, unless the connection was closed before."""
    if not connection.sent or connection.sent[0] is not sent:
        return
    reply = plain(result)
    if isinstance(reply, BaseException) and not isinstance(reply, ServerError):
        connection.close(reply)
    else:
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
