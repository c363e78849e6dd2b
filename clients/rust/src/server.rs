//! The connection of all locks: opened when it is needed, and again when it is lost.

#[cfg(feature = "cluster")]
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::claim::channel_prefix;
use crate::error::no_reply;
use crate::events::Events;
use crate::redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use crate::redis::{AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisResult, Value, cmd};
#[cfg(feature = "cluster")]
use crate::redis::{
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr},
};

/// A server that has not replied for so long is taken for lost, and a request without a message is sent again. Less than
/// `lock.rejoin-grace-ms`.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

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

/// The number of connections that were lost before this one, which is lost when there are more; and the connection, or the
/// error of the attempt to open it, which all commands that wait for it share.
type Link = (u64, Arc<OnceCell<RedisResult<MultiplexedConnection>>>);

impl Server {
    pub(crate) fn single(client: Client) -> Self {
        Self { events: Arc::default(), target: Target::Single(client, Mutex::default()) }
    }

    /// Connects to a cluster.
    #[cfg(feature = "cluster")]
    pub(crate) async fn cluster(builder: ClusterClientBuilder) -> RedisResult<Self> {
        let events: Arc<Events> = Arc::default();
        // The cluster's connection opens those to the nodes again.
        let sender = listener(&events, |events| events.disconnected(events.disconnections()));
        let client = builder.use_protocol(ProtocolVersion::RESP3).push_sender(sender).build()?;
        let connection = in_time(client.get_async_connection()).await?;
        Ok(Self { events, target: Target::Cluster(connection, Mutex::default()) })
    }

    pub(crate) fn in_cluster(&self) -> bool {
        !matches!(&self.target, Target::Single(..))
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

    /// Returns the reply to a command. In a cluster, the node of the key has it.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all keys"))]
    pub(crate) async fn call(&self, key: &[u8], command: &Cmd) -> RedisResult<Value> {
        let (number, reply) = match &self.target {
            Target::Single(client, link) => self.call_single(client, link, command).await,
            #[cfg(feature = "cluster")]
            Target::Cluster(connection, _) => {
                let (number, mut connection) = (self.events.disconnections(), connection.clone());
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(Slot::for_key(key), SlotAddr::Master));
                let reply = in_time(connection.route_command(command.clone(), RoutingInfo::SingleNode(node))).await;
                (number, reply.and_then(Value::extract_error))
            }
        };
        // An address may lead to another server after a failover.
        if reply.as_ref().is_err_and(|error| error.is_io_error() || error.code() == Some("READONLY")) {
            self.events.disconnected(number);
        }
        reply
    }

    /// Returns the number of the connection, too.
    async fn call_single(&self, client: &Client, link: &Mutex<Link>, command: &Cmd) -> (u64, RedisResult<Value>) {
        let (number, connection) = {
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            let number = self.events.disconnections();
            if link.0 != number {
                *link = (number, Arc::default());
            }
            link.clone()
        };
        let in_time = in_time(async {
            let mut connection = connection.get_or_init(|| open(client, &self.events, number)).await.clone()?;
            command.query_async(&mut connection).await
        });
        let reply = in_time.await;
        if !matches!(connection.get(), Some(Ok(_))) {
            self.events.disconnected(number);
        }
        (number, reply)
    }
}

async fn in_time<T>(reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(SILENCE, reply).await.unwrap_or_else(|_| Err(no_reply()))
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
    // The name is for CLIENT LIST alone, and the user may have no right to set it.
    let _ = in_time(cmd("CLIENT").arg("SETNAME").arg("redis-lock-client").exec_async(&mut connection)).await;
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
