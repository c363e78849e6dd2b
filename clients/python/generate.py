"""Makes src/redis_lock_client/_sync from _async: the same for threads. `python generate.py --check` only compares."""

import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

PACKAGE = Path(__file__).parent / "src" / "redis_lock_client"
#: The difference between threads and tasks, written by hand for both.
BY_HAND = {"__init__.py", "runtime.py"}
WORDS = {"Coroutine": "Callable", "_async": "_sync"}
NOTE = "# Made from _async/{} by generate.py.\n"


def generate(folder: Path) -> None:
    """Writes the modules for threads into a folder."""
    rule = unasync.Rule(str(PACKAGE / "_async"), str(folder), WORDS)
    sources = [path for path in sorted((PACKAGE / "_async").glob("*.py")) if path.name not in BY_HAND]
    unasync.unasync_files([str(path) for path in sources], [rule])
    for path in sources:
        made = folder / path.name
        made.write_text(NOTE.format(path.name) + made.read_text())
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(made)], check=True, cwd=PACKAGE)


def main() -> int:
    if "--check" not in sys.argv:
        generate(PACKAGE / "_sync")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        old = [
            made.name
            for made in Path(folder).glob("*.py")
            if made.read_text() != (PACKAGE / "_sync" / made.name).read_text()
        ]
    if old:
        print("run generate.py: these are older than their originals:", *old)
    return len(old)


if __name__ == "__main__":
    sys.exit(main())
