//! The grants of a lock whose replies are not all made.

use redis_lock::server::Tag;

use super::{LockModel, QueueEntry, Session};
use crate::checker::spec::{Lock, Ms, Who};
use crate::request::Form;

/// A grant to a blocked client.
#[derive(Clone)]
pub struct Grant {
    /// The entry as it was in the queue.
    pub entry: QueueEntry,
    /// Whether the client is still blocked.
    pub is_open: bool,
    /// Whether a client may know of the grant.
    pub is_notified: bool,
    /// The time since which certainly no client knows of the grant.
    pub unnotified_since: Option<Ms>,
    /// Whether an external write has given the lock to another holder. If the same name holds it again, the module may
    /// revoke it.
    pub is_overwritten: bool,
}

impl LockModel {
    /// The blocked client of a grant is free.
    pub fn close_grant(&mut self, tag: Tag, is_notified: bool, now: Ms) {
        let Some(number) = self.grants.iter().position(|grant| grant.is_open_for(tag)) else { return };
        let all: Vec<Who> = self.grants.iter().map(|grant| grant.entry.who.clone()).collect();
        // Whether no later grant excludes it.
        let is_latest = |number: usize| all[number + 1..].iter().all(|who| who.can_hold_with(&all[number]));
        let grant = &mut self.grants[number];
        grant.is_open = false;
        if !grant.is_notified {
            grant.unnotified_since = Some(now);
            if !is_latest(number) && all[number].form == Form::Share {
                self.unknown.push(all[number].clone());
            }
        }
        let client = grant.entry.request.as_ref().map(|request| request.client);
        // Without a reply the connection has no session, and the lock is released. A session that began with a later grant is a
        // different one.
        if !is_notified && is_latest(number) {
            let is_notified = grant.is_notified;
            let of_grant = |session: &Session| session.who == all[number] && Some(session.client) == client;
            if is_notified {
                self.sessions.retain(|session| session.is_closed() || !of_grant(session));
            } else {
                self.sessions.iter_mut().filter(|session| of_grant(session)).for_each(|session| session.close(now));
            }
        }
        // Removes the closed grants, except the latest one.
        let mut number = 0;
        self.grants.retain(|grant| {
            number += 1;
            grant.is_open || is_latest(number - 1) && grant.unnotified_since.is_some()
        });
    }

    /// Records that an external write has changed the holder from `was` to `is`.
    pub fn overwrite_grants(&mut self, was: &Lock, is: &Lock) {
        let is_gone = |grant: &&mut Grant| ![was, is].iter().all(|lock| lock.is_held_by(&grant.entry.who));
        self.grants.iter_mut().filter(is_gone).for_each(|grant| grant.is_overwritten = true);
    }

    /// Forgets the grants that exclude this holder.
    pub fn void_grants(&mut self, who: &Who) {
        let is_over = |grant: &&mut Grant| !grant.entry.who.can_hold_with(who);
        for grant in self.grants.iter_mut().filter(is_over) {
            if grant.unnotified_since.take().is_some() && grant.entry.who.form == Form::Share && grant.entry.who != *who
            {
                self.unknown.push(grant.entry.who.clone());
            }
        }
    }

    /// Returns the latest grant to this holder, if no later grant excludes it.
    pub fn grant_to(&self, who: &Who) -> Option<&Grant> {
        self.grants.iter().rfind(|grant| !grant.entry.who.can_hold_with(who)).filter(|grant| grant.entry.who == *who)
    }

    /// Returns whether the latest grant went to this holder, and no client can know of it.
    pub fn is_unnotified(&self, who: &Who) -> bool {
        self.grant_to(who).is_some_and(|grant| grant.unnotified_since.is_some())
    }

    /// Puts the entry of a revoked grant back, with its turn.
    pub(super) fn restore(&mut self, grant: Grant, kept_until: Option<Ms>) {
        if kept_until.is_none() {
            return;
        }
        let restored = QueueEntry { request: None, kept_until, ..grant.entry };
        let entry = match self.place_of(&restored.who.name) {
            None => restored,
            Some(place) if place.who != restored.who => return, // A name has one entry.
            Some(place) => QueueEntry { turn: restored.turn, ..place.clone() },
        };
        self.queue.retain(|other| other.who != entry.who);
        let index = self.queue.iter().position(|other| other.turn > entry.turn).unwrap_or(self.queue.len());
        self.queue.insert(index, entry);
    }
}

impl Grant {
    /// Returns whether this is the grant of a request whose client is still blocked.
    pub fn is_open_for(&self, tag: Tag) -> bool {
        self.is_open && self.entry.tag() == Some(tag)
    }

    /// Records that the holder knows of the grant.
    pub fn mark_notified(&mut self) {
        (self.is_notified, self.unnotified_since) = (true, None);
    }
}
