//! The workers in Rust: this program, started once more by itself.

use std::io::{Read, stdin};
use std::thread;
use std::time::Duration;

use clap::Args;
use redis::aio::MultiplexedConnection;
use rslock::{Lock, LockManager};

use super::peers::RustPeer;
use super::worker::{DONE, READY, now_ns};

#[derive(Args)]
pub struct Options {
    peer: RustPeer,
    port: u16,
    key: String,
    hold_us: u64,
}

/// A client of one package.
trait Package {
    /// Its crate.
    const NAME: &str;

    type Held;

    async fn connect(port: u16) -> Self;

    /// None when it gave up.
    async fn acquire(&mut self, key: &str) -> Option<Self::Held>;

    async fn release(&mut self, held: Self::Held);
}

pub fn run(options: &Options) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match options.peer {
        RustPeer::Rslock => runtime.block_on(contend::<Rslock>(options)),
        RustPeer::Module => runtime.block_on(contend::<Module>(options)),
    }
}

/// What worker.rs describes.
async fn contend<P: Package>(options: &Options) {
    let mut package = P::connect(options.port).await;
    // Connects, and makes the server know the scripts.
    let warm = package.acquire(&format!("{}:warm-up:{}", options.key, now_ns())).await;
    package.release(warm.expect("a lock that nobody else wants")).await;
    println!("{READY} {}", version(P::NAME));

    let mut line = String::new();
    stdin().read_line(&mut line).expect("a line");
    let end_ns = line.trim_end().parse().expect("a time");
    let mut attempts = Vec::new();
    loop {
        let begun = now_ns();
        if begun >= end_ns {
            break;
        }
        let held = package.acquire(&options.key).await;
        let granted = now_ns();
        let Some(held) = held else {
            attempts.push(format!("gave-up {begun}"));
            continue;
        };
        // Not the runtime's sleep, which knows whole milliseconds only.
        thread::sleep(Duration::from_micros(options.hold_us));
        attempts.push(format!("held {begun} {granted} {}", now_ns()));
        package.release(held).await;
    }

    attempts.push(DONE.to_owned());
    println!("{}", attempts.join("\n"));
    // The connection stays open while the server's counters are read.
    stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
}

/// The newest of that name that is built in.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../../../../Cargo.lock");
    let after = lock.rsplit_once(&format!("name = \"{name}\"\nversion = \"")).map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).expect("a crate in Cargo.lock")
}

/// rslock with its defaults, in a loop as in its documentation: `lock` tries three times, up to 200 ms apart.
struct Rslock(LockManager);

impl Package for Rslock {
    const NAME: &str = "rslock";

    type Held = Lock;

    async fn connect(port: u16) -> Self {
        Self(LockManager::new(vec![format!("redis://127.0.0.1:{port}/")]))
    }

    async fn acquire(&mut self, key: &str) -> Option<Lock> {
        loop {
            if let Ok(lock) = self.0.lock(key, Duration::from_millis(1000)).await {
                return Some(lock);
            }
        }
    }

    async fn release(&mut self, lock: Lock) {
        self.0.unlock(&lock).await;
    }
}

/// The module by raw commands of the redis crate.
struct Module(MultiplexedConnection);

impl Package for Module {
    const NAME: &str = "redis";

    type Held = (String, String);

    async fn connect(port: u16) -> Self {
        let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
        // A waiting request takes as long as its BLOCK says.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
        Self(connection.expect("a server that takes connections"))
    }

    async fn acquire(&mut self, key: &str) -> Option<Self::Held> {
        let token = format!("{}-{}", std::process::id(), now_ns());
        let mut command = redis::cmd("LOCK.ACQUIRE");
        command.arg(key).arg(&token).arg("PX").arg(30_000).arg("BLOCK").arg(20_000);
        let granted: Option<i64> = command.query_async(&mut self.0).await.expect("an answer");
        granted.map(|_| (key.to_owned(), token))
    }

    async fn release(&mut self, (key, token): Self::Held) {
        let remaining: i64 =
            redis::cmd("LOCK.RELEASE").arg(key).arg(token).query_async(&mut self.0).await.expect("an answer");
        assert_eq!(remaining, 0, "the lock was ours");
    }
}
