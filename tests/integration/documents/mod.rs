//! What the project says of itself: its documentation, and the rules of its sources.

pub mod blocks;
mod contributing;
mod facts;
mod layers;
mod links;
mod lints;
pub mod programs;
mod reliability;
mod replies;
mod session;
mod snippets;
