use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::core::Core;
use crate::events::Events;
use crate::keeper::Notice;
#[cfg(feature = "cluster")]
use crate::redis::cluster::ClusterClientBuilder;
use crate::redis::{Client, cmd};
use crate::server::{SILENCE, Server};
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
    /// Connects to the server of a client.
    ///
    /// The connection is opened with the settings of the client, and again whenever it is lost. Its tasks are in the runtime
    /// in which this is called.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] if the server cannot be reached, [`Error::Server`] if it refuses the user.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn new(client: Client) -> Result<Self, Error> {
        let (keeper, notices) = unbounded_channel();
        Self::over(Server::single(client, Events::new(keeper)), notices).await
    }

    /// Connects to a cluster. The protocol and the receiver of push messages are set by this.
    ///
    /// A connection that is lost without a sign is replaced when the operating system reports it, which can take minutes:
    /// shorten this by a user timeout in `tcp_settings` of the builder.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] if the cluster cannot be reached, [`Error::Server`] if it refuses the user.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[cfg(feature = "cluster")]
    pub async fn cluster(builder: ClusterClientBuilder) -> Result<Self, Error> {
        let (keeper, notices) = unbounded_channel();
        let server = Server::cluster(builder, Events::new(keeper)).await.map_err(|error| Error::new("", error))?;
        Self::over(server, notices).await
    }

    async fn over(server: Server, notices: UnboundedReceiver<Notice>) -> Result<Self, Error> {
        match server.call(b"", &cmd("PING"), Instant::now() + SILENCE).await.map_err(|error| Error::new("", error)) {
            // These are for the command alone, or pass.
            Err(error) if !error.is_reply("BUSY LOADING MASTERDOWN MISCONF NOPERM", "") => Err(error),
            _ => Ok(Self { core: Core::new(server, notices) }),
        }
    }

    /// Describes a lock; nothing is sent yet. The name is the key of the lock.
    pub fn lock(&self, name: impl Into<Vec<u8>>) -> Lock {
        Lock::new(self, name.into())
    }

    /// Returns what reports the label of the holder of a lock at each change.
    #[must_use]
    pub fn observe(&self, name: impl Into<Vec<u8>>) -> Observer {
        Observer::new(self.clone(), name.into())
    }

    /// Waits until the server has the releases of all guards that were dropped before, and the withdrawals of requests. Call
    /// it before the runtime ends. While a server cannot be reached this lasts until 15 seconds after the leases, so it needs a
    /// time limit.
    pub async fn close(&self) {
        // This is for `wait`: releases may begin later, too.
        self.core.releases.close();
        self.core.releases.wait().await;
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Locks").finish_non_exhaustive()
    }
}
