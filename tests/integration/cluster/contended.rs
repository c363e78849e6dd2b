//! Locks of one slot that are held and waited for, in two forms: a mutex, and a shared lock with two shares.

use std::time::Duration;

use support::cluster::Tag;
use support::staggered::Staggered;
use support::{Client, LOST, Reply, Server, Waiter, Waiting, Way, field, waiters_of};

/// A form of lock, as the tests of this folder take it.
pub(super) struct Form {
    command: &'static str,
    /// Further options of the command.
    options: &'static str,
    /// As many as can hold the lock. Their leases end after the test.
    holders: &'static [(&'static str, i64)],
    staggered: fn(&Server, &str, i64, i64) -> Staggered,
}

pub(super) const MUTEX: Form =
    Form { command: "LOCK.ACQUIRE", options: "", holders: &[("alice", 600_000)], staggered: Staggered::start };

pub(super) const SHARED: Form = Form {
    command: "LOCK.SHARE",
    options: " LIMIT 2",
    holders: &[("alice", 600_000), ("zoe", 500_000)],
    staggered: Staggered::start_shared,
};

impl Form {
    fn is_shared(&self) -> bool {
        !self.options.is_empty()
    }

    /// Returns the key of a lock of this form in the slot of the tag.
    pub(super) fn key(&self, name: &str, tag: &Tag) -> String {
        tag.key(&format!("{}-{name}", self.command))
    }

    pub(super) fn request(&self, key: &str, token: &str, ms: i64) -> String {
        format!("{} {key} {token} PX {ms}{}", self.command, self.options)
    }

    /// Returns a request that waits.
    pub(super) fn wait(&self, key: &str, token: &str) -> String {
        self.request(key, token, 600_000) + " BLOCK 0"
    }

    #[track_caller]
    pub(super) fn hold(&self, client: &mut Client, key: &str) {
        for (token, ms) in self.holders {
            assert_eq!(client.run(&self.request(key, token, *ms)), 1, "{token}");
        }
    }

    /// Returns who holds the lock, with the ends of shares.
    fn value(&self, client: &mut Client, key: &str) -> Reply {
        let command = if self.is_shared() { format!("ZRANGE {key} 0 -1 WITHSCORES") } else { format!("GET {key}") };
        client.run(&command)
    }

    /// Starts locks whose leases end one after the other, with a waiter each.
    #[track_caller]
    pub(super) fn staggered(&self, server: &Server, tag: &Tag, count: i64, step_ms: i64) -> Staggered {
        (self.staggered)(server, &format!("-{}{}", self.command, tag.name), count, step_ms)
    }
}

/// A lock that is held as long as the test. Bob waits for it blocked, and carol for a message. Dave waits for the lock alone, for a
/// message on his own connection.
pub(super) struct Contended {
    form: &'static Form,
    pub(super) key: String,
    pub(super) bob: Waiter,
    carol: Waiting,
    dave: Waiting,
    value: Reply,
    /// Unix time in milliseconds.
    end: i64,
    /// A lock of the same form for which no client waits.
    quiet: String,
}

impl Contended {
    /// Starts one lock of each form.
    #[track_caller]
    pub(super) fn start_both(server: &Server, tag: &Tag) -> [Self; 2] {
        [&MUTEX, &SHARED].map(|form| Self::start(form, server, tag))
    }

    #[track_caller]
    pub(super) fn start(form: &'static Form, server: &Server, tag: &Tag) -> Self {
        let [key, quiet] = ["lock", "quiet"].map(|name| form.key(name, tag));
        let mut client = server.client();
        form.hold(&mut client, &quiet);
        form.hold(&mut client, &key);
        let [bob, carol, dave] = wait(form, server, &key);
        let Waiting::Blocked(bob) = bob else { panic!("bob is blocked") };
        let (value, end) = (form.value(&mut client, &key), client.expires_at(&key));
        Self { form, key, bob, carol, dave, value, end, quiet }
    }

    /// Checks that the waits for messages are lost within a second. Returns the reply to bob.
    #[track_caller]
    pub(super) fn are_lost(&mut self) -> Reply {
        for waiting in [&mut self.carol, &mut self.dave] {
            assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST, "{}", self.key);
        }
        self.bob.reply()
    }

    /// Checks that the connections of all waiters are closed.
    #[track_caller]
    pub(super) fn are_closed(&mut self) {
        assert_eq!([self.bob.reply(), self.carol.reply(), self.dave.reply()], [(); 3].map(|()| Reply::Closed));
    }

    /// Checks that the server that has the lock now has it as it was, and grants it in the order of the requests. The lease may end
    /// later by so much. A lock whose lease ends there is granted, too.
    #[track_caller]
    pub(super) fn continues_at(self, server: &Server, late_ms: i64) {
        let (mut client, key) = (server.client(), &self.key);
        assert!(self.is_held_at(&mut client), "{key}: {:?}", self.form.value(&mut client, key));
        let late = client.expires_at(key) - self.end;
        assert!((0..=late_ms).contains(&late), "{key} ends {late} ms later");
        let waiters = wait(self.form, server, key);
        serve(self.form, &mut client, key, waiters);
        self.lease_that_ends_is_granted(server);
    }

    /// Returns whether the lock is at this server as it was at the beginning.
    pub(super) fn is_held_at(&self, client: &mut Client) -> bool {
        let holds =
            field(client, &self.key, "holds") == i64::try_from(self.form.holders.len()).expect("a small number");
        holds && self.form.value(client, &self.key) == self.value
    }

    /// Checks that the waiters are granted the lock in their order.
    #[track_caller]
    pub(super) fn check_order_of_grants(self, client: &mut Client) {
        let Self { form, key, bob, carol, dave, .. } = self;
        serve(form, client, &key, [Waiting::Blocked(bob), carol, dave]);
    }

    #[track_caller]
    fn lease_that_ends_is_granted(&self, server: &Server) {
        let (mut client, key) = (server.client(), &self.quiet);
        assert_eq!(client.run(&format!("LOCK.EXTEND {key} alice PX 200")), 200, "alice has held {key} all the time");
        let mut bob = Waiter::start(server, &(self.form.request(key, "bob", 50) + " BLOCK 0"));
        let mut carol = Way::Notified.start(server, &self.form.wait(key, "carol"));
        assert_eq!(bob.reply(), 1, "{key}");
        assert_eq!(carol.reply(), 1, "{key}");
        for holder in ["carol", "zoe"].into_iter().take(self.form.holders.len()) {
            assert_eq!(client.run(&format!("LOCK.RELEASE {key} {holder}")), 0, "{holder} holds {key}");
        }
        assert_eq!(field(&mut client, key, "state"), "free");
    }
}

/// Starts the waits of bob, carol and dave.
#[track_caller]
fn wait(form: &Form, server: &Server, key: &str) -> [Waiting; 3] {
    let bob = Way::Blocked.start(server, &form.wait(key, "bob"));
    let carol = Way::Notified.start(server, &form.wait(key, "carol"));
    [bob, carol, Way::OnOneConnection.start(server, &MUTEX.wait(key, "dave"))]
}

/// Releases the lock again and again, and checks that the waiters are granted it in their order.
#[track_caller]
fn serve(form: &Form, client: &mut Client, key: &str, [mut bob, mut carol, mut dave]: [Waiting; 3]) {
    let mut holders: Vec<&str> = form.holders.iter().map(|(token, _)| *token).collect();
    for (waiting, token) in [(&mut bob, "bob"), (&mut carol, "carol")] {
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} {}", holders.remove(0))), 0);
        assert_eq!(waiting.reply(), 1, "{token} waits for {key}");
        holders.push(token);
    }
    if form.is_shared() {
        let last = client.run(&format!("ZRANGE {key} -1 -1 WITHSCORES")).items()[1].string();
        assert_eq!(client.expires_at(key).to_string(), last, "the key lives as long as the last share");
    }
    assert!(dave.waits());
    for holder in holders {
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} {holder}")), 0);
    }
    assert_eq!(dave.reply(), 1, "dave waits for {key}");
    assert_eq!(waiters_of(client, key), 0);
}
