//! The program in Rust of docs/guides/multiplexed-clients.md, line by line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, PushInfo, PushKind, RedisResult, Value, cmd};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

/// Less than `lock.rejoin-grace-ms`.
const SILENCE: Duration = Duration::from_secs(5);

/// Waits for many locks on one connection, on which it also listens.
pub struct Locks {
    connection: watch::Receiver<MultiplexedConnection>,
    channel: String,
    /// For each token that waits: who is told the next event.
    news: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

impl Locks {
    pub async fn open(url: &str) -> RedisResult<Arc<Self>> {
        // With RESP3 messages come on the connection that also takes requests.
        let client = Client::open(format!("{url}?protocol=resp3"))?;
        let channel = format!("locks:{}", random());
        let (first, pushes) = subscribe(&client, &channel).await?;
        let (sender, connection) = watch::channel(first);
        let locks = Arc::new(Self { connection, channel, news: Mutex::default() });
        tokio::spawn(locks.clone().listen(client, sender, pushes));
        Ok(locks)
    }

    async fn listen(
        self: Arc<Self>,
        client: Client,
        sender: watch::Sender<MultiplexedConnection>,
        mut pushes: mpsc::UnboundedReceiver<PushInfo>,
    ) {
        loop {
            while let Some(PushInfo { kind, data }) = pushes.recv().await {
                match kind {
                    PushKind::SMessage => self.tell(&data),
                    PushKind::Disconnection | PushKind::SUnsubscribe => break,
                    _ => {}
                }
            }
            let next = loop {
                match subscribe(&client, &self.channel).await {
                    Ok(next) => break next,
                    Err(_) => sleep(Duration::from_secs(1)).await,
                }
            };
            pushes = next.1;
            sender.send_replace(next.0);
            // Who waits on a sender that is gone asks again.
            self.news.lock().unwrap().clear();
        }
    }

    /// Passes a message on: `<event> <lease end> <db> <token> <key>`.
    fn tell(&self, data: &[Value]) {
        let Some(Value::BulkString(message)) = data.last() else { return };
        let message = String::from_utf8_lossy(message);
        let mut words = message.split(' ');
        let (Some(event), Some(token)) = (words.next(), words.nth(2)) else { return };
        if let Some(sender) = self.news.lock().unwrap().remove(token) {
            let _ = sender.send(event.to_owned());
        }
    }

    /// Sends a request until it is answered, on the next connection if need be.
    pub async fn run<T: FromRedisValue>(&self, request: &Cmd) -> RedisResult<T> {
        let mut connections = self.connection.clone();
        loop {
            let mut connection = connections.borrow_and_update().clone();
            match request.query_async(&mut connection).await {
                // An error from the server has a code.
                Err(error) if error.code().is_none() => {
                    let _ = timeout(Duration::from_secs(1), connections.changed()).await;
                }
                answer => return answer,
            }
        }
    }

    /// `granted`, or what else has ended the wait. Without news it is `lost`.
    async fn ask(&self, key: &str, token: &str, lease_ms: u64, left: Duration) -> RedisResult<String> {
        // Before the request, because the message may come before the reply.
        let (sender, news) = oneshot::channel();
        self.news.lock().unwrap().insert(token.to_owned(), sender);
        let mut request = cmd("LOCK.ACQUIRE");
        request.arg(key).arg(token).arg("PX").arg(lease_ms).arg("BLOCK").arg(left.as_millis() as u64);
        match self.run(request.arg("NOTIFY").arg(&self.channel)).await {
            Ok(Value::Int(1)) => return Ok("granted".to_owned()),
            Err(error) if error.code() != Some("NOSUBSCRIBER") => return Err(error),
            _ => {}
        }
        match timeout(SILENCE.min(left), news).await {
            Ok(Ok(event)) => Ok(event),
            _ => Ok("lost".to_owned()),
        }
    }

    /// Waits for the lock; none when the time is up.
    pub async fn acquire(self: &Arc<Self>, key: &str, lease_ms: u64, patience: Duration) -> RedisResult<Option<Held>> {
        // From here on dropping leaves the line.
        let held = Held { locks: self.clone(), key: key.to_owned(), token: random() };
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.as_millis() == 0 {
                return Ok(None);
            }
            match self.ask(key, &held.token, lease_ms, left).await?.as_str() {
                "granted" => return Ok(Some(held)),
                "lost" => {}
                _ => return Ok(None),
            }
        }
    }
}

/// A connection that listens, and what it hears.
async fn subscribe(
    client: &Client,
    channel: &str,
) -> RedisResult<(MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>)> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    cmd("SSUBSCRIBE").arg(channel).exec_async(&mut connection).await?;
    Ok((connection, pushes))
}

fn random() -> String {
    let word = || getrandom::u64().expect("random numbers");
    format!("{:016x}{:016x}", word(), word())
}

/// A lock that is held, or a place in line. Both end when it is dropped.
pub struct Held {
    locks: Arc<Locks>,
    key: String,
    pub token: String,
}

impl Held {
    /// Returns once the lock is released.
    pub async fn release(mut self) -> RedisResult<()> {
        release(&self.locks, &self.key, &self.token).await?;
        self.token.clear();
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (locks, key, token) = (self.locks.clone(), std::mem::take(&mut self.key), std::mem::take(&mut self.token));
        if !token.is_empty() {
            tokio::spawn(async move { release(&locks, &key, &token).await });
        }
    }
}

async fn release(locks: &Locks, key: &str, token: &str) -> RedisResult<()> {
    locks.news.lock().unwrap().remove(token);
    match locks.run::<Value>(cmd("LOCK.RELEASE").arg(key).arg(token)).await {
        // The lease has ended, or the request was sent twice.
        Err(error) if !matches!(error.code(), Some("NOTHELD" | "NOTOWNER")) => Err(error),
        _ => Ok(()),
    }
}

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::JoinSet;

#[derive(Default)]
struct Door {
    taken: AtomicBool,
    fence: AtomicI64,
}

async fn hold_alone(locks: Arc<Locks>, key: String, door: Arc<Door>) -> RedisResult<()> {
    let held = locks.acquire(&key, 30_000, Duration::from_secs(60)).await?.expect("not left waiting");
    assert!(!door.taken.swap(true, Ordering::SeqCst), "alone");
    let fence = locks.run(cmd("LOCK.FENCE").arg(&key).arg(&held.token).arg("fence")).await?;
    assert!(fence > door.fence.swap(fence, Ordering::SeqCst), "after all others");
    sleep(Duration::from_millis(5)).await;
    door.taken.store(false, Ordering::SeqCst);
    held.release().await
}

pub async fn contend(url: &str) -> RedisResult<()> {
    let locks = Locks::open(url).await?;
    let mut tasks = JoinSet::new();
    for number in 0..10 {
        let door = Arc::new(Door::default());
        for _ in 0..100 {
            tasks.spawn(hold_alone(locks.clone(), format!("door:{number}"), door.clone()));
        }
    }
    tasks.join_all().await.into_iter().collect()
}
