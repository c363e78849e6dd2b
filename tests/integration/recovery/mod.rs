//! When nothing is granted to a token that does not hold the lock already: after a start, a promotion and a stall, as long as
//! `lock.recovery-ms` is set. Most tests are scenarios, in tests/scenarios/recovery.

mod beginnings;
mod cut_off;
