//! The program for fred of docs/guides/recipes.md, line by line.

use std::time::{Duration, Instant};

use fred::cmd;
use fred::prelude::{Client, ClientLike, Error};
use fred::types::ConnectHandle;

const SLICE: Duration = Duration::from_secs(2);

/// What the work under the lock has returned; none if the lock was not to be had in time.
pub async fn with_lock<T>(
    client: &Client,
    key: &str,
    [lease, patience]: [Duration; 2],
    work: impl AsyncFnOnce(&str) -> T,
) -> Result<Option<T>, Error> {
    let waiting = client.clone_new();
    let connection = waiting.init().await?;
    let place = Place { client: client.clone(), connection, key: key.to_owned(), token: random(), left: false };
    let held = wait(&waiting, key, &place.token, [lease, patience]).await;
    let done = if matches!(held, Ok(true)) { Some(work(&place.token).await) } else { None };
    place.leave(done.is_some()).await?;
    held.map(|_| done)
}

async fn wait(waiting: &Client, key: &str, token: &str, [lease, patience]: [Duration; 2]) -> Result<bool, Error> {
    let (end, lease) = (Instant::now() + patience, lease.as_millis().to_string());
    loop {
        let block = end.saturating_duration_since(Instant::now()).min(SLICE).as_millis();
        if block == 0 {
            return Ok(false);
        }
        let words = [key, token, "PX", &lease, "BLOCK", &block.to_string()].map(str::to_owned);
        let granted: Option<i64> = waiting.custom(cmd!("LOCK.ACQUIRE"), words.to_vec()).await?;
        if granted.is_some() {
            return Ok(true);
        }
    }
}

/// The lock, or a place in line, with the connection that waits.
struct Place {
    client: Client,
    connection: ConnectHandle,
    key: String,
    token: String,
    left: bool,
}

impl Place {
    async fn leave(mut self, held: bool) -> Result<(), Error> {
        self.left = true;
        self.connection.abort();
        match release(self.client.clone(), [self.key.clone(), self.token.clone()]).await {
            Err(error) if held || !error.details().starts_with("NOT") => Err(error),
            _ => Ok(()),
        }
    }
}

/// A future that is dropped, as `tokio::time::timeout` does, and a panic give up the lock, too.
impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.connection.abort();
            tokio::spawn(release(self.client.clone(), [self.key.clone(), self.token.clone()]));
        }
    }
}

async fn release(client: Client, [key, token]: [String; 2]) -> Result<Option<i64>, Error> {
    client.custom(cmd!("LOCK.RELEASE"), vec![key, token]).await
}

fn random() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
