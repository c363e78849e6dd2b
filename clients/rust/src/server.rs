//! The connection of all locks: opened when it is needed, and again when it is lost.

#[cfg(feature = "cluster")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::claim::hash_tag;
use crate::error::no_reply;
use crate::events::Events;
use crate::redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use crate::redis::{
    AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value, cmd,
};
#[cfg(feature = "cluster")]
use crate::redis::{
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr},
};

/// A server that has not replied for so long is taken for lost.
const SILENCE: Duration = Duration::from_secs(5);

/// How connections are opened.
pub(crate) enum Source {
    Client(Client),
    /// With a hash tag for each slot that has a channel, so that there are no more channels than slots.
    #[cfg(feature = "cluster")]
    Cluster {
        client: Box<ClusterClient>,
        tags: Mutex<HashMap<Slot, Vec<u8>>>,
    },
}

/// The server, or the cluster. One connection to each node has all commands, in order, and the messages of the node.
pub(crate) struct Server {
    pub(crate) events: Arc<Events>,
    source: Source,
    link: Mutex<Option<Link>>,
    /// Has the error of the latest attempt to open a connection.
    opening: tokio::sync::Mutex<Option<RedisError>>,
    /// The number of attempts.
    attempts: AtomicU64,
}

/// A connection that is open, or was.
#[derive(Clone)]
struct Link {
    connection: Connection,
    is_open: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
}

impl Server {
    pub(crate) fn single(client: Client) -> Self {
        Self::new(Source::Client(client), Arc::default())
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(builder: ClusterClientBuilder) -> RedisResult<Self> {
        let events: Arc<Events> = Arc::default();
        // The cluster's connection opens those to the nodes again.
        let sender = listener(events.clone(), Events::disconnected);
        let client = builder.use_protocol(ProtocolVersion::RESP3).push_sender(sender).build()?;
        Ok(Self::new(Source::Cluster { client: Box::new(client), tags: Mutex::default() }, events))
    }

    fn new(source: Source, events: Arc<Events>) -> Self {
        Self {
            events,
            source,
            link: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            attempts: AtomicU64::default(),
        }
    }

    fn is_cluster(&self) -> bool {
        !matches!(self.source, Source::Client(_))
    }

    /// Returns a hash tag of the slot of a key, if channels belong to slots.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all channels"))]
    pub(crate) fn tag(&self, key: &[u8]) -> Option<Vec<u8>> {
        match &self.source {
            Source::Client(_) => None,
            #[cfg(feature = "cluster")]
            Source::Cluster { tags, .. } => {
                let mut tags = tags.lock().unwrap_or_else(PoisonError::into_inner);
                Some(tags.entry(Slot::for_key(key)).or_insert_with(|| hash_tag(key).to_vec()).clone())
            }
        }
    }

    /// Opens the connection, if it is not open.
    pub(crate) async fn connect(&self) -> RedisResult<()> {
        self.link().await.map(|_| ())
    }

    /// Returns the reply to a command. In a cluster, the node of the key has it.
    pub(crate) async fn call(&self, key: &[u8], command: &Cmd) -> RedisResult<Value> {
        let Link { connection, is_open } = self.link().await?;
        let reply = timeout(SILENCE, connection.call(key, command)).await.unwrap_or_else(|_| Err(no_reply()));
        if let Err(error) = &reply {
            // An address may lead to another server after a failover.
            let is_stale = error.is_unrecoverable_error() || error.is_timeout() || error.code() == Some("READONLY");
            if is_stale && !self.is_cluster() {
                close(&is_open, &self.events);
            }
        }
        reply
    }

    /// Returns the connection, if it is open.
    fn open_link(&self) -> Option<Link> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        link.filter(|link| link.is_open.load(Ordering::SeqCst))
    }

    /// Returns the connection, and opens it if it has to. Those that waited for an attempt share its error.
    async fn link(&self) -> RedisResult<Link> {
        let attempts = self.attempts.load(Ordering::SeqCst);
        if let Some(link) = self.open_link() {
            return Ok(link);
        }
        let mut failure = self.opening.lock().await;
        match (self.open_link(), &*failure) {
            (Some(link), _) => return Ok(link),
            (None, Some(error)) if self.attempts.load(Ordering::SeqCst) > attempts => return Err(error.clone()),
            _ => {}
        }
        let opened = timeout(SILENCE, self.open()).await.unwrap_or_else(|_| Err(no_reply()));
        self.attempts.fetch_add(1, Ordering::SeqCst);
        *failure = opened.as_ref().err().cloned();
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = opened.as_ref().ok().cloned();
        opened
    }

    async fn open(&self) -> RedisResult<Link> {
        let is_open = Arc::new(AtomicBool::new(true));
        let connection = match &self.source {
            Source::Client(client) => Connection::Single(self.open_single(client, is_open.clone()).await?),
            #[cfg(feature = "cluster")]
            Source::Cluster { client, .. } => Connection::Cluster(client.get_async_connection().await?),
        };
        Ok(Link { connection, is_open })
    }

    async fn open_single(&self, client: &Client, is_open: Arc<AtomicBool>) -> RedisResult<MultiplexedConnection> {
        let info = client.get_connection_info().clone();
        // With RESP3, messages come on the connection that has the commands.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SILENCE))
            .set_response_timeout(None)
            .set_push_sender(listener(self.events.clone(), move |events| close(&is_open, events)));
        let client = Client::open(info.set_redis_settings(settings))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        // The name is for CLIENT LIST alone, and the user may have no right to set it.
        let _ = cmd("CLIENT").arg("SETNAME").arg("redis-lock-client").exec_async(&mut connection).await;
        Ok(connection)
    }
}

/// Returns the receiver of the messages of a connection.
fn listener(events: Arc<Events>, lose: impl Fn(&Events) + Send + Sync + 'static) -> impl AsyncPushSender {
    move |message: PushInfo| {
        match message.kind {
            PushKind::Disconnection => lose(&events),
            _ => events.hear(&message),
        }
        Ok::<_, SendError>(())
    }
}

/// Notes that a connection is lost, once.
fn close(is_open: &AtomicBool, events: &Events) {
    if is_open.swap(false, Ordering::SeqCst) {
        events.disconnected();
    }
}

impl Connection {
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all keys"))]
    async fn call(self, key: &[u8], command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(mut connection) => command.query_async(&mut connection).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(mut connection) => {
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(Slot::for_key(key), SlotAddr::Master));
                connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await?.extract_error()
            }
        }
    }
}
