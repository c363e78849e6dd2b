//! Work outside of commands: the timer, the conditions under which the module may write, recovery, slots.

pub mod alarm;
pub mod restart_after_panic;
pub mod run;
pub mod slot_check;
pub mod slot_watch;
pub mod suspension;
pub mod write_permission;
