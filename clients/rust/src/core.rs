//! What all tasks of one [`Locks`](crate::Locks) share: commands and their stand-ins, local queues, releases.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::Error;
use crate::claim::{Claim, Command};
use crate::guard::Hold;
use crate::redis::{Cmd, Value, cmd};
use crate::registry::Registry;
use crate::release::Release;
use crate::server::Server;

/// The longest wait that the server is asked for. A process that is gone without notice keeps its queue entry for no longer.
pub(crate) const MAX_BLOCK: Duration = Duration::from_secs(15);
/// The pause before a command is sent again to a server that cannot be reached.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// Scripts are used for so long before a command is tried again.
const SCRIPTS: Duration = Duration::from_secs(5);

/// What the server replies.
pub(crate) type Reply = Result<Value, Error>;
/// What each owner of a re-entrant lock holds.
pub(crate) type Owners = HashMap<(Vec<u8>, String), Weak<Hold>>;

pub(crate) struct Core {
    pub(crate) server: Server,
    pub(crate) runtime: Handle,
    /// The local queue of each key. Its first task alone is in the queue of the server.
    pub(crate) turns: Arc<Registry<tokio::sync::Mutex<()>>>,
    /// The user has the right to the channel.
    pub(crate) has_channel: AtomicBool,
    /// The number of releases that are not done.
    pub(crate) releases: watch::Sender<usize>,
    pub(crate) orders: mpsc::UnboundedSender<Release>,
    owners: Mutex<Owners>,
    scripts_until: Mutex<Instant>,
    channel: String,
}

impl Core {
    /// Connects to the server and starts the connection task, which ends with the last lock.
    pub(crate) async fn connect(server: Server) -> Result<Arc<Self>, Error> {
        server.connect().await.map_err(|error| Error::new("", error))?;
        let (orders, mut received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(release) = received.recv().await {
                Release::start(release);
            }
        });
        Ok(Arc::new(Self {
            server,
            runtime: Handle::current(),
            turns: Arc::default(),
            has_channel: AtomicBool::new(true),
            releases: watch::Sender::new(0),
            orders,
            owners: Mutex::default(),
            scripts_until: Mutex::new(Instant::now()),
            channel: random_token(),
        }))
    }

    pub(crate) fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the channel for messages about a key, which in a cluster is in the slot of the key.
    pub(crate) fn channel(&self, key: &[u8]) -> Vec<u8> {
        let tag = self.server.tag(key).map(|tag| [b"{", tag.as_slice(), b"}:"].concat());
        [b"redis-lock:", tag.as_deref().unwrap_or_default(), self.channel.as_bytes()].concat()
    }

    /// Subscribes to the channel for messages about a key.
    pub(crate) async fn subscribe(&self, claim: &Claim) -> Reply {
        self.call(claim, cmd("SSUBSCRIBE").arg(self.channel(&claim.request.key))).await
    }

    /// Returns whether the server had no module a moment ago.
    pub(crate) fn has_scripts_only(&self) -> bool {
        Instant::now() < *self.scripts_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the server has no module.
    pub(crate) fn use_scripts(&self) {
        *self.scripts_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + SCRIPTS;
    }

    pub(crate) async fn call(&self, claim: &Claim, command: &Cmd) -> Reply {
        self.server.call(&claim.request.key, command).await.map_err(|error| Error::new(&claim.name(), error))
    }

    /// Returns the reply to a command, or without the module to its script.
    pub(crate) async fn ask(&self, claim: &Claim, command: Command) -> Reply {
        if !self.has_scripts_only() {
            match self.call(claim, &command.words).await {
                Err(error) if error.is_unknown_command() => self.use_scripts(),
                reply => return reply,
            }
        }
        let needed = || Error::ModuleNeeded(claim.name(), command.feature);
        self.call(claim, &command.script.ok_or_else(needed)?).await
    }

    /// Does the same, and sends the command again if its connection is lost. So it must not count twice.
    pub(crate) async fn ask_twice(&self, claim: &Claim, command: Command) -> Reply {
        match self.ask(claim, command.clone()).await {
            Err(Error::Connection(..)) => self.ask(claim, command).await,
            reply => reply,
        }
    }

    /// Asks for the lock without waiting, and returns whether it is held.
    pub(crate) async fn take(&self, claim: &Claim) -> Result<bool, Error> {
        let at = Instant::now();
        let is_held = self.request(claim, self.ask_twice(claim, claim.take())).await? != Value::Nil;
        if is_held {
            claim.set_lease(at, claim.lease());
        }
        Ok(is_held)
    }

    /// Sends a request for the lock. Its outcome is unknown until the server has replied, also if this is dropped.
    pub(crate) async fn request(&self, claim: &Claim, reply: impl Future<Output = Reply>) -> Reply {
        claim.session_since.store(self.server.events.disconnections(), Ordering::SeqCst);
        claim.unanswered.fetch_add(1, Ordering::SeqCst);
        let reply = reply.await;
        if !matches!(reply, Err(Error::Connection(..))) {
            claim.unanswered.fetch_sub(1, Ordering::SeqCst);
        }
        reply
    }
}

/// Returns 128 random bits as text.
pub(crate) fn random_token() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
