//! Shared locks: tests with many shares. Most are scenarios, in tests/scenarios/shares.

mod many_shares;

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
