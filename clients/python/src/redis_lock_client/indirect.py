"""Commands of a client that executes them in its own way: fakeredis, or a client with key prefixes."""

from __future__ import annotations

from typing import Any

from .connection import Connection
from .errors import ServerError, library_classes

_REPLIES = library_classes("ResponseError")
#: The codes that libraries leave out of the text of these errors.
_CODES = {"NoScriptError": "NOSCRIPT", "ReadOnlyError": "READONLY"}


def execute(connection: Connection, words: list[Any]) -> None:
    """Executes a command by the client, in the caller's thread."""
    try:
        reply = connection.scheduler.source.client.execute_command(*words)
    except Exception as error:
        failed(connection, error)
    else:
        connection.reply(normal(reply))


def failed(connection: Connection, error: Exception) -> None:
    """Reports the exception that a client has raised."""
    if isinstance(error, _REPLIES):
        code = getattr(error, "status_code", None) or _CODES.get(type(error).__name__)
        text = str(error)
        connection.reply(
            ServerError(f"{code} {text}" if code and code != "ERR" and not text.startswith(code) else text)
        )
    else:
        connection.close(error)


def normal(reply: Any) -> Any:
    """Returns a reply as the server has sent it: text is bytes."""
    if isinstance(reply, str):
        return reply.encode()
    if isinstance(reply, list | tuple):
        return [normal(item) for item in reply]
    if isinstance(reply, dict):
        return {normal(name): normal(value) for name, value in reply.items()}
    return reply
