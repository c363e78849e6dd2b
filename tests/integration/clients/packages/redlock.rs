//! Redlock over several servers that know nothing of each other.

use std::time::Duration;

use rslock::LockManager;
use support::{Reply, Server};

fn lock_with_rslock(servers: &[Server]) -> bool {
    let manager =
        LockManager::new(servers.iter().map(|server| format!("redis://127.0.0.1:{}/", server.port())).collect());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(manager.lock("door", Duration::from_secs(60))).is_ok()
}

#[test]
fn a_lock_command_at_one_of_three_servers_does_not_keep_redlock_out() {
    let servers = [Server::start(), Server::start(), Server::start()];
    assert_eq!(servers[0].client().run("LOCK.ACQUIRE door raw PX 60000"), 1);
    assert!(lock_with_rslock(&servers), "it has the other two");
    assert_eq!(servers[0].client().run("GET door"), "raw");
}

#[test]
fn lock_commands_at_most_of_the_servers_keep_redlock_out() {
    let servers = [Server::start(), Server::start(), Server::start()];
    for server in &servers[..2] {
        assert_eq!(server.client().run("LOCK.ACQUIRE door raw PX 60000"), 1);
    }
    assert!(!lock_with_rslock(&servers));
    assert_eq!(servers[2].client().run("EXISTS door"), 0, "it gave up what it had");
}

#[test]
fn servers_are_taken_out_of_redlock_one_at_a_time() {
    let servers = [Server::start(), Server::start(), Server::start()];
    assert!(lock_with_rslock(&servers[1..]), "both of two");
    assert!(!lock_with_rslock(&servers), "they have one in common with most of three");
    assert!(lock_with_rslock(&servers[..1]), "who leaves out two at once meets nobody");
}

#[test]
fn who_has_redlock_would_wait_for_himself_in_a_lock_of_the_same_name() {
    let servers = [Server::start(), Server::start(), Server::start()];
    assert!(lock_with_rslock(&servers));
    let mut client = servers[0].client();
    assert_eq!(client.run("LOCK.ACQUIRE door raw PX 60000"), Reply::Nil);
    assert_eq!(client.run("LOCK.ACQUIRE door:moved raw PX 60000"), 1);
}
