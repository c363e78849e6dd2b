//! What becomes of a subscriber in the very round of the event loop in which its grant is made. If nobody gets the message
//! the lock goes to the next at once. If somebody may have got it, which cannot be known, the grant stands until its lease
//! ends.

use support::parallel::for_each;
use support::process::Process;
use support::sessions::session_of;
use support::{Client, Protocol, Reply, Server, Setup, Waiter, eventually, field, info_lock, now_ms, waiters_of};

/// Longer than a busy machine holds a server up in the middle of a round.
const LEASE_MS: i64 = 1500;

/// The subscriber's buffer is full beyond its limit with one long message.
const LIMIT: &str = "client-output-buffer-limit pubsub 1000 0 0";

const PROTOCOLS: [Protocol; 2] = [Protocol::Resp2, Protocol::Resp3];

/// A lock of alice's, for which bob waits by a message on `news` and carol, blocked, behind him.
struct Line {
    server: Server,
    alice: Client,
    bob: Client,
    /// It is a guest's.
    listener: Client,
    carol: Waiter,
}

impl Line {
    #[track_caller]
    fn start(protocol: Protocol) -> Self {
        let server = Setup::new().config(LIMIT).start();
        let (mut alice, mut bob) = (server.client(), server.client());
        alice.ok("ACL SETUSER guest on nopass ~* +@all &*");
        let mut listener = server.client_speaking(protocol);
        listener.ok("AUTH guest x");
        listener.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(listener.receive(), Reply::List(_) | Reply::Push(_)));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let asked = bob.run(&format!("LOCK.ACQUIRE door bob PX {LEASE_MS} BLOCK 0 NOTIFY news"));
        assert_eq!(asked, Reply::waiting());
        let carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        Self { server, alice, bob, listener, carol }
    }

    /// Alice sends all this in one write, and releases the lock in it. Returns the answers.
    #[track_caller]
    fn in_one_round(&mut self, before: &[&str], behind: &[&str]) -> Vec<Reply> {
        let release = ["PUBSUB SHARDNUMSUB news", "LOCK.RELEASE door alice", "GET door", "PEXPIRETIME door"];
        let lines: Vec<&str> = before.iter().chain(&release).chain(behind).copied().collect();
        self.alice.send_together(&lines);
        let mut replies: Vec<Reply> = lines.iter().map(|_| self.alice.receive()).collect();
        for (line, reply) in lines.iter().zip(&replies) {
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        replies.drain(before.len()..before.len() + release.len()).collect()
    }

    /// By these answers bob has the lock until his lease ends, if there was somebody to be told of it. Otherwise carol has
    /// it in the same step. `since` is a time before the release.
    #[track_caller]
    fn goes_by_what_the_server_counts(mut self, answers: &[Reply], since: i64) {
        let [listeners, released, holder, _end] = answers else { panic!("four answers") };
        assert_eq!(*released, 0);
        let is_heard = listeners.items()[1] != 0;
        assert_eq!(*holder, if is_heard { "bob" } else { "carol" });
        assert_eq!(self.carol.reply(), 1);
        assert!(!is_heard || now_ms() - since >= LEASE_MS);
        assert_eq!(field(&mut self.alice, "door", "owner"), "carol");
        assert_eq!(waiters_of(&mut self.alice, "door"), 0);
    }
}

/// What ends the subscriber comes before the release, in the same round.
#[track_caller]
fn a_subscriber_ends_before_by(end: impl Fn(&Line) -> String + Sync) {
    for_each(&PROTOCOLS, |&protocol| {
        let mut line = Line::start(protocol);
        let (since, end) = (now_ms(), end(&line));
        let answers = line.in_one_round(&[&end], &[]);
        line.goes_by_what_the_server_counts(&answers, since);
    });
}

/// The same behind the release: the message was on its way.
#[track_caller]
fn a_subscriber_ends_behind_by(end: impl Fn(&Line) -> String + Sync) {
    for_each(&PROTOCOLS, |&protocol| {
        let mut line = Line::start(protocol);
        let (since, end) = (now_ms(), end(&line));
        let answers = line.in_one_round(&[], &[&end]);
        assert_eq!(answers[2], "bob");
        line.goes_by_what_the_server_counts(&answers, since);
    });
}

fn kill(line: &Line) -> String {
    format!("CLIENT KILL ID {}", line.listener.id())
}

fn fill(_: &Line) -> String {
    format!("SPUBLISH news {}", "x".repeat(100_000))
}

#[test]
fn a_subscriber_that_is_killed_in_the_round_of_the_grant() {
    a_subscriber_ends_before_by(kill);
    a_subscriber_ends_behind_by(kill);
}

#[test]
fn a_subscriber_that_is_over_its_output_limit_in_the_round_of_the_grant() {
    a_subscriber_ends_before_by(fill);
    a_subscriber_ends_behind_by(fill);
}

#[test]
fn a_subscriber_whose_user_ends_in_the_round_of_the_grant() {
    a_subscriber_ends_before_by(|_| "ACL DELUSER guest".to_owned());
    a_subscriber_ends_behind_by(|_| "ACL DELUSER guest".to_owned());
}

#[test]
fn a_subscriber_that_loses_the_channel_in_the_round_of_the_grant() {
    a_subscriber_ends_before_by(|_| "ACL SETUSER guest resetchannels".to_owned());
    a_subscriber_ends_behind_by(|_| "ACL SETUSER guest resetchannels".to_owned());
}

#[test]
fn a_subscriber_that_closes_in_the_round_of_the_grant() {
    for_each(&PROTOCOLS, |&protocol| {
        let Line { server, mut alice, bob, listener, mut carol } = Line::start(protocol);
        // While the server stands still both arrive: it finds the release and the close in one round.
        let process = Process::of(&server);
        process.stop();
        alice.send_together(&["PUBSUB SHARDNUMSUB news", "LOCK.RELEASE door alice", "GET door"]);
        drop(listener);
        let since = now_ms();
        process.resume();
        let answers: Vec<Reply> = (0..3).map(|_| alice.receive()).collect();
        let is_heard = answers[0].items()[1] != 0;
        assert_eq!(answers[2], if is_heard { "bob" } else { "carol" });
        assert_eq!(carol.reply(), 1);
        assert!(!is_heard || now_ms() - since >= LEASE_MS, "bob may have been told");
        drop(bob);
    });
}

#[test]
fn a_subscriber_that_leaves_the_channel_hears_of_nothing_and_keeps_the_turn() {
    for_each(&PROTOCOLS, |&protocol| {
        let mut line = Line::start(protocol);
        line.listener.send(&["SUNSUBSCRIBE", "news"]);
        assert!(matches!(line.listener.receive(), Reply::List(_) | Reply::Push(_)));
        let answers = line.in_one_round(&[], &[]);
        assert_eq!(answers[2], "carol");
        assert_eq!(line.carol.reply(), 1);
        line.listener.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(line.listener.receive(), Reply::List(_) | Reply::Push(_)));
        let dave = Waiter::start(&line.server, "LOCK.ACQUIRE door dave BLOCK 0");
        line.bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(line.alice.run("LOCK.RELEASE door carol"), 0);
        assert_eq!(field(&mut line.alice, "door", "owner"), "bob");
        assert!(dave.is_blocked());
    });
}

#[test]
fn a_subscriber_that_reads_too_late_learns_it_from_the_end_of_the_lease() {
    for_each(&PROTOCOLS, |&protocol| {
        let mut line = Line::start(protocol);
        let since = now_ms();
        let answers = line.in_one_round(&[], &[]);
        assert_eq!(answers[2], "bob");
        let end = answers[3].int();
        assert_eq!(line.carol.reply(), 1);
        assert!(now_ms() - since >= LEASE_MS && now_ms() > end);
        let (Reply::Push(parts) | Reply::List(parts)) = line.listener.receive() else { panic!("no message") };
        assert_eq!(parts[2], format!("granted {end} 0 bob door").as_str());
        let asked = line.bob.run("LOCK.EXTEND door bob PX 1000");
        assert_eq!(asked.code(), "NOTOWNER", "that is how it is asked");
    });
}

#[test]
fn one_of_two_subscribers_is_enough() {
    for_each(&PROTOCOLS, |&protocol| {
        let mut line = Line::start(protocol);
        let mut other = line.server.client_speaking(Protocol::Resp3);
        other.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(other.receive(), Reply::Push(_)));
        let kill = kill(&line);
        let answers = line.in_one_round(&[&kill], &[]);
        assert_eq!(answers[0].items()[1], 1);
        assert_eq!(answers[2], "bob");
        assert!(matches!(other.receive(), Reply::Push(parts) if parts[2].string().starts_with("granted ")));
        assert!(line.carol.is_blocked());
    });
}

/// Who asked is gone, but who listens was told: without a session the lock does not belong to the connection.
#[test]
fn who_asked_closes_behind_the_grant() {
    for session in [false, true] {
        let mut line = Line::start(Protocol::Resp3);
        if session {
            line.bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 SESSION NOTIFY news");
        }
        let since = now_ms();
        let kill = format!("CLIENT KILL ID {}", line.bob.id());
        let answers = line.in_one_round(&[], &[&kill]);
        assert_eq!(answers[2], "bob");
        assert!(matches!(line.listener.receive(), Reply::Push(parts) if parts[2].string().starts_with("granted ")));
        assert_eq!(line.carol.reply(), 1);
        assert_eq!(now_ms() - since >= LEASE_MS, !session, "with a session the lock goes with it");
        assert_eq!(session_of(&mut line.alice, "door"), [] as [i64; 0]);
    }
}

/// One request that was sent three times, in each way: whoever is left is told.
#[test]
fn copies_of_one_request_are_told_each_in_its_way() {
    for gone in ["nobody", "listener", "blocked"] {
        let server = Server::start();
        let (mut alice, mut bob) = (server.client(), server.client());
        let mut listener = server.client_speaking(Protocol::Resp3);
        listener.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(listener.receive(), Reply::Push(_)));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut blocked = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news");
        let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        let id = if gone == "listener" { listener.id() } else { blocked.id() };
        let end = if gone == "nobody" { "PING".to_owned() } else { format!("CLIENT KILL ID {id}") };
        alice.send_together(&[&end, "LOCK.RELEASE door alice", "GET door"]);
        let answers: Vec<Reply> = (0..3).map(|_| alice.receive()).collect();
        assert_eq!(answers[2], "bob", "{gone}");
        if gone != "listener" {
            assert!(matches!(listener.receive(), Reply::Push(parts) if parts[2].string().starts_with("granted ")));
        }
        assert_eq!(blocked.reply(), if gone == "blocked" { Reply::Closed } else { Reply::Int(1) });
        // A lease counts if a message was to come and could.
        assert_eq!(alice.pttl("door") == -1, gone == "listener", "{gone}");
        assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(carol.reply(), 1);
        eventually("nobody waits", || info_lock(&mut alice, "waiters") == 0);
    }
}
