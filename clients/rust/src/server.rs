//! The connection of all locks: opened when it is needed, and again when it is lost.

#[cfg(feature = "cluster")]
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::no_reply;
use crate::events::Events;
use crate::hold::NO_CONNECTION;
use crate::redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use crate::redis::{
    AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value, cmd,
};
#[cfg(feature = "cluster")]
use crate::redis::{
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr},
};
#[cfg(feature = "cluster")]
use crate::request::channel_prefix;

/// A server that has not replied for so long is taken for lost, and a request without a message is sent again. Less than
/// `lock.rejoin-grace-ms`.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// Returns until when a command is waited for whose caller has no other limit.
pub(crate) fn patience() -> Instant {
    Instant::now() + SILENCE
}

/// The server, or the cluster. One connection to each node has all commands, in order, and the messages of the node.
pub(crate) struct Server {
    pub(crate) events: Arc<Events>,
    target: Target,
}

enum Target {
    Single(Client, Mutex<Link>),
    /// With the start of the channel for each slot that has one, so that there are no more channels than slots.
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection, Mutex<HashMap<Slot, Vec<u8>>>),
}

/// The number of connections that were lost before this one, which is lost when there are more; and the connection.
type Link = (u64, Opening);
/// A connection, or the error of the attempt to open it, which all commands that wait for it share.
type Opening = Arc<OnceCell<RedisResult<MultiplexedConnection>>>;

impl Server {
    pub(crate) fn single(client: Client, events: Arc<Events>) -> Self {
        Self { events, target: Target::Single(client, Mutex::default()) }
    }

    /// Connects to a cluster.
    #[cfg(feature = "cluster")]
    pub(crate) async fn cluster(builder: ClusterClientBuilder, events: Arc<Events>) -> RedisResult<Self> {
        // The cluster's connection opens those to the nodes again.
        let sender = listener(&events, |events| events.disconnected(events.disconnections()));
        let client = builder.use_protocol(ProtocolVersion::RESP3).push_sender(sender).build()?;
        let connection = timeout(SILENCE, client.get_async_connection()).await.unwrap_or_else(|_| Err(no_reply()))?;
        Ok(Self { events, target: Target::Cluster(connection, Mutex::default()) })
    }

    /// Returns the start of the channel for a key, none if there can be none. In a cluster the channel is in the slot of the key. At
    /// one server each connection has a channel, because the server may send messages to a lost one.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, clippy::unnecessary_wraps, reason = "one server has all channels")
    )]
    pub(crate) fn prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        match &self.target {
            Target::Single(..) => Some(format!("redis-lock:{}:", self.events.disconnections()).into_bytes()),
            #[cfg(feature = "cluster")]
            Target::Cluster(_, prefixes) => {
                let mut prefixes = prefixes.lock().unwrap_or_else(PoisonError::into_inner);
                let new = channel_prefix(key)?;
                Some(prefixes.entry(Slot::for_key(key)).or_insert(new).clone())
            }
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self.target, Target::Single(..))
    }

    /// Returns the number of a connection that executes commands in the order in which they are sent. In a cluster there is none,
    /// because a command that a node redirects is sent again.
    pub(crate) fn in_order(&self, connection: u64) -> u64 {
        if self.is_cluster() { NO_CONNECTION } else { connection }
    }

    /// Returns the reply to a command, which must come until an instant. In a cluster, the node of the key has it.
    pub(crate) async fn call(&self, key: &[u8], command: &Cmd, until: Instant) -> RedisResult<Value> {
        let asked_at = Instant::now();
        let (number, link) = self.link();
        let reply =
            match timeout_at(until.min(asked_at + SILENCE), self.send(key, command, number, link.as_ref())).await {
                Ok(reply) => reply,
                // The caller does not wait any longer. Of the server this says nothing.
                Err(_) if asked_at.elapsed() < SILENCE * 9 / 10 => return Err(no_reply()),
                Err(_) => Err(no_reply()),
            };
        let is_lost = |error: &RedisError| {
            // An address may lead to another server after a failover.
            error.is_io_error()
                || error.code() == Some("READONLY")
                || link.as_ref().is_some_and(|link| !matches!(link.get(), Some(Ok(_))))
        };
        if reply.as_ref().is_err_and(is_lost) {
            self.events.disconnected(number);
        }
        reply
    }

    /// Returns the number of the present connection, and that of a single server.
    fn link(&self) -> (u64, Option<Opening>) {
        let number = self.events.disconnections();
        match &self.target {
            Target::Single(_, link) => {
                let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
                let number = self.events.disconnections();
                if link.0 != number {
                    *link = (number, Arc::default());
                }
                (number, Some(link.1.clone()))
            }
            #[cfg(feature = "cluster")]
            Target::Cluster(..) => (number, None),
        }
    }

    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all keys"))]
    async fn send(&self, key: &[u8], command: &Cmd, number: u64, link: Option<&Opening>) -> RedisResult<Value> {
        match (&self.target, link) {
            (Target::Single(client, _), link) => {
                let link = link.expect("a single server has it");
                let mut connection = link.get_or_init(|| Box::pin(open(client, &self.events, number))).await.clone()?;
                command.query_async(&mut connection).await
            }
            #[cfg(feature = "cluster")]
            (Target::Cluster(connection, _), _) => {
                let mut connection = connection.clone();
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(Slot::for_key(key), SlotAddr::Master));
                let reply = Box::pin(connection.route_command(command.clone(), RoutingInfo::SingleNode(node))).await;
                reply.and_then(Value::extract_error)
            }
        }
    }
}
/// Opens a connection to a server.
async fn open(client: &Client, events: &Arc<Events>, number: u64) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info().clone();
    // With RESP3, messages come on the connection that has the commands.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SILENCE))
        .set_response_timeout(None)
        .set_push_sender(listener(events, move |events| events.disconnected(number)));
    let client = Client::open(info.set_redis_settings(settings))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    // The name is for CLIENT LIST alone, and the user may have no right to these.
    let (name, tracking) = (["SETNAME", "redis-lock-client"], ["TRACKING", "ON"]);
    for words in [name, tracking] {
        let command = cmd("CLIENT").arg(&words).take();
        let _ = timeout(SILENCE, command.exec_async(&mut connection)).await;
    }
    Ok(connection)
}

/// Returns the receiver of the messages of a connection.
fn listener(events: &Arc<Events>, lose: impl Fn(&Events) + Send + Sync + 'static) -> impl AsyncPushSender {
    let events = events.clone();
    move |message: PushInfo| {
        match message.kind {
            PushKind::Disconnection => lose(&events),
            _ => events.hear(&message),
        }
        Ok::<_, SendError>(())
    }
}
