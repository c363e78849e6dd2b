//! A panic, planted at every place of every function that a server calls, is no worse than a failed command: it is logged,
//! everybody is answered, and the server goes on with all other locks. docs/design.md says what the module does then.

mod at_load;
mod bystanders;
mod entries;
mod rest;
mod sweep;
mod told;
mod unallowed;
