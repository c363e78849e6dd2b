//! Fleets in which some lock with a package of today and some with LOCK commands: what docs/guides/migration.md says of
//! them. The packages are the real ones, as they are published.

mod exclusion;
mod fleet;
mod guide;
mod permits;
mod redisson;
mod redlock;
mod rust;
mod symfony;
