"""Type checkers find wrong calls of the public methods, and only these."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from servers import LIBRARY

LINES = Path(__file__).with_name("wrong_lines.py")
WRONG = {number for number, line in enumerate(LINES.read_text().splitlines(), 1) if line.endswith("# wrong")}
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--python-executable", sys.executable],
    "pyright": [str(Path(sys.executable).with_name("pyright")), "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.skipif(LIBRARY != "redis", reason="the lines use redis-py")
def test_checker_finds_wrong_lines(name: str, tmp_path: Path) -> None:
    command = CHECKERS[name]
    if not shutil.which(command[0]) or subprocess.run([*command[:3], "--version"], capture_output=True).returncode:
        pytest.skip(f"{name} is not installed")
    lines = Path(shutil.copy(LINES, tmp_path))
    checked = subprocess.run([*command, str(lines)], capture_output=True, text=True, cwd=tmp_path, timeout=110)
    found = {int(number) for number in re.findall(r"wrong_lines\.py:(\d+)(?::\d+)?(?: -)?:? error", checked.stdout)}
    assert found <= WRONG, checked.stdout
    assert len(WRONG) == 14 and len(found) >= 13, (WRONG - found, checked.stdout + checked.stderr)
