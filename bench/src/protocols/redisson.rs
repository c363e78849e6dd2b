//! Redisson's RLock: a Hash that scripts change, and a channel on which a release wakes all waiters. Redisson is a library for
//! Java, which is not installed here. Each client is one process of it, with a connection for its subscriptions.

use std::time::Duration;

use support::bytes_of;
use support::connection::packed;
use tokio::time::timeout;

use super::{scripts, unexpected};
use crate::connection::{Connection, Reply, bytes, integer};

/// The channel of a lock.
pub const CHANNEL: &str = "redisson_lock__channel:{{key}}";
/// The key by which an unlock that is sent twice is done only once.
pub const LATCH: &str = "redisson_unlock_latch:{{key}}:{token}";
/// `0` is `LockPubSub.UNLOCK_MESSAGE`. An unlock is remembered for 18 s: 4 attempts, each of 3 s and a pause of 1.5 s.
pub const UNLOCK: &str = "EVALSHA {redisson-unlock} 3 {key} {channel} {latch} 0 30000 {owner} PUBLISH 18000";

pub struct Client {
    commands: Connection,
    messages: Connection,
    /// The UUID of the process and the number of its thread.
    owner: String,
    unlocks: u64,
    /// Replies that are still to come, and that no one waits for.
    unread: usize,
    lock_script: String,
    unlock_script: String,
}

impl Client {
    pub(super) async fn connect(port: u16, number: usize) -> Self {
        let (commands, messages) = (Connection::open(port).await, Connection::open(port).await);
        let owner = format!("6f4e3c1a-0d5b-4b7e-9a61-{number:012x}:1");
        let lock_script = scripts::filled("EVALSHA {redisson-lock} 1 {key} 30000 {owner}");
        let unlock_script = scripts::filled(UNLOCK);
        Self { commands, messages, owner, unlocks: 0, unread: 0, lock_script, unlock_script }
    }

    async fn call(&mut self, line: &str) -> Reply {
        self.commands.send(&packed(&bytes_of(line))).await;
        for _ in 0..std::mem::take(&mut self.unread) {
            self.commands.receive().await;
        }
        self.commands.receive().await
    }

    /// Tries once. Returns None if the lock is granted, otherwise the rest of its lease.
    async fn try_lock(&mut self, lock: &str) -> Option<Duration> {
        let line = self.lock_script.replace("{key}", lock).replace("{owner}", &self.owner);
        match self.call(&line).await {
            Reply::Null => None,
            // Without a lease only a message ends the wait.
            reply => match integer(&reply) {
                Some(ms) => Some(u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)),
                None => unexpected(&reply),
            },
        }
    }

    /// Subscribes when the first attempt fails, and tries again after each message and at the end of the lease.
    pub async fn acquire(&mut self, lock: &str) {
        if self.try_lock(lock).await.is_none() {
            return;
        }
        let channel = CHANNEL.replace("{key}", lock);
        self.messages.call(&format!("SUBSCRIBE {channel}")).await;
        while let Some(remaining) = self.try_lock(lock).await {
            // At the end of the lease it tries again as well.
            let _ = timeout(remaining, self.messages.receive()).await;
        }
        self.unsubscribe(&channel).await;
    }

    async fn unsubscribe(&mut self, channel: &str) {
        let mut reply = self.messages.call(&format!("UNSUBSCRIBE {channel}")).await;
        // Messages that came before.
        while !is_unsubscribed(&reply) {
            reply = self.messages.receive().await;
        }
    }

    pub async fn release(&mut self, lock: &str) {
        self.unlocks += 1;
        let token = format!("{}:{}", self.owner, self.unlocks);
        let latch = LATCH.replace("{key}", lock).replace("{token}", &token);
        let line = self.unlock_script.replace("{channel}", CHANNEL).replace("{latch}", &latch);
        let line = line.replace("{key}", lock).replace("{owner}", &self.owner);
        let reply = self.call(&line).await;
        assert_eq!(integer(&reply), Some(1), "the client held the lock");
        self.commands.send(&packed(&["DEL", &latch])).await;
        self.unread += 1;
    }
}

fn is_unsubscribed(reply: &Reply) -> bool {
    matches!(reply, Reply::Push { data, .. } if data.first().is_some_and(|kind| bytes(kind) == b"unsubscribe"))
}
