"""The Redis protocol: commands to bytes, bytes to replies, in its versions 2 and 3. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .errors import ServerError

Word = str | bytes | int


class Push(list[Any]):
    """A message that is not the reply to a command."""


class _Incomplete(Exception):
    pass


def encode(words: Sequence[Word]) -> bytes:
    """Returns the bytes of a command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Parser:
    """Turns received bytes into replies. An error of the server is a reply, an instance of ServerError."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yields the replies that are complete. Raises ValueError for bytes that are no reply."""
        self._buffer += data
        position = 0
        try:
            while position < len(self._buffer):
                value, position = self._read(position)
                yield value
        except _Incomplete:
            pass
        finally:
            del self._buffer[:position]

    def _read(self, position: int) -> tuple[Any, int]:
        end = self._buffer.find(b"\r\n", position)
        if end < 0:
            raise _Incomplete
        kind, line, position = chr(self._buffer[position]), bytes(self._buffer[position + 1 : end]), end + 2
        match kind:
            case "+":
                return line, position
            case "-":
                return ServerError(line.decode(errors="replace")), position
            case ":" | "(":
                return int(line), position
            case "$" | "=" | "!":
                return self._read_bulk(kind, int(line), position)
            case "*" | "~" | ">":
                return self._read_items(kind, int(line), position)
            case "%":
                items, position = self._read_items("*", 2 * int(line), position)
                return dict(zip(items[::2], items[1::2], strict=True)), position
            case "_":
                return None, position
            case "#":
                return line == b"t", position
            case ",":
                return float(line), position
        raise ValueError(f"not a reply: {kind + line.decode(errors='replace')!r}")

    def _read_bulk(self, kind: str, size: int, position: int) -> tuple[Any, int]:
        if size < 0:
            return None, position
        end = position + size
        if len(self._buffer) < end + 2:
            raise _Incomplete
        data = bytes(self._buffer[position:end])
        return ServerError(data.decode(errors="replace")) if kind == "!" else data, end + 2

    def _read_items(self, kind: str, count: int, position: int) -> tuple[Any, int]:
        if count < 0:
            return None, position
        items: list[Any] = Push() if kind == ">" else []
        for _ in range(count):
            item, position = self._read(position)
            items.append(item)
        return items, position
