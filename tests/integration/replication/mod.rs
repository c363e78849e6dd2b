//! What leaves the server, and what becomes of locks when another server takes its place.

mod roles;
mod sentinel;
mod shared_roles;
mod silence;
mod written;
