//! What the project says of itself: its documentation, and the rules of its sources.

mod blocks;
mod coverage;
mod layers;
mod replies;
mod session;
mod snippets;
