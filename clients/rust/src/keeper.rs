//! The task that watches keys: it renews leases, continues sessions, and finds out that a lock is lost.
//!
//! A read of a key has the server report its next change, by whichever connection. So at any time a key is armed, or a report
//! is under way, or the key is looked at. The renewal of a lease changes the key: its report leads to the read that arms the
//! key again. NOLOOP would save this read, but with it a write of the own connection ends the reports of a key without a sign.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::Error;
use crate::core::{Core, RETRY};
use crate::hold::{Hold, State};
use crate::request::{FOREVER, Form};
use crate::server::{Reply, Words, patience};

/// A lease is renewed when this part of it has passed.
pub(crate) const RENEWALS: u32 = 3;

/// The messages to the keeper.
pub(crate) enum Notice {
    Keep(Arc<Hold>),
    /// The server reports that a key has changed.
    Reported(Vec<u8>),
    /// A key may have changed.
    Changed(Vec<u8>),
    /// All keys may have changed, or a connection is lost.
    All,
    /// What is next for a key may have to be done sooner.
    Sooner(Vec<u8>),
}

/// Watches the keys of a [`Core`], until that is gone. What nothing watches any more counts as lost.
pub(crate) struct Keeper {
    core: Weak<Core>,
    notices: UnboundedReceiver<Notice>,
    keys: HashMap<Arc<[u8]>, Key>,
    /// The keys by the time of what has to be done next.
    agenda: BTreeSet<(Instant, Arc<[u8]>)>,
    looks: JoinSet<(Arc<[u8]>, Next)>,
}

/// When to look at a key again, and whether it may have changed since it was read.
struct Next {
    at: Instant,
    change: Change,
}

/// A key that is watched.
struct Key {
    holds: Vec<Arc<Hold>>,
    at: Instant,
    /// What is known since the last look began.
    change: Change,
    is_looked_at: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    #[default]
    None,
    Possible,
    /// By the server.
    Reported,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.notices.close();
        while let Ok(notice) = self.notices.try_recv() {
            if let Notice::Keep(hold) = notice {
                hold.lose();
            }
        }
        self.keys.values().flat_map(|key| &key.holds).for_each(|hold| hold.lose());
    }
}

impl Keeper {
    pub(crate) fn new(core: Weak<Core>, notices: UnboundedReceiver<Notice>) -> Self {
        Self { core, notices, keys: HashMap::new(), agenda: BTreeSet::new(), looks: JoinSet::new() }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let next = self.agenda.first().map(|(at, _)| *at);
            tokio::select! {
                notice = self.notices.recv() => match notice {
                    None => return,
                    Some(Notice::Keep(hold)) => self.add(hold),
                    Some(Notice::Reported(key)) => self.change(&key, Change::Reported),
                    Some(Notice::Changed(key)) => self.change(&key, Change::Possible),
                    Some(Notice::Sooner(key)) => self.hasten(&key),
                    Some(Notice::All) => {
                        let keys: Vec<_> = self.keys.keys().cloned().collect();
                        for key in keys {
                            self.change(&key, Change::Possible);
                        }
                    }
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.go_on(),
                Some(Ok((key, next))) = self.looks.join_next() => self.looked(&key, &next),
            }
        }
    }

    fn add(&mut self, hold: Arc<Hold>) {
        let name: Arc<[u8]> = hold.request.key.as_slice().into();
        let new = || Key { holds: Vec::new(), at: Instant::now(), change: Change::None, is_looked_at: false };
        self.keys.entry(name.clone()).or_insert_with(new).holds.push(hold);
        self.change(&name, Change::Possible);
    }

    fn change(&mut self, name: &[u8], change: Change) {
        if let Some((name, _)) = self.keys.get_key_value(name) {
            let name = name.clone();
            self.keys.entry(name.clone()).and_modify(|key| key.change = key.change.max(change));
            self.plan(&name, Instant::now());
        }
    }

    /// Plans a check for when something is due, if that is before the planned one.
    fn hasten(&mut self, name: &[u8]) {
        if let Some((name, key)) = self.keys.get_key_value(name)
            && let Some(due) = key.holds.iter().map(|hold| hold.due_at()).min()
            && due < key.at
        {
            let name = name.clone();
            self.plan(&name, due);
        }
    }

    fn plan(&mut self, name: &Arc<[u8]>, at: Instant) {
        if let Some(key) = self.keys.get_mut(name) {
            self.agenda.remove(&(key.at, name.clone()));
            key.at = at;
            self.agenda.insert((at, name.clone()));
        }
    }

    /// Checks the keys whose time has come.
    fn go_on(&mut self) {
        let now = Instant::now();
        while let Some((at, name)) = self.agenda.first().cloned()
            && at <= now
        {
            self.agenda.pop_first();
            let Some(key) = self.keys.get_mut(&name) else { continue };
            if let Some(core) = self.core.upgrade() {
                let connection = core.server.events.disconnections();
                key.holds.iter().for_each(|hold| hold.note_cut(connection));
            }
            key.holds.retain(|hold| {
                if hold.is_lost() {
                    hold.lose();
                }
                !hold.is_lost() && hold.state() != State::Idle
            });
            let Some(end) = key.holds.iter().map(|hold| hold.term().0).min() else {
                self.keys.remove(&name);
                continue;
            };
            if let (false, Some(core)) = (key.is_looked_at, self.core.upgrade()) {
                let (holds, change) = (key.holds.clone(), std::mem::take(&mut key.change));
                key.is_looked_at = true;
                let name = name.clone();
                self.looks.spawn(async move { (name, look(&core, &holds, change).await) });
            }
            // However long the look takes, the end of a lease is reported in time.
            self.plan(&name, end);
        }
    }

    /// Plans the look after one that has ended.
    fn looked(&mut self, name: &Arc<[u8]>, next: &Next) {
        if let Some(key) = self.keys.get_mut(name) {
            key.is_looked_at = false;
            let at = if key.change > Change::None { Instant::now() } else { next.at.min(key.at) };
            key.change = key.change.max(next.change);
            self.plan(name, at);
        }
    }
}

/// Renews the leases of a key whose time has come, and reads the holders if it may have changed.
async fn look(core: &Arc<Core>, holds: &[Arc<Hold>], change: Change) -> Next {
    let (due, others): (Vec<_>, Vec<_>) = holds.iter().partition(|hold| is_due(core, hold));
    let mut renewals = JoinSet::new();
    for hold in due.into_iter().cloned() {
        let core = core.clone();
        renewals.spawn(async move { (renew(&core, &hold).await, hold) });
    }
    let mut next = Next { at: Instant::now() + FOREVER, change: Change::None };
    for (result, hold) in renewals.join_all().await {
        next.at = next.at.min(heed(&hold, result));
    }
    let read: Vec<_> = holds.iter().filter(|hold| change > Change::None || !hold.request.is_extended()).collect();
    if !read.is_empty() {
        let terms: Vec<_> = read.iter().map(|hold| hold.renewal()).collect();
        for ((hold, term), is_held) in read.iter().zip(terms).zip(holders(core, &read).await) {
            let is_cut = hold.is_cut(core.server.events.disconnections());
            let is_reported = change == Change::Reported && hold.request.has_reports() && !is_cut;
            match &is_held {
                Ok(true) if is_reported => hold.renewed_by_server(&term),
                Err(error) if error.may_pass() => next.change = Change::Possible,
                _ => {}
            }
            next.at = next.at.min(heed(hold, is_held));
        }
    }
    others.iter().fold(next, |next, hold| Next { at: next.at.min(check_at(hold)), ..next })
}

/// Reports a loss. Returns when to check the hold again.
fn heed(hold: &Hold, outcome: Result<bool, Error>) -> Instant {
    match outcome.map_err(Error::for_holder) {
        Ok(false) | Err(Error::Lost(_)) => hold.lose(),
        Err(error) if error.may_pass() || hold.request.has_session => return Instant::now() + RETRY,
        Ok(true) => return check_at(hold),
        Err(_) => {}
    }
    Instant::now() + hold.term().1 * 2 / 5
}

/// Returns when to check a hold after a look, which is not immediately, even if its renewal is due.
fn check_at(hold: &Hold) -> Instant {
    let (now, lease) = (Instant::now(), hold.term().1);
    if hold.request.is_extended() {
        return hold.renewal_at().max(now + RETRY.min(lease / 12));
    }
    now + lease * 2 / 5
}

/// Returns whether the lease is to be renewed by a command, or the session to be continued.
fn is_due(core: &Core, hold: &Hold) -> bool {
    let is_due = hold.request.is_extended() && hold.renewal_at() <= Instant::now();
    is_due || hold.is_cut(core.server.events.disconnections())
}

/// Renews the lease, and continues a session whose connection was lost. Returns whether the lock is held.
async fn renew(core: &Core, hold: &Hold) -> Result<bool, Error> {
    let connection = core.server.events.disconnections();
    let is_cut = hold.is_cut(connection);
    core.renew_lease(hold).await?;
    if !is_cut {
        return Ok(true);
    }
    // The present connection continues the session. Without the command before, this could acquire a lock that is free.
    if core.server.events.disconnections() == connection && hold.session_begins() {
        let lease = hold.renewal().lease;
        let command = hold.request.acquire(&hold.token, lease, None);
        if core.ask_once(hold, &command, patience()).await? == Reply::Nil {
            return Ok(false);
        }
        if core.server.events.disconnections() == connection {
            hold.session_began(connection, lease);
        }
    }
    Ok(true)
}

/// Reads the holders of a key. Returns for each hold whether it is one. It works without the module, too.
async fn holders(core: &Core, holds: &[&Arc<Hold>]) -> Vec<Result<bool, Error>> {
    let request = &holds[0].request;
    if let Err(error) = core.track(holds[0]).await {
        return holds.iter().map(|_| Err(error.clone())).collect();
    }
    let (shares, others): (Vec<&&Arc<Hold>>, Vec<_>) =
        holds.iter().partition(|hold| matches!(hold.request.form, Form::Share(_)));
    let mut found = HashMap::new();
    if let Some(first) = shares.first() {
        let words = Words::new("ZMSCORE").word(&request.key);
        let words = shares.iter().fold(words, |words, hold| words.word(&hold.token));
        let reply = core.call(first, &words, patience()).await;
        for (index, hold) in shares.iter().enumerate() {
            let is_held = reply.clone().map(|reply| match reply {
                Reply::List(scores) => scores.get(index).is_some_and(|score| *score != Reply::Nil),
                _ => false,
            });
            found.insert(hold.token.as_str(), is_held);
        }
    }
    for hold in others {
        let reply = core.call(hold, &read(hold), patience()).await;
        let is_held = reply.map(|reply| match reply {
            Reply::Text(token) if hold.request.form == Form::Mutex => token == hold.token.as_bytes(),
            value => value != Reply::Nil,
        });
        found.insert(hold.token.as_str(), is_held);
    }
    holds.iter().filter_map(|hold| found.remove(hold.token.as_str())).collect()
}

/// Returns a read of the key that shows whether the token holds the lock.
fn read(hold: &Hold) -> Words {
    match hold.request.form {
        Form::Reentrant(_) => Words::new("HGET").word(&hold.request.key).word(&hold.token),
        _ => Words::new("GET").word(&hold.request.key),
    }
}

impl Core {
    /// Asks the node of a key in a cluster for reports of changes. Without the right to this, a change is seen later.
    pub(crate) async fn track(&self, hold: &Hold) -> Result<(), Error> {
        if !self.server.is_cluster() {
            return Ok(());
        }
        match self.call(hold, &Words::new("CLIENT").word("TRACKING").word("ON"), patience()).await {
            Err(error) if error.may_pass() => Err(error),
            _ => Ok(()),
        }
    }

    /// Renews the lease, unless its release begins. If its length changes before the reply, the server has either, so it is renewed again.
    pub(crate) async fn renew_lease(&self, hold: &Hold) -> Result<(), Error> {
        loop {
            let term = hold.renewal();
            let command = hold.request.extend(&hold.token, term.lease);
            tokio::select! {
                biased;
                () = hold.idle() => return Ok(()),
                reply = self.ask_once(hold, &command, patience()) => drop(reply?),
            }
            if hold.renewed(&term) {
                return Ok(());
            }
        }
    }

    /// Has the keeper watch a hold.
    pub(crate) fn keep(&self, hold: &Arc<Hold>) {
        if hold.begin_to_keep() && !self.server.events.tell(Notice::Keep(hold.clone())) {
            hold.lose();
        }
    }

    /// Lets the keeper plan for a lease that may have been shortened.
    pub(crate) fn hasten(&self, hold: &Hold) {
        if hold.is_kept.load(Ordering::SeqCst) {
            self.server.events.tell(Notice::Sooner(hold.request.key.clone()));
        }
    }

    /// Lets the keeper check a hold that has changed.
    pub(crate) fn recheck(&self, hold: &Hold) {
        if hold.is_kept.load(Ordering::SeqCst) {
            self.server.events.tell(Notice::Changed(hold.request.key.clone()));
        }
    }
}
