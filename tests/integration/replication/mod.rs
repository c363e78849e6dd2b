//! What happens to locks when another server replaces theirs. What the module writes is in tests/scenarios/replication.

mod roles;
mod sentinel;
mod without_module;
