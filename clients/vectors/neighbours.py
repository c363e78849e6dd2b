#!/usr/bin/env python3
"""Lets the packages of two languages wait for each other's locks on one server, each with the rights that its README names.

    neighbours.py SERVER MODULE LANGUAGE=DRIVER...      a driver is that of player.py; DRIVER_USER has its user and password
"""
import itertools, os, pathlib, queue, re, shlex, socket, subprocess, sys, tempfile, threading, time

COMMANDS = "+lock.acquire +lock.reenter +lock.share +lock.release +lock.extend"
CLIENTS = pathlib.Path(__file__).parent.parent


class Driver:
    def __init__(self, language, command, port):
        self.language, self.lines = language, queue.Queue()
        user = {"DRIVER_USER": f"{language}:secret@"}
        self.process = subprocess.Popen([*command, str(port)], stdin=-1, stdout=-1, text=True, env={**os.environ, **user})
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.process.stdout], daemon=True).start()
        self.see("ready", 600)

    def do(self, step):
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()

    def see(self, expected, seconds=20):
        found = self.lines.get(timeout=seconds)
        assert found == expected, f"{self.language}: {found}, not {expected}"


class Admin:
    def __init__(self, port):
        self.lines = socket.create_connection(("127.0.0.1", port)).makefile("rwb", 0)

    def ask(self, *words):
        self.lines.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words))
        return self.read()

    def read(self):
        line = self.lines.readline().decode().strip()
        if line[0] == "$":
            return self.lines.read(int(line[1:]) + 2)[:-2].decode() if line != "$-1" else None
        return [self.read() for _ in range(int(line[1:]))] if line[0] == "*" else line

    def waiters(self, name):
        info = self.ask("LOCK.INFO", name)
        return info[info.index("waiters") + 1]


def rights(language):
    """Returns the line of the README with the rights."""
    return re.search(r"(?m)^ {4}(&redis-lock:.*)$", (CLIENTS / language / "README.md").read_text())[1]


def play(admin, one, other):
    """The other waits in the queue of the server, and gets the lock by a message. A loss is reported."""
    one.do("acquire a door lease=60000")
    one.see("a held")
    other.do("acquire b door lease=60000")
    until = time.monotonic() + 20
    while admin.waiters("door") != ":1":
        assert time.monotonic() < until, f"{other.language} does not wait in the queue behind {one.language}"
        time.sleep(0.01)
    one.do("release a")
    one.see("a released")
    other.see("b held", 2)
    other.do("watch b")
    time.sleep(0.5)
    admin.ask("DEL", "door")
    other.see("b lost", 5)
    print(f"ok  {other.language} waits for a lock of {one.language}", flush=True)


def main():
    server, module, *drivers = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--loadmodule", module, "--dir", folder]
        processes = [subprocess.Popen([server, *options, "--logfile", "log"])]
        try:
            time.sleep(1)
            admin, running = Admin(port), []
            for language, command in (driver.split("=", 1) for driver in drivers):
                words = f"{COMMANDS} {rights(language)}".split()
                assert admin.ask("ACL", "SETUSER", language, "on", ">secret", "~*", "resetchannels", *words) == "+OK"
                running.append(Driver(language, shlex.split(command), port))
                processes.append(running[-1].process)
            for one, other in itertools.permutations(running, 2):
                play(admin, one, other)
            log = admin.ask("ACL", "LOG")
            refused = {entry[entry.index("object") + 1] for entry in log}
            assert not any(name.startswith(("lock", "redis-lock")) for name in refused), refused
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
