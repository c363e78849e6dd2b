//! What is special about fred, whose recipe is in docs/guides/recipes.md.

use std::time::Duration;

use fred::cmd;
use fred::prelude::{Builder, Client, ClientLike, Config, EventInterface, PubsubInterface, ServerConfig};
use support::{Server, waiters_of};
use tokio::runtime::Runtime;

use super::fred_in_slices::with_lock;

const LEASE: Duration = Duration::from_secs(30);

async fn connect(server: &Server) -> Client {
    let config = Config { server: ServerConfig::new_centralized("127.0.0.1", server.port()), ..Config::default() };
    let client = Builder::from_config(config).build().expect("a configuration");
    client.init().await.expect("a connection");
    client
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs the program with so much patience.
pub fn run(server: &Server, patience: Duration) -> Option<&'static str> {
    runtime().block_on(async {
        let mut observer = server.client();
        let work = async |token: &str| {
            assert_eq!(observer.run("GET door").string(), token);
            "the door is ours"
        };
        with_lock(&connect(server).await, "door", [LEASE, patience], work).await.expect("a server that answers")
    })
}

#[test]
fn a_future_that_is_dropped_leaves_the_line() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door holder PX 60000"), 1);
    runtime().block_on(async {
        let own = connect(&server).await;
        let waiting = with_lock(&own, "door", [LEASE, Duration::from_secs(60)], async |_| ());
        assert!(tokio::time::timeout(Duration::from_millis(500), waiting).await.is_err());
        // It is released in the background, on this connection.
        tokio::task::yield_now().await;
        own.ping::<String>(None).await.expect("an answer");
    });
    assert_eq!(waiters_of(&mut client, "door"), 0);
    assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(client.run("EXISTS door"), 0, "its place is not kept");
}

#[test]
fn a_lock_that_was_lost_meanwhile_is_an_error() {
    let server = Server::start();
    let lost = runtime().block_on(async {
        let client = connect(&server).await;
        let mut other = server.client();
        let lose = async |_: &str| assert_eq!(other.run("DEL door"), 1);
        with_lock(&client, "door", [LEASE, Duration::from_secs(20)], lose).await
    });
    assert!(lost.expect_err("it was lost").details().starts_with("NOTHELD"));
}

#[test]
fn who_listens_hears_of_a_grant() {
    let server = Server::start();
    let message = runtime().block_on(async {
        let (client, listener) = (connect(&server).await, connect(&server).await);
        let mut messages = listener.message_rx();
        listener.ssubscribe("mine").await.expect("a subscription");
        let ask = async |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            client.custom::<String, _>(cmd!("LOCK.ACQUIRE"), words).await.expect("an answer")
        };
        assert_eq!(ask("door first PX 30000").await, "1");
        assert_eq!(ask("door second PX 30000 BLOCK 20000 NOTIFY mine").await, "WAITING");
        let release = ["door", "first"].map(str::to_owned).to_vec();
        client.custom::<i64, _>(cmd!("LOCK.RELEASE"), release).await.expect("an answer");
        messages.recv().await.expect("a message").value.convert::<String>().expect("a text")
    });
    assert!(message.starts_with("granted ") && message.ends_with(" 0 second door"), "{message}");
}
