//! `lock.wake-foreign` with redis-py and python-redis-lock themselves. The other tests are in tests/scenarios/compat.

use support::Setup;
use support::python::run_script;

#[test]
fn locks_of_python_libraries_exclude_and_wake() {
    run_script(&Setup::new().config("lock.wake-foreign yes").start(), "locks.py");
}
