//! When nobody is granted a lock that he does not hold already: after a start, a promotion and a standstill, as long as
//! `lock.recovery-ms` is set. And the longest lease, by which that time is chosen.

mod after_a_cut;
mod after_a_standstill;
mod beginnings;
mod held_back;
mod leases;
mod longest_lease;
mod period;
