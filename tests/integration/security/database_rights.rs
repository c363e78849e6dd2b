//! Users that may use some databases only, by a rule `db=` of Valkey 9.1.

use support::listener::Listener;
use support::sessions::is_renewed;
use support::{Client, Reply, Server, Setup, Waiter};

use super::are_refused;

const ALL: [&str; 10] = [
    "LOCK.ACQUIRE door mallory",
    "LOCK.ACQUIRE door mallory PX 60000 BLOCK 0 NOTIFY news",
    "LOCK.REENTER door mallory",
    "LOCK.SHARE door mallory",
    "LOCK.RELEASE door alice",
    "LOCK.EXTEND door alice PX 1",
    "LOCK.FENCE door alice counter",
    "LOCK.INFO door",
    "LOCK.WAITERS door",
    "LOCK.QUEUES",
];

/// Whether rules can name databases.
#[track_caller]
fn has_database_rights(server: &Server) -> bool {
    let known = !server.client().run("ACL SETUSER probe reset db=0").is_error();
    if !known {
        eprintln!("skipped: ACL rules of this server name no databases");
    }
    known
}

/// A connection of a user of one database, with that selected.
#[track_caller]
fn user_of(server: &Server, db: u32) -> Client {
    server.client().ok(&format!("ACL SETUSER worker{db} reset on nopass ~* &* +@all db={db}"));
    let mut client = server.client_in(db);
    client.ok(&format!("AUTH worker{db} any"));
    client
}

#[test]
fn user_of_one_database_uses_no_lock_of_another() {
    let server = Server::start();
    if !has_database_rights(&server) {
        return;
    }
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    // Whoever selects the database before it becomes this user stays there.
    let mut mallory = user_of(&server, 1);
    mallory.ok("AUTH default any");
    mallory.ok("SELECT 0");
    mallory.ok("AUTH worker1 any");
    are_refused(&mut mallory, &ALL);
    let script = "return redis.call('LOCK.RELEASE', 'door', 'alice')";
    assert_eq!(mallory.call(&["EVAL", script, "1", "door"]).code(), "NOPERM");
    assert_eq!(alice.run("GET door"), "alice");
    mallory.ok("SELECT 1");
    are_refused(&mut mallory, &["SELECT 0", "SWAPDB 0 1", "FLUSHALL"]);
    assert_eq!(mallory.run("LOCK.ACQUIRE door mallory PX 60000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
}

#[test]
fn waiter_is_granted_a_lock_of_its_only_database() {
    let server = Server::start();
    if !has_database_rights(&server) {
        return;
    }
    let (mut alice, mut admin) = (user_of(&server, 1), server.client_in(1));
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 300"), 1);
    let request = ["LOCK.ACQUIRE", "door", "bob", "PX", "300", "BLOCK", "0", "SESSION"];
    let mut bob = Waiter::start_on(&server, user_of(&server, 1), &request);
    let mut news = Listener::on(user_of(&server, 1), "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door carol PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(bob.reply(), 1, "at the end of the lease");
    is_renewed(&mut admin, "door");
    drop(bob);
    news.hears("granted", "carol", "door");
    assert_eq!(admin.run("GET door"), "carol");
}

#[test]
fn slowlog_shows_waits_of_every_database() {
    let server = Setup::new().config("lock.slowlog-ms 0").start();
    if !has_database_rights(&server) {
        return;
    }
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door bob BLOCK 1"), Reply::Nil);
    let log = user_of(&server, 1).run("LOCK.SLOWLOG GET");
    assert_eq!(log.items()[0].items()[3], 0, "it is a log of the server, like SLOWLOG");
}
