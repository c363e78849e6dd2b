//! Who holds a lock, such as that of a leader: reported at each change.

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::core::RETRY;
use crate::events::Reader;
use crate::hold::Hold;
use crate::request::{Command, Request};
use crate::server::{Reply, SILENCE, Words, patience};
use crate::{Error, Locks};

/// Observes the holder of a lock, from [`Locks::observe`](crate::Locks::observe).
pub struct Observer {
    locks: Locks,
    hold: Hold,
    changes: Reader,
    /// What was returned last, if anything was.
    has_shown: bool,
    shown: Option<String>,
}

impl Observer {
    pub(crate) fn new(locks: Locks, key: Vec<u8>) -> Self {
        let changes = locks.core.server.events.read(&key);
        let request = Request { key, ..Request::default() };
        Self { locks, hold: Hold::new(request, String::new()), changes, has_shown: false, shown: None }
    }

    /// Returns the label of the holder, none if the lock is free: immediately at first, then when it has changed. The label of
    /// a token without one is the token. It waits while the server cannot be reached, and may be dropped at any moment.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the name is empty, or the error of the server.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        let Self { locks, hold, changes, has_shown, shown } = self;
        if hold.request.key.is_empty() {
            return Err(Error::Argument(String::new(), "the name is empty"));
        }
        let changed = async {
            loop {
                match look(locks, hold).await {
                    Ok(label) if !*has_shown || *shown != label => return Ok(label),
                    // The server may not report changes, or notice late that a lease has ended.
                    Ok(_) => drop(timeout(SILENCE, changes.next()).await),
                    Err(error) if error.may_pass() => sleep(RETRY).await,
                    Err(error) => return Err(error),
                }
            }
        };
        let label = locks.core.inside(hold, changed).await?;
        (*has_shown, *shown) = (true, label.clone());
        Ok(label)
    }
}

async fn look(locks: &Locks, hold: &Hold) -> Result<Option<String>, Error> {
    let core = &locks.core;
    core.track(hold).await?;
    let command =
        Command { words: Words::new("LOCK.INFO").word(&hold.request.key), script: Ok((Duration::ZERO, "info")) };
    // A map, or the reply of the script: names and values.
    let Reply::List(fields) = core.ask(hold, &command, patience()).await? else { return Ok(None) };
    let field = |name: &str| {
        let field = fields.chunks_exact(2).find(|field| field[0] == Reply::Text(name.into()));
        field.and_then(
            |field| if let Reply::Text(text) = &field[1] { Some(String::from_utf8_lossy(text)) } else { None },
        )
    };
    if field("state").as_deref() == Some("free") {
        return Ok(None);
    }
    Ok(Some(field("owner").map_or_else(|| "several holders".to_owned(), |owner| label_of(&owner).to_owned())))
}

/// Returns the label of a token: the text before its last colon, otherwise the token.
pub(crate) fn label_of(token: &str) -> &str {
    token.rsplit_once(':').map_or(token, |(label, _)| label)
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observer").field("name", &self.hold.request.name()).finish_non_exhaustive()
    }
}
