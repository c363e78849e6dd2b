use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;

use crate::core::Core;
use crate::events::Events;
use crate::server::{Server, Source, Words, patience};
use crate::{Error, Lock, Observer};

/// The locks of one server or cluster, over a connection of their own.
///
/// It is cheap to clone. One for each process is enough: all tasks share its connection, and wait in one local queue for
/// each lock.
#[derive(Clone)]
pub struct Locks {
    pub(crate) core: Arc<Core>,
}

impl Locks {
    /// Connects to a server, or to a cluster: see [`Source`].
    ///
    /// The connection is opened with the settings of the client, and again whenever it is lost. Its tasks and timers are in the
    /// runtime in which this is called, which must run: one of the kind `current_thread` runs only in `block_on`.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] if the server cannot be reached, [`Error::Server`] if it refuses the user.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn new(source: impl Into<Source>) -> Result<Self, Error> {
        let (keeper, notices) = unbounded_channel();
        let error = |fault| Error::new("", fault);
        let server = Server::new(source.into(), Events::new(keeper)).await.map_err(error)?;
        match server.call(b"", &Words::new("PING"), patience()).await.map_err(error) {
            // These are for the command alone, or pass.
            Err(error) if !error.is_reply("BUSY LOADING MASTERDOWN MISCONF NOPERM", "") => Err(error),
            _ => Ok(Self { core: Core::new(server, notices) }),
        }
    }

    /// Describes a lock; nothing is sent yet. The name is the key of the lock.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self, name.as_ref().to_vec())
    }

    /// Returns what reports the label of the holder of a lock at each change.
    #[must_use]
    pub fn observe(&self, name: impl AsRef<[u8]>) -> Observer {
        Observer::new(self.clone(), name.as_ref().to_vec())
    }

    /// Waits until the server has the releases of all guards that were dropped before, and the withdrawals of requests. Call
    /// it before the runtime ends. While a server cannot be reached this lasts until 15 seconds after the leases, so it needs a
    /// time limit.
    pub async fn close(&self) {
        self.core.releases_until_now().wait().await;
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Locks").finish_non_exhaustive()
    }
}
