//! Background work: the timer, the conditions under which the module may write, the recovery period, cluster slots.

pub mod alarm;
pub mod restart_after_panic;
pub mod run;
pub mod slot_check;
pub mod slot_watch;
pub mod suspension;
pub mod write_permission;
