//! What each command promises its callers: docs/commands and docs/fencing.md, as far as scenarios cannot say it.

mod fencing;
mod introspection;
mod null_replies;
mod slowlog;
