//! What grants locks to waiters: tests with many clients and with stalls. Most are scenarios, in tests/scenarios/waking.

mod contended_leases;
mod suspension;
