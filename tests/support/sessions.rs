//! A lock in a session, and whether its lease is renewed.

use super::{Client, OBSERVATION, eventually, never_within};

/// Returns when the lease has been lengthened at least once from now on.
#[track_caller]
pub fn is_renewed(client: &mut Client, key: &str) {
    let end = client.expires_at(key);
    assert!(end > 0, "{key} has no lease: {end}");
    eventually("the lease is renewed", || client.expires_at(key) > end);
}

/// Returns when a present lease is over that nobody renews, and nobody takes the lock back afterwards.
#[track_caller]
pub fn runs_out(client: &mut Client, key: &str) {
    let end = client.expires_at(key);
    assert!(end > 0, "{key} has no lease: {end}");
    eventually("the lease ends", || {
        let now = client.expires_at(key);
        assert!(now == end || now == -2, "the lease of {key} was renewed: from {end} to {now}");
        now == -2
    });
    never_within(OBSERVATION, "the lock is taken back", || client.run(&format!("EXISTS {key}")) == 1);
}

/// The connections that the lock belongs to.
#[track_caller]
pub fn session_of(client: &mut Client, key: &str) -> Vec<i64> {
    let mut ids: Vec<i64> =
        client.run(&format!("LOCK.INFO {key}")).get("session").items().iter().map(super::Reply::int).collect();
    ids.sort_unstable();
    ids
}

/// Whether the server still has a connection with this id.
pub fn is_connected(client: &mut Client, id: i64) -> bool {
    !client.run(&format!("CLIENT LIST ID {id}")).string().trim().is_empty()
}
