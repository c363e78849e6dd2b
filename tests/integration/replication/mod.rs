//! What happens to locks when another server replaces theirs, or may have. What the module writes is in
//! tests/scenarios/replication.

mod attached_tools;
mod guarded_sets;
mod recovery;
mod roles;
mod stalls;
mod without_module;
