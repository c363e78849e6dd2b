//! What all tasks of one [`Locks`](crate::Locks) share: commands and their stand-ins, local queues, releases.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::hold::Hold;
use crate::keeper::{Keeper, Notice};
use crate::queues::LocalQueues;
use crate::registry::Registry;
use crate::request::Command;
use crate::server::{Reply, Server, Words};

/// The longest wait that the server is asked for. A process that is gone without notice keeps its queue entry for no longer.
pub(crate) const MAX_BLOCK: Duration = Duration::from_secs(15);
/// The pause before a command is sent again to a server that cannot be reached, and the longest one where it cannot notify.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// What the server could not do is tried again after this time.
pub(crate) const LATELY: Duration = Duration::from_secs(5);

pub(crate) struct Core {
    pub(crate) server: Server,
    pub(crate) runtime: Handle,
    pub(crate) queues: Registry<Vec<u8>, LocalQueues>,
    /// The releases that are not done, since the latest call that waits for them.
    releases: Mutex<TaskTracker>,
    /// The task that watches keys. It ends with the runtime.
    keeper: AbortHandle,
    pub(crate) no_module: Lately,
    /// The user has no right to the channel.
    pub(crate) no_channel: Lately,
    /// The end of the name of each channel.
    channel: String,
}

impl Core {
    pub(crate) fn new(server: Server, notices: UnboundedReceiver<Notice>) -> Arc<Self> {
        Arc::new_cyclic(|core| Self {
            server,
            runtime: Handle::current(),
            queues: Registry::default(),
            releases: Mutex::default(),
            keeper: tokio::spawn(Keeper::new(core.clone(), notices).run()).abort_handle(),
            no_module: Lately::default(),
            no_channel: Lately::default(),
            channel: random_token(None),
        })
    }

    /// Returns the channel for the messages about a key, none if there can be none.
    pub(crate) fn channel(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.server.prefix(key).map(|prefix| [prefix.as_slice(), self.channel.as_bytes()].concat())
    }

    /// Returns the releases since the latest call that waits for them.
    pub(crate) fn releases(&self) -> MutexGuard<'_, TaskTracker> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the releases until now. Those that begin later are not in it, so that it ends.
    pub(crate) fn releases_until_now(&self) -> TaskTracker {
        let before = std::mem::take(&mut *self.releases());
        before.close();
        let is_over = before.clone();
        // A later call waits for these, too.
        self.releases().spawn_on(async move { is_over.wait().await }, &self.runtime);
        before
    }

    /// Runs a future of any task in the runtime of the locks, which has the connection and the timers.
    pub(crate) async fn inside<T>(
        &self,
        hold: &Hold,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut work = pin!(work);
        let result = poll_fn(|context| {
            if self.keeper.is_finished() {
                return Poll::Ready(None);
            }
            let _runtime = self.runtime.enter();
            work.as_mut().poll(context).map(Some)
        });
        if let Some(result) = result.await {
            return result;
        }
        // A task that tries again and again shall not keep its runtime from ending.
        yield_now().await;
        Err(Error::ended(&hold.request.name()))
    }

    pub(crate) async fn call(&self, hold: &Hold, words: &Words, until: Instant) -> Result<Reply, Error> {
        let reply = self.server.call(&hold.request.key, words, until).await;
        reply.map_err(|fault| Error::new(&hold.request.name(), fault))
    }

    /// Returns the reply to a command, or without the module to its script. It is sent again if its connection is lost, so it
    /// must not count twice.
    pub(crate) async fn ask(&self, hold: &Hold, command: &Command, until: Instant) -> Result<Reply, Error> {
        match self.ask_once(hold, command, until).await {
            // What is rare is in a box, so that futures stay small.
            Err(Error::Connection(..)) if Instant::now() < until => Box::pin(self.ask_once(hold, command, until)).await,
            reply => reply,
        }
    }

    pub(crate) async fn ask_once(&self, hold: &Hold, command: &Command, until: Instant) -> Result<Reply, Error> {
        if !self.no_module.is_on() {
            match self.call(hold, &command.words, until).await {
                Err(error) if error.is_unknown_command() => self.no_module.note(),
                reply => return reply,
            }
        }
        match command.script {
            Ok((lease, action)) => {
                let script = hold.request.script(&hold.token, lease, action);
                Box::pin(self.call(hold, &script, until)).await
            }
            Err(feature) => Err(Error::ModuleNeeded(hold.request.name(), feature)),
        }
    }

    /// Sends a request for the lock, again if its connection is lost. Its outcome is unknown without a reply, or if this is dropped.
    pub(crate) async fn request(&self, hold: &Hold, command: &Command, until: Instant) -> Result<Reply, Error> {
        match self.request_once(hold, command, until).await {
            Err(Error::Connection(..)) if Instant::now() < until => {
                Box::pin(self.request_once(hold, command, until)).await
            }
            reply => reply,
        }
    }

    async fn request_once(&self, hold: &Hold, command: &Command, until: Instant) -> Result<Reply, Error> {
        let connection = self.server.events.disconnections();
        hold.asked(connection);
        let reply = self.ask_once(hold, command, until).await;
        if !matches!(reply, Err(Error::Connection(..))) {
            hold.replied(self.server.events.disconnections() == connection);
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
