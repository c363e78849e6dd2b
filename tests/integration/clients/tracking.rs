//! What the server tells a client that has read a lock with CLIENT TRACKING: the table in docs/guides/losing-a-lock.md.

use std::fs;

use support::replicas::{REPLICATION, in_step};
use support::{Client, Protocol, Reply, Server, Setup, Waiter, eventually, repository};

use crate::documents::blocks::LOSING;

/// Alice's connection, which has taken the lock, asked to be told, and read it.
struct Holder {
    connection: Client,
}

/// A message, as the test writes it: the key, or all keys.
const DOOR: &str = "door";
const ALL: &str = "all keys";

impl Holder {
    #[track_caller]
    fn with(server: &Server, take: &str) -> Self {
        let mut connection = server.client_speaking(Protocol::Resp3);
        connection.ok("CLIENT TRACKING ON NOLOOP");
        assert_eq!(connection.run(take), 1, "{take}");
        let mut holder = Self { connection };
        let key = take.split(' ').nth(1).expect("a key");
        holder.read(&format!("LOCK.INFO {key}"));
        holder
    }

    /// Runs a command. The messages that came before the reply are left out.
    #[track_caller]
    fn read(&mut self, line: &str) -> Reply {
        let reply = self.connection.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }

    /// The messages that have come. They stand in the server's buffer before the reply to what is asked after them.
    #[track_caller]
    fn told(&mut self) -> Vec<String> {
        self.connection.send(&["PING"]);
        let mut told = Vec::new();
        loop {
            match self.connection.receive() {
                Reply::Push(message) => told.push(name(&message)),
                reply => {
                    assert_eq!(reply, "PONG");
                    return told;
                }
            }
        }
    }
}

#[track_caller]
fn name(message: &[Reply]) -> String {
    let [kind, keys] = message else { panic!("no message: {message:?}") };
    assert_eq!(*kind, "invalidate");
    match keys {
        Reply::Nil => ALL.to_owned(),
        keys => keys.items().iter().map(Reply::string).collect::<Vec<_>>().join(" "),
    }
}

const TAKE: &str = "LOCK.ACQUIRE door alice PX 600000";

/// What the page calls a change, commands that make it, and what is told.
const CHANGES: [(&str, &[&str], &[&str]); 13] = [
    ("`LOCK.RELEASE` with the holder's token, from another connection", &["LOCK.RELEASE door alice"], &[DOOR]),
    ("`DEL`, `UNLINK`, `RENAME`, `MOVE`", &["DEL door"], &[DOOR]),
    ("`DEL`, `UNLINK`, `RENAME`, `MOVE`", &["UNLINK door"], &[DOOR]),
    ("`DEL`, `UNLINK`, `RENAME`, `MOVE`", &["RENAME door gate"], &[DOOR]),
    ("`DEL`, `UNLINK`, `RENAME`, `MOVE`", &["MOVE door 1"], &[DOOR]),
    ("`SET`, `RESTORE`, or a `RENAME` of another key onto it", &["SET door bob"], &[DOOR]),
    ("`SET`, `RESTORE`, or a `RENAME` of another key onto it", &["SET gate bob", "RENAME gate door"], &[DOOR]),
    ("`PEXPIRE`, `PERSIST`, or `LOCK.EXTEND` from another connection", &["PEXPIRE door 60000"], &[DOOR]),
    ("`PEXPIRE`, `PERSIST`, or `LOCK.EXTEND` from another connection", &["PERSIST door"], &[DOOR]),
    ("`PEXPIRE`, `PERSIST`, or `LOCK.EXTEND` from another connection", &["LOCK.EXTEND door alice PX 9000"], &[DOOR]),
    ("`FLUSHALL`, and `FLUSHDB` of any database", &["FLUSHALL"], &[ALL]),
    ("`FLUSHALL`, and `FLUSHDB` of any database", &["SELECT 1", "FLUSHDB"], &[ALL]),
    ("a key of the same name changes in another database", &["SELECT 1", "SET door bob"], &[DOOR]),
];

/// What is tested below, each by a test of its own.
const OTHERS: [&str; 7] = [
    "a hand-over to the next in line",
    "eviction",
    "a replica gets all data anew, from another master",
    "the lease ends while somebody waits",
    "the lease ends and nobody waits",
    "each renewal of a [session](../sessions.md)",
    "others ask for the lock, wait, or leave the line",
];

/// A change of which nobody is told.
const SWAP: &str = "`SWAPDB`";

#[test]
fn every_row_of_the_page_is_tested() {
    let page = fs::read_to_string(repository().join(LOSING)).expect("the guide");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows: Vec<&str> = rows.filter(|row| *row != "what happens").collect();
    let mut tested: Vec<&str> = CHANGES.map(|(row, ..)| row).into_iter().chain(OTHERS).chain([SWAP]).collect();
    for row in &rows {
        assert!(tested.contains(row), "no test of: {row}");
    }
    tested.retain(|row| !rows.contains(row));
    assert!(tested.is_empty(), "not on the page: {tested:?}");
}

#[test]
fn a_change_is_told_in_its_very_moment_and_once() {
    let server = Server::start();
    for (row, lines, told) in CHANGES {
        let mut holder = Holder::with(&server, TAKE);
        let mut other = server.client();
        lines.iter().for_each(|line| assert!(!other.run(line).is_error(), "{line}"));
        assert_eq!(holder.told(), told, "{row}: {lines:?}");
        // It has been told, and has not read the key since.
        other.ok("SELECT 0");
        other.ok("SET door carol");
        assert_eq!(holder.told(), [""; 0], "{row}: {lines:?}");
        other.ok("FLUSHALL");
    }
}

#[test]
fn a_restored_key_is_told() {
    let server = Server::start();
    let mut other = server.client();
    other.ok("SET gate bob");
    let dump = other.run("DUMP gate");
    let mut holder = Holder::with(&server, TAKE);
    assert_eq!(other.call(&[b"RESTORE".as_slice(), b"door", b"0", dump.bytes(), b"REPLACE"]), "OK");
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn a_hand_over_is_told_and_those_who_come_and_wait_and_go_are_not() {
    let server = Server::start();
    let mut holder = Holder::with(&server, TAKE);
    let mut other = server.client();
    assert_eq!(other.run("LOCK.ACQUIRE door bob PX 9000"), Reply::Nil);
    assert_eq!(other.run("LOCK.RELEASE door bob").code(), "NOTOWNER");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    drop(Waiter::start(&server, "LOCK.REENTER door carol PX 600000 BLOCK 0"));
    eventually("carol has left", || other.run("LOCK.WAITERS door").items().len() == 1);
    assert_eq!(holder.told(), [""; 0]);
    assert_eq!(other.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn the_end_of_a_lease_is_told_at_once_if_somebody_waits() {
    let server = Server::start();
    server.client().ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut holder = Holder::with(&server, "LOCK.ACQUIRE door alice PX 300");
    assert_eq!(server.client().run("LOCK.ACQUIRE door bob PX 9000 BLOCK 9000"), 1);
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn the_end_of_a_lease_is_told_when_the_server_removes_the_key_if_nobody_waits() {
    let server = Server::start();
    let mut other = server.client();
    other.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut holder = Holder::with(&server, "LOCK.ACQUIRE door alice PX 1000");
    let end = other.expires_at("door");
    eventually("the lease has ended", || support::now_ms() > end + 1);
    assert_eq!(holder.told(), [""; 0]);
    assert_eq!(other.run("EXISTS door"), 0);
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn an_eviction_is_told() {
    let server = Server::start();
    let mut holder = Holder::with(&server, TAKE);
    let mut other = server.client();
    other.ok("CONFIG SET maxmemory-policy allkeys-random");
    other.ok("CONFIG SET maxmemory 1");
    eventually("the lock is evicted", || other.run("EXISTS door") == 0);
    other.ok("CONFIG SET maxmemory 0");
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn the_data_of_another_master_is_told() {
    let [server, other] = [(); 2].map(|()| Setup::new().config(REPLICATION).start());
    let mut holder = Holder::with(&server, TAKE);
    server.client().ok(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    in_step(&server);
    assert_eq!(holder.told(), [ALL]);
    assert_eq!(holder.connection.run("LOCK.EXTEND door alice PX 9000").code(), "READONLY");
}

#[test]
fn a_renewal_of_a_session_is_told_and_an_extend_of_its_own_is_not() {
    let server = Server::start();
    let mut other = server.client();
    let mut holder = Holder::with(&server, "LOCK.ACQUIRE door alice PX 600 SESSION");
    let end = other.expires_at("door");
    eventually("the session is renewed", || other.expires_at("door") > end);
    assert_eq!(holder.told(), [DOOR]);

    let mut holder = Holder::with(&server, "LOCK.ACQUIRE gate alice PX 600000");
    assert_eq!(holder.read("LOCK.EXTEND gate alice PX 500000"), 500_000);
    assert_eq!(holder.told(), [""; 0]);
}

/// So LOCK.INFO has to follow after an EXTEND, and EXTEND alone does not do.
#[test]
fn an_extend_on_the_same_connection_uses_up_the_registration() {
    let server = Server::start();
    let mut other = server.client();
    let mut holder = Holder::with(&server, TAKE);
    holder.read("LOCK.EXTEND door alice PX 500000");
    other.ok("SET door bob");
    assert_eq!(holder.told(), [""; 0]);

    other.ok("SET door alice PX 60000");
    holder.read("LOCK.EXTEND door alice PX 500000");
    holder.read("LOCK.INFO door");
    other.ok("SET door bob");
    assert_eq!(holder.told(), [DOOR]);
}

#[test]
fn a_share_is_read_by_its_score() {
    let server = Server::start();
    let mut other = server.client();
    let mut holder = Holder::with(&server, "LOCK.SHARE door alice PX 600000");
    for (line, score_is_there) in [("LOCK.SHARE door bob PX 600000", true), ("ZREM door alice", false)] {
        holder.read("ZSCORE door alice");
        assert_eq!(other.run(line), 1);
        assert_eq!(holder.told(), [DOOR], "{line}");
        assert_eq!(holder.connection.run("ZSCORE door alice") != Reply::Nil, score_is_there, "{line}");
    }
}

#[test]
fn swapped_databases_are_not_told_and_extend_says_so() {
    let server = Server::start();
    let mut holder = Holder::with(&server, TAKE);
    server.client().ok("SWAPDB 0 1");
    assert_eq!(holder.told(), [""; 0], "{SWAP}");
    assert_eq!(holder.connection.run("LOCK.EXTEND door alice PX 9000").code(), "NOTHELD");
}

/// The server looks for what it can forget before it runs a command; with `NOLOOP` the sender of that very command is not
/// told.
#[test]
fn a_key_that_the_server_forgets_to_watch_is_told_unless_a_command_of_the_same_client_is_the_cause() {
    let server = Server::start();
    let mut other = server.client();
    let mut holder = Holder::with(&server, TAKE);
    other.ok("CONFIG SET tracking-table-max-keys 1");
    for another_is_the_cause in [true, false] {
        for line in ["LOCK.INFO door", "LOCK.INFO gate"] {
            holder.read(line);
        }
        if another_is_the_cause {
            assert_eq!(other.run("PING"), "PONG");
        }
        let told = holder.told();
        assert_eq!(told.len(), usize::from(another_is_the_cause), "{told:?}");
        assert_eq!(other.info("stats", "tracking_total_keys").as_deref(), Some("1"));
    }
}

#[test]
fn a_user_needs_the_right_to_tracking() {
    let server = Server::start();
    let mut admin = server.client();
    admin.ok("ACL SETUSER alice on nopass ~door +lock.acquire +lock.extend +lock.info");
    let mut alice = server.client_speaking(Protocol::Resp3);
    alice.ok("AUTH alice x");
    assert_eq!(alice.run("CLIENT TRACKING ON NOLOOP").code(), "NOPERM");
    admin.ok("ACL SETUSER alice +client|tracking");
    alice.ok("CLIENT TRACKING ON NOLOOP");
    assert_eq!(alice.run(TAKE), 1);
    assert!(!alice.run("LOCK.INFO door").is_error());
    admin.ok("SET door bob");
    alice.send(&["LOCK.EXTEND", "door", "alice", "PX", "9000"]);
    assert!(matches!(alice.receive(), Reply::Push(_)));
    assert_eq!(alice.receive().code(), "NOTOWNER");
}
