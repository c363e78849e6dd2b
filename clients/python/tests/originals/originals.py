"""Runs the suites of redis-py's Lock and of python-redis-lock on this package, unchanged, as a plugin of pytest.

The exceptions are tests of how the originals do something, not of what they promise. Each must fail as long as it is
listed, so that the list does not outlive its reasons, and in the very place for which it is listed: a test that fails
before has found something else.
"""

import process_tests
import pytest
import redis.asyncio.lock
import redis.lock

import redis_lock_client
import redis_lock_client.asyncio

redis.lock.Lock = redis_lock_client.Lock
redis.asyncio.lock.Lock = redis_lock_client.asyncio.Lock

# python-redis-lock's tests give a server two seconds to start: too little on a busy machine.
_wait_for_strings = process_tests.wait_for_strings
process_tests.wait_for_strings = lambda read, seconds, *strings: _wait_for_strings(read, 5 * seconds, *strings)

#: The pauses of the original are counted by a clock that stands in for ``time`` in redis-py's module, and which nothing
#: else moves. Here nothing is polled, so by that clock no time has passed when False is answered, as it should be.
CLOCK = pytest.RaisesExc(AssertionError, match=r"^assert 0 == 0\.[24] ± ")
#: Its thread for each lock is looked at, in this private attribute: here there is none.
INTERVAL = pytest.RaisesExc(AttributeError, match="no attribute '_lock_renewal_interval'")
THREAD = pytest.RaisesExc(AttributeError, match="no attribute '_lock_renewal_thread'")
#: The same, in a line that it logs. The lines before, that the lock is taken, are there.
LOG = pytest.RaisesExc(
    pytest.fail.Exception, match=r"(?s)fnmatch: .\* Acquired Lock.*remains unmatched: .\* Starting renewal"
)

#: For each test the failure that is meant, and in words what it is about.
EXCEPTIONS = {
    "TestLock::test_blocking_timeout": (CLOCK, "counts the pauses between two polls by a clock of its own"),
    "TestLock::test_context_manager_blocking_timeout": (
        CLOCK,
        "counts the pauses between two polls by a clock of its own",
    ),
    "test_simple_auto_renewal": (LOG, "looks for 'Starting renewal thread' in the log"),
    "test_no_auto_renewal": (INTERVAL, "looks at _lock_renewal_interval"),
    "test_auto_renewal": (THREAD, "looks at _lock_renewal_thread"),
    "test_auto_renewal_stops_after_gc": (THREAD, "looks at _lock_renewal_thread"),
}


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.nodeid.split("::", 1)[1].split("[")[0]
        if name in EXCEPTIONS:
            failure, reason = EXCEPTIONS[name]
            item.add_marker(pytest.mark.xfail(reason=reason, raises=failure, strict=True))
