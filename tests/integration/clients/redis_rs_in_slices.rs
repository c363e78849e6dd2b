//! The program in Rust of docs/guides/recipes.md, line by line.

use std::time::{Duration, Instant};

use redis::{Client, RedisResult, cmd};

const SLICE: Duration = Duration::from_secs(2);

/// What the work under the lock has returned; none if the lock was not to be had in time.
pub fn with_lock<T>(
    client: &Client,
    key: &str,
    [lease, patience]: [Duration; 2],
    work: impl FnOnce(&str) -> T,
) -> RedisResult<Option<T>> {
    let token = random();
    let held = wait(client, key, &token, [lease, patience]);
    let done = matches!(held, Ok(true)).then(|| work(&token));
    release(client, key, &token, done.is_some())?;
    held.map(|_| done)
}

fn wait(client: &Client, key: &str, token: &str, [lease, patience]: [Duration; 2]) -> RedisResult<bool> {
    let mut waiting = client.get_connection()?;
    let end = Instant::now() + patience;
    loop {
        let block = end.saturating_duration_since(Instant::now()).min(SLICE).as_millis();
        if block == 0 {
            return Ok(false);
        }
        let mut ask = cmd("LOCK.ACQUIRE");
        ask.arg(key).arg(token).arg("PX").arg(lease.as_millis()).arg("BLOCK").arg(block);
        let granted: Option<i64> = ask.query(&mut waiting)?;
        if granted.is_some() {
            return Ok(true);
        }
    }
}

fn release(client: &Client, key: &str, token: &str, held: bool) -> RedisResult<()> {
    let reply: RedisResult<Option<i64>> = cmd("LOCK.RELEASE").arg(key).arg(token).query(&mut client.get_connection()?);
    match reply {
        Err(error) if held || !matches!(error.code(), Some("NOTHELD" | "NOTOWNER")) => Err(error),
        _ => Ok(()),
    }
}

fn random() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
