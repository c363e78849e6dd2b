"""What the README and the examples show, the wheel, and the shape of the package."""

import contextlib
import importlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from servers import CLIENT, LIBRARY, Server

import redis_lock_client
import redis_lock_client.asyncio

PACKAGE = Path(__file__).parents[1]
README = (PACKAGE / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
NEEDS_REDIS_PY = pytest.mark.skipif(LIBRARY != "redis", reason="the examples use redis-py")


def run(*command: str, **environment: str) -> str:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, **pipes, check=False, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


@NEEDS_REDIS_PY
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_readme_snippet_runs(server: Server, number: int) -> None:
    snippet = SNIPPETS[number].replace("Redis()", f"Redis(port={server.port})").replace(":6379", f":{server.port}")
    printed = run(sys.executable, "-c", snippet)
    assert printed and "stop" not in printed


@NEEDS_REDIS_PY
@pytest.mark.parametrize("name", ["script", "fastapi_app", "django_views", "celery_tasks"])
def test_example_works(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{server.port}")
    monkeypatch.syspath_prepend(str(PACKAGE / "examples"))
    pytest.importorskip("redis" if name == "script" else name.partition("_")[0])
    if name == "script":
        assert "fencing token" in run(sys.executable, str(PACKAGE / "examples" / "script.py"))
    elif name == "fastapi_app":
        testclient = pytest.importorskip("fastapi.testclient")
        with testclient.TestClient(importlib.import_module(name).app) as client:
            orders = [client.post("/customers/7/orders").json()["orders"] for _ in range(3)]
        assert orders == [1, 2, 3]
    elif name == "django_views":
        from django.conf import settings
        from django.test import RequestFactory

        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["*"])
        request, views = RequestFactory().post("/buy"), importlib.import_module(name)
        assert [views.buy(request).status_code for _ in range(3)] == [200, 200, 409]
    else:
        tasks = importlib.import_module(name)
        tasks.app.conf.task_always_eager = True
        assert tasks.synchronize.delay("7").get(timeout=10) == "7 is synchronized"


@NEEDS_REDIS_PY
def test_next_candidate_leads_after_the_leader(server: Server) -> None:
    environment = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{server.port}"}
    command = [sys.executable, str(PACKAGE / "examples" / "cron_leader.py")]
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Any:
            one = stack.enter_context(
                subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=environment)
            )
            stack.callback(one.kill)
            return one

        first = start("web-1")
        assert any(line.startswith("web-1 leads") for line in first.stdout)
        second = start("web-2")
        assert any(line == "the leader is web-1\n" for line in second.stdout)
        first.kill()
        assert any(line == "the leader is web-2\n" for line in second.stdout)


@NEEDS_REDIS_PY
def test_key_of_django_lock_is_made_by_its_cache(server: Server) -> None:
    """What docs/guides/migration.md says about the locks of Django."""
    cache_module = pytest.importorskip("django_redis.cache")
    from django.conf import settings

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
    cache = cache_module.RedisCache(f"redis://127.0.0.1:{server.port}", {})
    key = cache.make_key("door")
    assert key == ":1:door"
    with server.client() as client:
        # Another key: both hold.
        with cache.lock("door", timeout=10):
            assert client.execute_command("LOCK.ACQUIRE", "door", "new", "PX", 10_000) == 1
            assert client.execute_command("LOCK.ACQUIRE", key, "new", "PX", 10_000) is None
        # As in the documents of Celery.
        assert cache.add("door", "worker", 10)
        assert client.execute_command("LOCK.ACQUIRE", key, "new", "PX", 10_000) is None
        cache.delete("door")
        assert client.execute_command("LOCK.ACQUIRE", key, "new", "PX", 10_000) == 1
        assert not cache.add("door", "worker", 10)
        assert not cache.lock("door", timeout=10).acquire(blocking=False)
        client.delete(key)
    with redis_lock_client.Lock(cache.client.get_client(write=True), cache.make_key("door"), timeout=30):
        assert not cache.add("door", "worker", 10)
        assert not cache.lock("door", timeout=10).acquire(blocking=False)
    assert cache.add("door", "worker", 10)
    cache.close()


def test_wheel_in_fresh_environment_works(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("build")
    pytest.importorskip("ensurepip")
    clean, python = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}, str(tmp_path / "venv" / "bin" / "python")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE), **clean)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[{LIBRARY}]", **clean)
    snippet = SNIPPETS[0].replace(f"{CLIENT}()", f"{CLIENT}(port={server.port})")
    assert run(python, "-c", snippet, **clean) == "the door is ours\n"
    assert wheel.name.split("-")[1] == redis_lock_client.__version__


def test_source_distribution_has_tests_and_changes(tmp_path: Path) -> None:
    pytest.importorskip("build")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE))
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"CHANGELOG.md", "tests/test_lock.py", "vectors/words.json", "vectors/wait.transcript"} <= names


@pytest.mark.parametrize("module", [redis_lock_client, redis_lock_client.asyncio], ids=str)
def test_names_in_tracebacks_are_the_public_ones(module: Any) -> None:
    for name in {*module.__all__} - {"__version__", "LockLost"}:
        public = getattr(module, name)
        is_error = isinstance(public, type) and issubclass(public, Exception)
        where = redis_lock_client.__name__ if is_error else module.__name__
        assert (public.__module__, public.__qualname__) == (where, name)


def test_core_imports_no_integration() -> None:
    text = "import sys, redis_lock_client.asyncio; print(*sys.modules)"
    loaded = {name for name in run(sys.executable, "-c", text).split() if name.startswith("redis_lock_client.")}
    assert "redis_lock_client.lock" in loaded
    assert not loaded & {"redis_lock_client.compat", "redis_lock_client.compat.django_cache"}


def test_private_parts_of_libraries_are_in_one_module() -> None:
    """The names with an underscore that are used of objects other than the package's own."""
    private = re.compile(r"\b(?:opened|client|pool|retry|redis|node|manager)\._[a-z]\w*")
    sources = (PACKAGE / "src" / "redis_lock_client").glob("**/*.py")
    found = {path.name: private.findall(path.read_text()) for path in sources}
    assert {name for name, parts in found.items() if parts} == {"library.py"}


def test_readme_links_work_on_pypi() -> None:
    links = re.findall(r"\]\(([^)]*)\)", README)
    assert all(link.startswith("https://") for link in links), links
