//! A panic at every place of every function that a server calls is no worse than a failed command: it is logged, each client
//! receives a reply, and the server goes on with all other locks. docs/design.md says what the module does then.

mod at_load;
mod effects;
mod entries;
mod scene;
mod sweep;
