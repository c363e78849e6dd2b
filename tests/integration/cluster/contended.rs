//! A mutex and a shared lock of one slot, which are held and waited for in each way.

use std::time::Duration;

use support::cluster::Tag;
use support::{Client, LOST, Reply, Server, Waiting, Way};

const HOLD: [&str; 3] = [
    "LOCK.ACQUIRE lock alice PX 600000",
    "LOCK.SHARE pool alice PX 500000 LIMIT 2",
    "LOCK.SHARE pool zoe PX 600000 LIMIT 2",
];

/// Requests in their order, each with the release after which it is granted.
const WAIT: [(Way, &str, &str); 4] = [
    (Way::Blocked, "LOCK.ACQUIRE lock bob PX 600000 BLOCK 0", "LOCK.RELEASE lock alice"),
    (Way::Notified, "LOCK.REENTER lock carol PX 600000 BLOCK 0", "LOCK.RELEASE lock bob"),
    (Way::Blocked, "LOCK.SHARE pool dave PX 600000 LIMIT 2 BLOCK 0", "LOCK.RELEASE pool alice"),
    (Way::OnOneConnection, "LOCK.SHARE pool erin PX 600000 LIMIT 2 BLOCK 0", "LOCK.RELEASE pool zoe"),
];

pub(super) struct Contended {
    tag: Tag,
    waiters: Vec<Waiting>,
    /// The value of each lock, and the end of its lease.
    contents: [(Reply, i64); 2],
}

/// Returns the command with its key in the slot of the tag.
fn in_slot(tag: &Tag, line: &str) -> String {
    line.replace(" lock ", &format!(" {} ", tag.key("lock"))).replace(" pool ", &format!(" {} ", tag.key("pool")))
}

fn contents(tag: &Tag, client: &mut Client) -> [(Reply, i64); 2] {
    let [lock, pool] = ["lock", "pool"].map(|name| tag.key(name));
    let values = [format!("GET {lock}"), format!("ZRANGE {pool} 0 -1 WITHSCORES")].map(|line| client.run(&line));
    let [of_lock, of_pool] = values;
    [(of_lock, client.expires_at(&lock)), (of_pool, client.expires_at(&pool))]
}

fn wait(tag: &Tag, server: &Server) -> Vec<Waiting> {
    WAIT.iter().map(|(way, line, _)| way.start(server, &in_slot(tag, line))).collect()
}

impl Contended {
    #[track_caller]
    pub(super) fn start(server: &Server, tag: &Tag) -> Self {
        let mut client = server.client();
        HOLD.iter().for_each(|line| assert_eq!(client.run(&in_slot(tag, line)), 1, "{line}"));
        let (waiters, contents) = (wait(tag, server), contents(tag, &mut client));
        Self { tag: tag.clone(), waiters, contents }
    }

    /// Checks that the waits for messages are lost within a second. Returns the replies to the blocked clients.
    #[track_caller]
    pub(super) fn are_lost(&mut self) -> Vec<Reply> {
        let (blocked, notified): (Vec<_>, Vec<_>) =
            self.waiters.iter_mut().partition(|waiting| matches!(waiting, Waiting::Blocked(_)));
        for waiting in notified {
            assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST);
        }
        blocked.into_iter().map(Waiting::reply).collect()
    }

    /// Checks that the connections of all waiters are closed.
    #[track_caller]
    pub(super) fn are_closed(&mut self) {
        self.waiters.iter_mut().for_each(|waiting| assert_eq!(waiting.reply(), Reply::Closed));
    }

    #[track_caller]
    pub(super) fn is_blocked(&mut self) -> bool {
        self.waiters.iter_mut().filter(|waiting| matches!(waiting, Waiting::Blocked(_))).all(Waiting::waits)
    }

    /// Checks that the server that has the locks now has them as they were, and grants them in the order of the requests. The
    /// leases may end later by so much.
    #[track_caller]
    pub(super) fn continues_at(self, server: &Server, late_ms: i64) {
        let mut client = server.client();
        for ((value, end), (before, end_before)) in contents(&self.tag, &mut client).iter().zip(&self.contents) {
            assert_eq!(value, before);
            assert!((0..=late_ms).contains(&(end - end_before)), "{value:?} ends {} ms later", end - end_before);
        }
        for (waiter, (_, line, release)) in wait(&self.tag, server).iter_mut().zip(WAIT) {
            assert!(waiter.waits(), "{line}");
            assert_eq!(client.run(&in_slot(&self.tag, release)), 0, "{release}");
            assert_eq!(waiter.reply(), 1, "{line}");
        }
    }
}
