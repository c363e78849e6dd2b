//! What a lock and its fencing tokens must do, as specifications for the linearizability tester of `stateright`.

pub mod fences;
pub mod lock;

#[cfg(test)]
mod tests;
