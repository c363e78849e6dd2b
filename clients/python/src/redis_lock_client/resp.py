"""The Redis protocol: commands to bytes, bytes to replies, in its versions 2 and 3. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .errors import ServerError

Word = str | bytes | int


class Push(list[Any]):
    """A message that is not the reply to a command."""


class BadReply(ValueError):
    """What was received is not a reply."""


class _Incomplete(Exception):
    pass


def _number(kind: Callable[[bytes], Any], line: bytes) -> Any:
    try:
        return kind(line)
    except ValueError as error:
        raise BadReply(str(error)) from error


def encode(words: Sequence[Word]) -> bytes:
    """Returns the bytes of a command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


#: How replies of one line are read, by their first byte.
_LINES: dict[str, Callable[[bytes], Any]] = {
    "+": bytes,
    "-": lambda line: ServerError(line.decode(errors="replace")),
    ":": partial(_number, int),
    ",": partial(_number, float),
    "_": lambda _: None,
}


class Parser:
    """Turns received bytes into replies. An error of the server is a reply, an instance of ServerError."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yields the replies that are complete. Raises BadReply for other bytes."""
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
        if kind in _LINES:
            return _LINES[kind](line), position
        if kind not in "$*>%":
            raise BadReply(f"not a reply: {kind + line.decode(errors='replace')!r}")
        size = _number(int, line)
        if size < 0:
            return None, position
        if kind == "$":
            end = position + size
            if len(self._buffer) < end + 2:
                raise _Incomplete
            return bytes(self._buffer[position:end]), end + 2
        items: list[Any] = Push() if kind == ">" else []
        for _ in range(2 * size if kind == "%" else size):
            item, position = self._read(position)
            items.append(item)
        return dict(zip(items[::2], items[1::2], strict=True)) if kind == "%" else items, position
