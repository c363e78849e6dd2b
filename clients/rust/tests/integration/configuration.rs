//! What a program brings along: clients of each version, configurations, names; and the errors that it prints.

use std::error::Error as _;
use std::net::SocketAddr;

#[cfg(feature = "redis-1")]
use futures_util::stream::{self, BoxStream, StreamExt};
use redis_lock_client::{Error, Locks, redis};
use support::Setup;

use crate::{LONG, is_free, started};

/// Returns the text of an error and of all its sources.
fn texts(error: &Error) -> String {
    let (mut texts, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        texts = format!("{texts}: {error}");
        source = error.source();
    }
    texts
}

#[tokio::test]
async fn error_says_its_cause_once() {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", support::free_port())).expect("an address");
    let error = texts(&Locks::new(client).await.expect_err("no server"));
    assert_eq!((error.matches("refused").count(), error.contains("lock")), (1, false), "{error}");
    let (server, locks) = started().await;
    server.ask("RPUSH door x");
    let error = texts(&locks.lock("door").acquire().await.expect_err("no lock"));
    assert!(error.starts_with("lock \"door\": ") && error.matches("WRONGTYPE").count() == 1, "{error}");
}

#[tokio::test]
async fn names_are_text_or_bytes_borrowed_or_owned() {
    let (_server, locks) = started().await;
    let name = "door".to_owned();
    let guard = locks.lock(&name).acquire().await.expect("a free lock");
    assert_eq!(guard.name(), "door");
    let bytes = name.clone().into_bytes();
    for lock in [locks.lock(name), locks.lock(b"door"), locks.lock(bytes)] {
        assert!(lock.try_acquire().await.expect("a reply").is_none());
    }
}

#[tokio::test]
async fn guard_says_what_is_left_of_its_lease() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    assert!((1..=60).contains(&guard.remaining().as_secs()));
    assert!(tokio::time::timeout(crate::ms(50), guard.lost()).await.is_err());
    server.ask("DEL door");
    guard.lost().await;
    assert!(guard.remaining().is_zero());
}

#[cfg(all(feature = "redis-1", feature = "redis-2"))]
#[tokio::test]
async fn clients_of_both_versions_exclude_each_other() {
    let (server, locks) = started().await;
    let address = format!("redis://127.0.0.1:{}", server.port());
    let client = redis_lock_client::redis_2::Client::open(address).expect("an address");
    let others = Locks::new(client).await.expect("a server that replies");
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    let waiter = tokio::spawn(others.lock("door").acquire());
    crate::until("it waits", || crate::waiters(&server, "door") == 1).await;
    guard.release().await.expect("a lock that is held");
    let guard = waiter.await.expect("no panic").expect("a turn");
    assert!(locks.lock("door").try_acquire().await.expect("a reply").is_none());
    guard.release().await.expect("a lock that is held");
}

/// Knows the address of a host.
struct Resolver;

impl redis::io::AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> redis::RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        assert_eq!(host, "locks.internal");
        let addresses: Box<dyn Iterator<Item = SocketAddr> + Send> =
            Box::new([([127, 0, 0, 1], port).into()].into_iter());
        Box::pin(async { Ok(addresses) })
    }
}

#[tokio::test]
async fn configuration_of_the_connection_is_used() {
    let server = Setup::new().start();
    let client = redis::Client::open(format!("redis://locks.internal:{}", server.port())).expect("an address");
    let config = redis::AsyncConnectionConfig::new().set_dns_resolver(Resolver);
    let locks = Locks::new((client, config)).await.expect("a server");
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    guard.release().await.expect("the same configuration again");
    assert!(is_free(&server, "door"));
}

/// Returns the lines about the connections of the package.
fn connections(server: &support::Server) -> Vec<String> {
    let list = server.client().run("CLIENT LIST").string();
    list.lines().filter(|line| line.contains("name=redis-lock-client")).map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn keep_alive_of_the_client_is_used() {
    use redis::IntoConnectionInfo;
    use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};

    let server = Setup::new().start();
    let settings = TcpSettings::default().set_keepalive(TcpKeepalive::new().with_time(LONG));
    let info = format!("redis://127.0.0.1:{}", server.port()).into_connection_info().expect("an address");
    let client = redis::Client::open(info.set_tcp_settings(settings)).expect("an address");
    let _locks = Locks::new(client).await.expect("a server");
    let [connection] = connections(&server).try_into().expect("one connection");
    let port = connection.split(" addr=127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
    let address = |port: u16| format!("0100007F:{port:04X}");
    let (own, other) = (address(port.parse().expect("a number")), address(server.port()));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1] == own && row[2] == other).expect("its connection");
    // Timer 2 is that of the probes.
    assert!(row[5].starts_with("02:"), "{row:?}");
}

#[cfg(feature = "redis-1")]
struct Credentials;

#[cfg(feature = "redis-1")]
impl redis::auth::StreamingCredentialsProvider for Credentials {
    fn subscribe(&self) -> BoxStream<'static, redis::RedisResult<redis::auth::BasicAuth>> {
        let credentials = redis::auth::BasicAuth::new("app".to_owned(), "secret".to_owned());
        stream::iter([Ok(credentials)]).chain(stream::pending()).boxed()
    }
}

#[cfg(feature = "redis-1")]
#[tokio::test]
async fn provider_of_credentials_is_used() {
    let server = Setup::new().config("user app on >secret ~* &* +@all").start();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).expect("an address");
    let config = redis::AsyncConnectionConfig::new().set_credentials_provider(Credentials);
    let locks = Locks::new((client, config)).await.expect("a server");
    for name in ["door", "window"] {
        locks.lock(name).acquire().await.expect("a free lock").release().await.expect("a lock that is held");
        assert!(connections(&server).iter().all(|line| line.contains(" user=app ")), "{:?}", connections(&server));
        server.ask("CLIENT KILL TYPE normal SKIPME yes");
    }
}

#[cfg(feature = "sentinel")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_follow_the_master_of_sentinel() {
    use redis::sentinel::{SentinelClient, SentinelServerType};
    use support::sentinel::{Sentinel, new_master};

    let master = support::replicas::master("");
    let replica = support::replicas::replica_of(&master);
    let sentinels = Sentinel::start_three(&master, 1);
    let urls: Vec<_> = sentinels.iter().map(|sentinel| format!("redis://127.0.0.1:{}", sentinel.port())).collect();
    let client = SentinelClient::build(urls, "locks".to_owned(), None, SentinelServerType::Master);
    let locks = Locks::new(client.expect("addresses")).await.expect("a master");
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    assert_eq!(master.ask("GET door"), guard.token());
    sentinels[0].fail_over();
    let replicas = [replica];
    let next = new_master(&sentinels, master.port(), &replicas);
    crate::until("the old master follows", || !support::replicas::is_master(&master)).await;
    let guard = locks.lock("window").lease(LONG).wait(LONG).acquire().await.expect("a free lock");
    assert_eq!(next.ask("GET window"), guard.token());
}
