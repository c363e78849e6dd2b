//! A web service that changes one account at a time. `cargo run --example axum_service -- [URL] [PORT]`, then
//! `curl -X POST http://127.0.0.1:3000/accounts/17/deposit`
//!
//! axum drops the handler when its client disconnects: the lock is released then, or the request for it withdrawn.

use std::env;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Router, serve};
use redis_lock_client::{Error, Locks, redis};
use tokio::net::TcpListener;
use tokio::time::sleep;

fn status(error: &Error) -> StatusCode {
    match error {
        // Many requests for one account: try again later.
        Error::Timeout(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::Connection(..) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn deposit(State(locks): State<Locks>, Path(account): Path<u32>) -> Result<String, StatusCode> {
    let lock = locks.lock(format!("account:{account}")).lease(Duration::from_secs(10)).wait(Duration::from_secs(2));
    let fence = lock
        .with(async |guard| {
            let fence = guard.fence().await?;
            // The database refuses a write with a lower token.
            sleep(Duration::from_millis(50)).await;
            Ok::<_, Error>(fence)
        })
        .await
        .map_err(|error| status(&error))?;
    Ok(format!("account {account} was changed with token {fence}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let port = arguments.next().map_or(Ok(3000), |port| port.parse())?;
    let locks = Locks::new(redis::Client::open(url)?).await?;
    let service = Router::new().route("/accounts/{account}/deposit", post(deposit)).with_state(locks.clone());
    let stop = async { tokio::signal::ctrl_c().await.expect("a handler for signals") };
    serve(TcpListener::bind(("127.0.0.1", port)).await?, service).with_graceful_shutdown(stop).await?;
    locks.close().await;
    Ok(())
}
