"""What the README and the examples show, the wheel, and the shape of the package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import CLIENT, LIBRARY, Server

import redis_lock_client

PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE / "src" / "redis_lock_client"
SNIPPETS = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)

needs_redis_py = pytest.mark.skipif(LIBRARY != "redis", reason="the examples use redis-py")


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_redis_py
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_readme_snippet_runs(server: Server, number: int) -> None:
    snippet = SNIPPETS[number].replace("Redis()", f"Redis(port={server.port})").replace(":6379", f":{server.port}")
    printed = run(sys.executable, "-c", snippet)
    assert printed and "stop" not in printed


@needs_redis_py
def test_script_example_writes_report(server: Server) -> None:
    url = f"redis://127.0.0.1:{server.port}"
    assert "fencing token" in run(sys.executable, str(PACKAGE / "examples" / "script.py"), REDIS_URL=url)


@needs_redis_py
def test_fastapi_example_counts_orders(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    example = load("fastapi_app", server, monkeypatch)
    with testclient.TestClient(example.app) as client:
        orders = [client.post("/customers/7/orders").json()["orders"] for _ in range(3)]
    assert orders == [1, 2, 3]


@needs_redis_py
def test_django_example_sells_tickets(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    django_test = pytest.importorskip("django.test")
    from django.conf import settings

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
    example = load("django_views", server, monkeypatch)
    request = django_test.RequestFactory().post("/buy")
    assert [example.buy(request).status_code for _ in range(3)] == [200, 200, 409]


@needs_redis_py
def test_celery_example_runs_task(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("celery")
    example = load("celery_tasks", server, monkeypatch)
    example.app.conf.task_always_eager = True
    assert example.synchronize.delay("7").get(timeout=10) == "7 is synchronized"


def load(name: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{server.port}")
    monkeypatch.syspath_prepend(str(PACKAGE / "examples"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__(name)


def test_wheel_in_fresh_environment_works(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("build")
    clean = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE), **clean)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[{LIBRARY}]", **clean)
    snippet = SNIPPETS[0].replace(f"{CLIENT}()", f"{CLIENT}(port={server.port})")
    assert run(python, "-c", snippet, **clean) == "the door is ours\n"
    assert wheel.name.split("-")[1] == redis_lock_client.__version__


def test_readme_links_work_on_pypi() -> None:
    links = re.findall(r"\]\(([^)]*)\)", (PACKAGE / "README.md").read_text())
    assert all(link.startswith("https://") for link in links), links


# ---- the shape of the package ----------------------------------------------------------------------------------------


def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """Returns the modules of the package and the others that a module imports when it is imported."""
    tree = ast.parse(path.read_text())
    inner: set[str] = set()
    outer: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            inner |= {node.module} if node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            outer.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Import):
            outer |= {alias.name.partition(".")[0] for alias in node.names}
    return inner, outer


def test_modules_import_in_one_direction() -> None:
    graph = {path.stem: imports_of(path)[0] for path in SOURCES.glob("*.py")}
    while graph:
        leaves = {name for name, imported in graph.items() if not imported & graph.keys()}
        assert leaves, f"a circle of imports: {graph}"
        graph = {name: imported for name, imported in graph.items() if name not in leaves}


def test_core_does_no_io() -> None:
    for name in ("flow", "connection", "acquisition", "holding", "request", "resp", "scripts"):
        _, outer = imports_of(SOURCES / f"{name}.py")
        assert not outer & {"socket", "selectors", "threading", "asyncio", "time", "redis", "valkey"}, name


def test_modules_are_short() -> None:
    for path in SOURCES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 350, path.name
    assert len((PACKAGE / "DESIGN.md").read_text().splitlines()) <= 100
