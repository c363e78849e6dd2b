#!/usr/bin/env python3
"""Plays *.transcript, each with a server that is none and a driver, which is a program of a package.

    player.py [NAME...] -- DRIVER...       all transcripts, or those with a name in theirs; !NAME: all but that one

The driver gets the port as its last argument, prints `ready`, reads steps, and prints what has become of them, a line each:

    acquire ID NAME OPTIONS     ID held, ID timeout; in all steps ID error CLASS, with argument, connection, full, lost, module or server
    try ID NAME OPTIONS         the same without waiting: ID busy
    block ID NAME OPTIONS       the same as a block (with, using, Do): ID held; then after
    end ID, fail ID             the work ends: ID released; by an error: ID failed. `end ID` of other locks does nothing
    release ID, extend ID MS    ID released; ID extended
    fence ID                    ID fence NUMBER
    watch ID                    ID lost, when it is lost
    cancel ID                   ID cancelled: what waits for a lock ends
    detach ID                   ID token TOKEN
    attach ID NAME TOKEN OPTIONS    ID held
    several ID NAME,NAME OPTIONS    ID held, ID timeout; `release` and `watch` are for all of them
    observe ID NAME             ID leader LABEL or ID leader none, now and at each change
    repeat ID N NAME OPTIONS    acquires and releases N times by one signal, context or task: ID left K things there that grow with N

OPTIONS are lease=MS wait=MS permits=N max_waiters=N label=TEXT token=TEXT session renew shared reentrant. Without wait it has no limit.
`unsupported` says that a package has no such thing: the transcript is left out.

A transcript has a line for each thing that happens. `$x` is any word, and the same word from then on; `A..B` a number in a range,
`abc~` a word that begins with abc.

    do STEP                     the driver gets a step
    see OUTCOME [in A..B]       the driver prints this, A to B ms after the latest step; nothing else may come before
    take WORDS                  the client asks for a free lock, with or without BLOCK and NOTIFY: the reply is 1
    wait WORDS                  it asks until it waits: nil without BLOCK, NOSUBSCRIBER without subscription, then WAITING
    poll WORDS                  it asks and does not wait at the server: nil, NOSUBSCRIBER if it tries
    get WORDS                   it sends a command
    reply VALUE                 to the first one without reply: :1, _, +OK, $text, -ERR text
    say EVENT                   the message that ends the wait
    gone NAME, holds NAME TOKEN    another client removes the lock, or writes it with a token, such as the one that holds it
    sleep MS, none MS           time passes; neither a command nor an outcome may come in it
    always NAME[/LOCK] VALUE    a command has this reply from now on, also one that waits for its line, and needs no line
    cut, down, up, silent       connections are closed; no new one is accepted; again; no reply comes any more, on no connection
    cut NAME                    they are closed as soon as the client reads the lock NAME again, in place of the reply
    busy NAME                   the next read of the lock NAME, or CLIENT command with this word, is refused once with -BUSY
    module no                   LOCK commands are unknown until `module yes`

Options of commands may have any order; `...` is any rest. Commands that set up a connection or read a lock have replies of their own:
their order belongs to each package. At the end neither a command nor an outcome may be left.
"""
import collections, concurrent.futures, pathlib, queue, re, shlex, subprocess, sys, threading, time

from server import Server, encode, parts, push, value_of

WAITING = {"BLOCK", "NOTIFY", "MAXWAITERS"}
NO_SUBSCRIBER = b"-NOSUBSCRIBER No client of this server is subscribed to this channel\r\n"
PATIENCE_S = 12.0
# A driver starts slowly on a busy machine: many start together.
START_S = 60.0


class Failure(Exception):
    pass


class Play(Server):
    """One transcript with its server and its driver."""

    def __init__(self, path, driver):
        super().__init__()
        self.path, self.vars, self.outcomes = path, {}, queue.Queue()
        self.got, self.waiter, self.stepped_at = collections.deque(), None, time.monotonic()
        self.driver = subprocess.Popen([*driver, str(self.port)], stdin=-1, stdout=-1, text=True, bufsize=1)
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        for line in self.driver.stdout:
            self.outcomes.put(line.strip())
            if line == "unsupported\n":
                self.commands.put(None)

    def same(self, expected, found):
        if expected.startswith("$"):
            return self.vars.setdefault(expected, found) == found
        if limits := re.fullmatch(r"(\d+)\.\.(\d+)", expected):
            return found.isdigit() and int(limits[1]) <= int(found) <= int(limits[2])
        return expected in (found, "*") or (expected.endswith("~") and found.startswith(expected[:-1]))

    def matches(self, expected, words, ignored=(), is_bare=False):
        is_open = expected[-1] == "..."
        (head, options), (found, given) = parts(expected[: -1 if is_open else None]), parts(words)
        options = {name: value for name, value in options.items() if not is_bare or name not in ignored}
        given = {name: value for name, value in given.items() if name not in ignored or name in options}
        if is_open:
            found, given = found[: len(head)], {name: given[name] for name in options if name in given}
        if len(head) != len(found) or options.keys() != given.keys():
            return False
        return all(map(self.same, [*head, *options.values()], [*found, *(given[name] for name in options)]))

    def next(self, expected, ignored=(), is_bare=False):
        try:
            command = self.commands.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failure("no command comes") from None
        if command is None:
            raise NotImplementedError
        self.got.append(command)
        found = command[1]
        if not self.matches(expected, found, ignored, is_bare):
            raise Failure(f"the client sends {' '.join(found)}")
        return command[0], found, parts(found)[1].get("NOTIFY")

    def answer(self, data):
        connection, words, slot, arrived = self.got.popleft()
        with self.lock:
            self.note(words, data, arrived)
            connection.reply(slot, data)

    def nothing_left(self):
        if not self.commands.empty():
            raise Failure(f"the client sends {' '.join(self.commands.get()[1])}")

    def wait(self, words):
        for _ in range(6):
            connection, found, channel = self.next(words, WAITING, is_bare=True)
            if channel in connection.channels:
                self.waiter = (connection, channel, found)
                if not self.matches(words, found, () if WAITING & {*words} else WAITING):
                    raise Failure(f"the client waits by {' '.join(found)}")
                return self.answer(b"+WAITING\r\n")
            self.answer(encode(None) if channel is None else NO_SUBSCRIBER)
        raise Failure("the client does not wait")

    def see(self, words, seconds=PATIENCE_S):
        limits = words[-1] if words[-2:-1] == ["in"] else None
        words = words[:-2] if limits else words
        try:
            outcome = self.outcomes.get(timeout=seconds)
        except queue.Empty:
            raise Failure("the driver prints nothing") from None
        took, found = int((time.monotonic() - self.stepped_at) * 1000), outcome.split()
        if outcome == "unsupported":
            raise NotImplementedError
        if len(found) != len(words) or not all(map(self.same, words, found)):
            raise Failure(f"the driver prints {outcome}")
        if limits and not self.same(limits, str(took)):
            raise Failure(f"it comes after {took} ms")

    def line(self, action, words):
        match action:
            case "do":
                self.stepped_at = time.monotonic()
                self.driver.stdin.write(" ".join(self.vars.get(word, word) for word in words) + "\n")
                self.driver.stdin.flush()
            case "see": self.see(words)
            case "get": self.next(words)
            case "reply": self.answer(value_of(" ".join(words)))
            case "take":
                self.next(words, WAITING)
                self.answer(b":1\r\n")
            case "wait": self.wait(words)
            case "poll":
                while self.next(words, WAITING)[2]:
                    self.answer(NO_SUBSCRIBER)
                self.answer(encode(None))
            case "say":
                connection, channel, found = self.waiter
                _, key, token = found[:3]
                with self.lock:
                    if words[0] == "granted":
                        self.note(found, b":1\r\n", time.time())
                    connection.write(push("smessage", channel, f"{words[0]} 0 0 {token} {key}"))
            case "gone":
                with self.lock:
                    self.changed(words[0])
            case "holds":
                with self.lock:
                    self.changed(words[0], ("mutex", self.vars.get(words[1], words[1]), time.time() + 30))
            case "sleep": time.sleep(int(words[0]) / 1000)
            case "none":
                time.sleep(int(words[0]) / 1000)
                self.nothing_left()
                if not self.outcomes.empty():
                    raise Failure(f"the driver prints {self.outcomes.get()}")
            case "always":
                self.always[words[0]] = value_of(" ".join(words[1:]))
                self.review()
            case "busy": self.busy = words[0]
            case "module": self.module = words == ["yes"]
            case "silent": self.silent = True
            case "cut" if words: self.unread = words[0]
            case "cut" | "down":
                if action == "down":
                    self.close()
                    self.bind()
                self.cut()
                self.got.clear()
            case "up": self.listen()
            case _: raise Failure("no such line")

    def run(self):
        """Returns what failed, None if nothing did."""
        number, text = 0, "ready"
        try:
            self.see(["ready"], START_S)
            for number, text in enumerate(self.path.read_text().splitlines(), 1):
                if text and not text.startswith("#"):
                    action, *words = shlex.split(text)
                    self.line(action, words)
            text = "the end"
            self.line("none", ["50"])
        except (Failure, OSError) as failure:
            return f"line {number}: {text}\n    {failure}"
        finally:
            self.driver.kill()
            self.driver.wait()
            self.close()


def main():
    names, driver = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    paths = sorted(pathlib.Path(__file__).parent.glob("*.transcript"))
    omitted, names = {name[1:] for name in names if name[0] == "!"}, [name for name in names if name[0] != "!"]
    paths = [path for path in paths if path.stem not in omitted and (not names or any(name in path.stem for name in names))]
    results = collections.Counter()

    def play(path):
        try:
            failure = Play(path, driver).run()
        except NotImplementedError:
            return print(f"left out  {path.stem}"), results.update(skipped=1)
        print(f"{'FAILED' if failure else 'ok'}  {path.stem}" + (f", {failure}" if failure else ""), flush=True)
        results["failed" if failure else "passed"] += 1

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(play, paths))
    print(f"{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    sys.exit(bool(results["failed"]) or not results["passed"])


if __name__ == "__main__":
    main()
