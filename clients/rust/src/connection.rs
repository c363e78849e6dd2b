//! The connections by one version of the redis crate: `redis_one.rs` and `redis_two.rs` have this module each.

#[cfg(feature = "cluster")]
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

use super::redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection, SendError};
#[cfg(feature = "sentinel")]
use super::redis::sentinel::SentinelClient;
use super::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value,
    cmd,
};
#[cfg(feature = "cluster")]
use super::redis::{
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr},
};
use super::source;
use crate::error::{Fault, no_reply};
use crate::events::Events;
#[cfg(feature = "cluster")]
use crate::request::channel_prefix;
use crate::server::{Reply, SILENCE, Source, Words};

/// A server, or a cluster, to which nothing is connected.
pub(crate) enum Address {
    Server(Client, AsyncConnectionConfig),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<SentinelClient>>, AsyncConnectionConfig),
    #[cfg(feature = "cluster")]
    Cluster(ClusterClientBuilder),
}

impl From<Client> for Source {
    fn from(client: Client) -> Self {
        (client, AsyncConnectionConfig::new()).into()
    }
}

/// With a configuration of the connection, such as credentials and keep-alive. Its receiver of messages and its time limits
/// are set by this package.
impl From<(Client, AsyncConnectionConfig)> for Source {
    fn from((client, config): (Client, AsyncConnectionConfig)) -> Self {
        source(Address::Server(client, config))
    }
}

/// The present master of a service, which the sentinels are asked for whenever a connection is lost.
#[cfg(feature = "sentinel")]
impl From<SentinelClient> for Source {
    fn from(client: SentinelClient) -> Self {
        (client, AsyncConnectionConfig::new()).into()
    }
}

#[cfg(feature = "sentinel")]
impl From<(SentinelClient, AsyncConnectionConfig)> for Source {
    fn from((client, config): (SentinelClient, AsyncConnectionConfig)) -> Self {
        source(Address::Sentinel(Box::new(client.into()), config))
    }
}

/// A cluster. The protocol and the receiver of messages are set by this package.
///
/// A connection that is lost without a sign is replaced when the operating system reports it, which can take minutes:
/// shorten this by a user timeout in `tcp_settings` of the builder.
#[cfg(feature = "cluster")]
impl From<ClusterClientBuilder> for Source {
    fn from(builder: ClusterClientBuilder) -> Self {
        source(Address::Cluster(builder))
    }
}

/// What is connected, or can be.
pub(crate) enum Target {
    Single(Box<Address>, Mutex<Link>),
    /// With the start of the channel for each slot that has one, so that there are no more channels than slots.
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection, Mutex<HashMap<Slot, Vec<u8>>>),
}

/// The number of connections that were lost before this one, which is lost when there are more; and the connection.
type Link = (u64, Opening);
/// A connection, or the error of the attempt to open it, which all commands that wait for it share.
type Opening = Arc<OnceCell<RedisResult<MultiplexedConnection>>>;

impl Target {
    #[cfg_attr(
        not(feature = "cluster"),
        expect(clippy::unused_async, unused_variables, reason = "a cluster is connected")
    )]
    pub(crate) async fn new(address: Address, events: &Arc<Events>) -> Result<Self, Fault> {
        Ok(match address {
            #[cfg(feature = "cluster")]
            Address::Cluster(builder) => {
                // The cluster's connection opens those to the nodes again.
                let sender = listener(events, |events| events.disconnected(events.disconnections()));
                let client = builder
                    .use_protocol(ProtocolVersion::RESP3)
                    .push_sender(sender)
                    .build()
                    .map_err(|error| fault(&error))?;
                let connection = timeout(SILENCE, client.get_async_connection()).await.map_err(|_| no_reply())?;
                Self::Cluster(connection.map_err(|error| fault(&error))?, Mutex::default())
            }
            address => Self::Single(Box::new(address), Mutex::default()),
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self, Self::Single(..))
    }

    /// Returns the start of the channel for a key in a cluster, none if there can be none.
    #[cfg(feature = "cluster")]
    pub(crate) fn prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        let Self::Cluster(_, prefixes) = self else { return None };
        let new = channel_prefix(key)?;
        let mut prefixes = prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        Some(prefixes.entry(Slot::for_key(key)).or_insert(new).clone())
    }

    /// Returns the reply to a command, which must come until an instant. In a cluster, the node of the key has it.
    pub(crate) async fn call(
        &self,
        events: &Arc<Events>,
        key: &[u8],
        words: &Words,
        until: Instant,
    ) -> Result<Reply, Fault> {
        let (asked_at, number) = (Instant::now(), events.disconnections());
        let (number, link) = self.link(events).unwrap_or_else(|| (number, Arc::default()));
        let sent = self.send(events, key, words, number, &link);
        let (fault, is_lost) = match timeout_at(until.min(asked_at + SILENCE), sent).await {
            Ok(Ok(value)) => return Ok(reply(value)),
            // An address may lead to another server after a failover.
            Ok(Err(error)) => (fault(&error), error.is_io_error() || error.code() == Some("READONLY")),
            // The caller does not wait any longer. Of the server this says nothing.
            Err(_) if asked_at.elapsed() < SILENCE * 9 / 10 => return Err(no_reply()),
            Err(_) => (no_reply(), true),
        };
        if is_lost || !(self.is_cluster() || matches!(link.get(), Some(Ok(_)))) {
            events.disconnected(number);
        }
        Err(fault)
    }

    /// Returns the present connection to a single server.
    #[cfg_attr(not(feature = "cluster"), expect(clippy::unnecessary_wraps, reason = "a cluster has none"))]
    fn link(&self, events: &Events) -> Option<Link> {
        let link = match self {
            Self::Single(_, link) => link,
            #[cfg(feature = "cluster")]
            Self::Cluster(..) => return None,
        };
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        let number = events.disconnections();
        if link.0 != number {
            *link = (number, Arc::default());
        }
        Some(link.clone())
    }

    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all keys"))]
    async fn send(
        &self,
        events: &Arc<Events>,
        key: &[u8],
        words: &Words,
        number: u64,
        link: &Opening,
    ) -> RedisResult<Value> {
        let command = command(words);
        match self {
            Self::Single(address, _) => {
                // What is rare is in a box, so that futures stay small.
                let mut connection = link.get_or_init(|| Box::pin(open(address, events, number))).await.clone()?;
                connection.req_packed_command(&command).await
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(connection, _) => {
                let mut connection = connection.clone();
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(Slot::for_key(key), SlotAddr::Master));
                Box::pin(connection.route_command(command, RoutingInfo::SingleNode(node))).await
            }
        }
        .and_then(Value::extract_error)
    }
}

fn command(words: &Words) -> Cmd {
    let mut command = Cmd::with_capacity(words.len(), words.size());
    for word in words.iter() {
        command.arg(word);
    }
    command
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Number(number),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) => Reply::Text(text.into_bytes()),
        Value::Map(pairs) => {
            Reply::List(pairs.into_iter().flat_map(|(name, value)| [name, value]).map(reply).collect())
        }
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect()),
        _ => Reply::Other,
    }
}

fn fault(error: &RedisError) -> Fault {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let words = [error.code().unwrap_or_default(), error.detail().unwrap_or_default()];
            Fault::Server(words.join(" ").trim().to_owned())
        }
        _ => Fault::Connection(error.to_string()),
    }
}

/// Opens a connection to a server.
async fn open(address: &Address, events: &Arc<Events>, number: u64) -> RedisResult<MultiplexedConnection> {
    let (client, config) = match address {
        Address::Server(client, config) => (client.clone(), config),
        #[cfg(feature = "sentinel")]
        Address::Sentinel(client, config) => (client.lock().await.async_get_client().await?, config),
        #[cfg(feature = "cluster")]
        Address::Cluster(_) => unreachable!("a cluster opens its connections"),
    };
    let info = client.get_connection_info().clone();
    // With RESP3, messages come on the connection that has the commands.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let config = config
        .clone()
        .set_connection_timeout(Some(SILENCE))
        .set_response_timeout(None)
        .set_push_sender(listener(events, move |events| events.disconnected(number)));
    let client = Client::open(info.set_redis_settings(settings))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    // The name is for CLIENT LIST alone, and the user may have no right to these.
    let (name, tracking) = (["SETNAME", "redis-lock-client"], ["TRACKING", "ON"]);
    for words in [name, tracking] {
        let command = cmd("CLIENT").arg(&words).take();
        match timeout(SILENCE, command.exec_async(&mut connection)).await {
            // Without reports of changes a connection would see losses late for as long as it exists.
            Ok(Err(error)) if error.is_io_error() || error.code() == Some("BUSY") => return Err(error),
            _ => {}
        }
    }
    Ok(connection)
}

/// Returns the receiver of the messages of a connection.
fn listener(events: &Arc<Events>, lose: impl Fn(&Events) + Send + Sync + 'static) -> impl AsyncPushSender {
    let events = events.clone();
    move |message: PushInfo| {
        match (message.kind, message.data.as_slice()) {
            (PushKind::Disconnection, _) => lose(&events),
            (PushKind::SMessage, [_, Value::BulkString(text)]) => events.message(text),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                for key in keys {
                    if let Value::BulkString(key) = key {
                        events.changed(key);
                    }
                }
            }
            // All keys, and all waits on a channel.
            (PushKind::Invalidate | PushKind::SUnsubscribe, _) => events.note_all(),
            _ => {}
        }
        Ok::<_, SendError>(())
    }
}
