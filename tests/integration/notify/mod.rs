//! Waiting in line without holding up the connection: NOTIFY.

mod asking;
mod ending;
mod granting;
mod rights;
mod subscribers;
mod whole_replies;
