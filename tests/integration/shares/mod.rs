//! Shared locks: readers beside writers, and semaphores.

mod data_of_others;
mod effects;
mod foreign_writes;
mod form;
mod line;
mod other_forms;
mod rough_seas;
mod share_ends;
mod share_sessions;
mod sibling_keys;

use support::{Client, Reply};

/// The tokens of the shares and the ends of their leases, the earliest first.
#[track_caller]
pub fn shares_of(client: &mut Client, key: &str) -> Vec<(String, String)> {
    let listed = client.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
    let words: Vec<String> = listed.items().iter().map(Reply::string).collect();
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// The tokens of the shares, in alphabetical order.
#[track_caller]
pub fn holders_of(client: &mut Client, key: &str) -> Vec<String> {
    let mut tokens: Vec<String> = shares_of(client, key).into_iter().map(|(token, _)| token).collect();
    tokens.sort();
    tokens
}
