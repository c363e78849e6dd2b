//! What all tasks of one [`Locks`](crate::Locks) share: commands and their stand-ins, local queues, releases.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::claim::{Claim, Command};
use crate::guard::Hold;
use crate::redis::{Cmd, Value};
use crate::registry::Registry;
use crate::server::Server;

/// The longest wait that the server is asked for. A process that is gone without notice keeps its queue entry for no longer.
pub(crate) const MAX_BLOCK: Duration = Duration::from_secs(15);
/// The pause before a command is sent again to a server that cannot be reached, and the longest one where it cannot notify.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// What the server could not do is tried again after this time.
pub(crate) const LATELY: Duration = Duration::from_secs(5);

/// What the server replies.
pub(crate) type Reply = Result<Value, Error>;
/// Tasks in the order of their arrival, of which the first one has the turn, and the hold of their owner if the lock is
/// re-entrant.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) held: tokio::sync::watch::Sender<Weak<Hold>>,
}

pub(crate) struct Core {
    pub(crate) server: Server,
    pub(crate) runtime: Handle,
    /// The local queues by key and owner: an owner does not wait behind one that waits for it. The first task of each is in the
    /// queue of the server.
    pub(crate) queues: Registry<(Vec<u8>, Option<String>), Queue>,
    /// The releases that are not done.
    pub(crate) releases: TaskTracker,
    pub(crate) no_module: Lately,
    /// The user has no right to the channel.
    pub(crate) no_channel: Lately,
    /// The end of the name of each channel.
    pub(crate) channel: String,
}

impl Core {
    pub(crate) fn new(server: Server) -> Arc<Self> {
        Arc::new(Self {
            server,
            runtime: Handle::current(),
            queues: Registry::default(),
            releases: TaskTracker::new(),
            no_module: Lately::default(),
            no_channel: Lately::default(),
            channel: random_token(None),
        })
    }

    pub(crate) async fn call(&self, claim: &Claim, command: &Cmd) -> Reply {
        self.server.call(&claim.request.key, command).await.map_err(|error| Error::new(&claim.request.name(), error))
    }

    /// Returns the reply to a command, or without the module to its script. It is sent again if its connection is lost, so it
    /// must not count twice.
    pub(crate) async fn ask(&self, claim: &Claim, command: &Command) -> Reply {
        match self.ask_once(claim, command).await {
            Err(Error::Connection(..)) => self.ask_once(claim, command).await,
            reply => reply,
        }
    }

    async fn ask_once(&self, claim: &Claim, command: &Command) -> Reply {
        if !self.no_module.is_on() {
            match self.call(claim, &command.words).await {
                Err(error) if error.is_unknown_command() => self.no_module.note(),
                reply => return reply,
            }
        }
        match &command.script {
            Ok(script) => self.call(claim, script).await,
            Err(feature) => Err(Error::ModuleNeeded(claim.request.name(), feature)),
        }
    }

    /// Sends a request for the lock. Its outcome is unknown if a connection is lost before the reply, or if this is dropped.
    pub(crate) async fn request(&self, claim: &Claim, command: &Command) -> Reply {
        let disconnections = self.server.events.disconnections();
        claim.session_since.store(disconnections, Ordering::SeqCst);
        claim.unanswered.fetch_add(1, Ordering::SeqCst);
        let reply = self.ask(claim, command).await;
        if self.server.events.disconnections() == disconnections {
            claim.unanswered.fetch_sub(1, Ordering::SeqCst);
        }
        reply
    }
}

/// What the server was found to be lately.
#[derive(Default)]
pub(crate) struct Lately(Mutex<Option<Instant>>);

impl Lately {
    pub(crate) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < LATELY)
    }
}

/// Returns 128 random bits as text, after a label.
pub(crate) fn random_token(label: Option<&str>) -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    let random = format!("{:032x}", u128::from_ne_bytes(bytes));
    label.map_or(random.clone(), |label| format!("{label}:{random}"))
}
