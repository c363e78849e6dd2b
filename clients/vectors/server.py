"""The server that player.py plays: what it does by itself, without a line of the transcript."""
import collections, queue, socket, threading, time

VALUED = {"PX", "EX", "BLOCK", "NOTIFY", "LIMIT", "HOLD", "MAXWAITERS", "GRACE"}
READS = {"LOCK.INFO", "GET", "HGET", "ZSCORE", "ZMSCORE"}
FORMS = {"LOCK.ACQUIRE": "mutex", "LOCK.REENTER": "reentrant", "LOCK.SHARE": "shared"}


def encode(value):
    match value:
        case None: return b"_\r\n"
        case bytes(): return value
        case int(): return b":%d\r\n" % value
        case str(): return b"$%d\r\n%b\r\n" % (len(value.encode()), value.encode())
        case dict(): return b"%%%d\r\n" % len(value) + b"".join(encode(one) for pair in value.items() for one in pair)
    return b"*%d\r\n" % len(value) + b"".join(map(encode, value))


def push(*items):
    return b">" + encode(list(items))[1:]


def value_of(text):
    return encode(text[1:]) if text.startswith("$") else text.encode() + b"\r\n"


def parts(words):
    """Returns a command as a list of words and a dictionary of options."""
    if words[0] not in FORMS and words[0] != "LOCK.EXTEND":
        return words, {}
    rest, options = iter(words[3:]), {}
    for word in rest:
        options[word] = next(rest) if word in VALUED else ""
    return words[:3], options


class Connection:
    """A connection of the client: replies leave it in the order of the commands."""

    def __init__(self, server, sock):
        self.server, self.sock, self.replies, self.channels, self.tracks = server, sock, collections.deque(), set(), False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connections.append(self)  # Before its first command, behind which the next line may close it.
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            lines = self.sock.makefile("rb")
            while head := lines.readline():
                words = []
                for _ in range(int(head[1:])):
                    size = int(lines.readline()[1:])
                    words.append(lines.read(size + 2)[:-2].decode())
                with self.server.lock:
                    slot = [None]
                    self.replies.append(slot)
                    self.server.command(self, words, slot)
        except (OSError, ValueError):
            pass

    def reply(self, slot, data):
        slot[0] = data
        while self.replies and self.replies[0][0] is not None and not self.server.silent:
            self.write(self.replies.popleft()[0])

    def write(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            pass


class Server:
    """A server and its locks."""

    def __init__(self):
        self.lock, self.commands = threading.RLock(), queue.Queue()
        self.always, self.silent, self.module, self.unread, self.busy = {}, False, True, None, None
        self.connections, self.held = [], {}
        self.port = 0
        self.bind()
        self.listen()

    def bind(self):
        """Takes the port, where connections are refused until it listens. Between `down` and `up` no other transcript gets it."""
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", self.port))
        self.port = self.socket.getsockname()[1]

    def listen(self):
        def accept(server):
            try:
                while True:
                    Connection(self, server.accept()[0])
            except OSError:
                pass
        self.socket.listen()
        self.accepting = threading.Thread(target=accept, args=(self.socket,), daemon=True)
        self.accepting.start()

    def close(self):
        try:
            # It ends accept(), which would otherwise go on at the next socket with this descriptor.
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.accepting.join()
        self.socket.close()

    def command(self, connection, words, slot):
        words[0] = words[0].upper()
        name, key = words[0], words[1] if len(words) > 1 else ""
        is_read = name in READS or (name == "EVAL" and len(words) == 4)
        read = words[-1] if name == "EVAL" else key
        if is_read and self.unread == read:
            self.unread = None
            self.cut()
        elif (is_read or name == "CLIENT") and self.busy in (read, read.upper()):
            self.busy = None
            connection.reply(slot, b"-BUSY Redis is busy running a script\r\n")
        elif name.startswith("LOCK.") and not self.module:
            connection.reply(slot, f"-ERR unknown command '{name}', with args beginning with: \r\n".encode())
        elif is_read and name in ("LOCK.INFO", "EVAL"):
            form, token, _ = self.holder(words[-1])
            left = self.left(words[-1])
            info = {"state": form, "owner": token, "lease-ms": left, "waiters": 0}
            flat = [one for pair in info.items() for one in pair]
            connection.reply(slot, encode(info if name == "LOCK.INFO" else flat))
        elif data := self.always.get(f"{name}/{key}", self.always.get(name)):
            self.note(words, data, time.time())
            connection.reply(slot, data)
        elif name.startswith(("LOCK.", "EVAL")):
            self.commands.put((connection, words, slot, time.time()))
        else:
            connection.reply(slot, self.read(connection, name, key, words))

    def review(self):
        """Passes commands without reply once more, because what they get may have changed."""
        with self.lock:
            for _ in range(self.commands.qsize()):
                if command := self.commands.get():
                    self.command(*command[:3])
                else:
                    self.commands.put(None)

    def read(self, connection, name, key, words):
        form, token, ends = self.holder(key)
        is_member = len(words) > 2 and token == words[2]
        match name:
            case "HELLO": return encode({"server": "redis", "version": "8.0.0", "proto": 3, "id": 1, "mode": "standalone", "role": "master", "modules": []})
            case "CLIENT" if key.upper() == "TRACKING": connection.tracks = True
            case "CLIENT" if key.upper() == "ID": return encode(1)
            case "SSUBSCRIBE":
                connection.channels.add(key)
                return push("ssubscribe", key, 1)
            case "GET": return encode(token if form == "mutex" else None)
            case "HGET": return encode("1" if is_member else None)
            case "ZSCORE": return b",%d\r\n" % (ends * 1000) if is_member else encode(None)
            case "ZMSCORE": return encode([ends if one == token else None for one in words[2:]])
            case "TIME": return encode([str(int(time.time())), str(int(time.time() % 1 * 1e6))])
            case "PING": return b"+PONG\r\n"
        return b"+OK\r\n"

    def holder(self, key):
        return self.held.get(key, ("free", None, 0))

    def left(self, key):
        return int((self.held[key][2] - time.time()) * 1000) if key in self.held else -2

    def note(self, words, data, arrived):
        """Notes what a command and its reply say of the holder."""
        (name, key, token, *_), options = parts([*words, "", ""]) if len(words) < 3 else parts(words)
        if name in FORMS and data == b":1\r\n":
            # A server renews a session.
            lease = 1e9 if "SESSION" in options else int(options.get("PX", 1e9))
            self.held[key] = (FORMS[name], token, arrived + lease / 1000)
        elif name == "LOCK.EXTEND" and data[:1] == b":" and key in self.held:
            self.held[key] = (*self.held[key][:2], arrived + int(options["PX"]) / 1000)
        elif name == "LOCK.RELEASE" and data[:1] == b":":
            self.changed(key)

    def changed(self, key, holder=None):
        if self.held.pop(key, None) or holder:
            self.held |= {key: holder} if holder else {}
            for connection in self.connections:
                if connection.tracks:
                    connection.write(push("invalidate", [key]))

    def cut(self):
        connections, self.connections = self.connections, []  # A client may be back immediately.
        for connection in connections:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
