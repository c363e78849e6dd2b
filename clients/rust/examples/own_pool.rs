//! A program that has a pool of connections: its locks use the configuration of the pool. `cargo run --example own_pool -- [URL]`
//!
//! fred and others have types of their own for this: give `redis::Client::open` the address that they connect to.

use std::env;

use deadpool_redis::redis::{Client, ConnectionInfo, cmd};
use deadpool_redis::{Config, Runtime};
use redis_lock_client::{Error, Locks};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let config = Config::from_connection_info(Client::open(url)?.get_connection_info().clone());
    let info: ConnectionInfo = config.connection.clone().ok_or("no address")?.into();
    let pool = config.create_pool(Some(Runtime::Tokio1))?;
    // The locks have one connection of their own, which messages need; the pool has all others.
    let locks = Locks::new(Client::open(info)?).await?;
    let count = locks
        .lock("counter")
        .with(async |_guard| {
            let mut connection = pool.get().await?;
            Ok::<i64, Box<dyn std::error::Error>>(cmd("INCR").arg("count").query_async(&mut connection).await?)
        })
        .await?;
    println!("the count is {count}");
    match locks.lock("counter").try_acquire().await {
        Ok(Some(guard)) => guard.release().await?,
        Ok(None) | Err(Error::Connection(..)) => println!("another process counts, or the server is away"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
