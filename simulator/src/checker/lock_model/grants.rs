//! The grants of a lock whose replies are not all made.

use redis_lock::server::{ClientId, Tag};

use super::{LockModel, QueueEntry, Session, Waiting};
use crate::checker::spec::{Lock, Ms, Who};
use crate::request::Form;

/// A grant, until every copy of the request is unblocked.
#[derive(Clone)]
pub struct Grant {
    pub queue_entry: QueueEntry,
    /// The copies of the request that are not unblocked yet.
    pub open: Vec<Waiting>,
    /// Whether a client may know of the grant.
    pub is_notified: bool,
    /// The connections that were notified by a message.
    pub pubsub_clients: Vec<ClientId>,
    /// The time since which certainly no client knows of the grant.
    pub unnotified_since: Option<Ms>,
    /// Whether an external write has given the lock to another holder. If the same name holds it again, the module may
    /// revoke it.
    pub is_overwritten: bool,
}

impl LockModel {
    /// Closes one request of a grant.
    pub fn close_grant(&mut self, tag: Tag, is_notified: bool, now: Ms) {
        let all: Vec<Who> = self.grants.iter().map(|grant| grant.queue_entry.who.clone()).collect();
        // Whether no later grant excludes it.
        let is_latest = |number: usize| all[number + 1..].iter().all(|who| who.can_hold_with(&all[number]));
        for (number, grant) in self.grants.iter_mut().enumerate() {
            let Some(index) = grant.open.iter().position(|request| request.tag == tag) else { continue };
            let request = grant.open.remove(index);
            // A connection without a reply and a message does not belong to the session. If no other connection does, the lock is
            // released.
            let is_others = grant.is_notified || !grant.open.is_empty();
            let is_unknown = !is_notified && !grant.pubsub_clients.contains(&request.client);
            let of_grant = |session: &Session| session.who == grant.queue_entry.who;
            // A session that began with a later grant is a different one.
            let index = self.sessions.iter().position(of_grant).filter(|_| is_unknown && is_latest(number));
            if let Some(index) = index.filter(|&at| self.sessions[at].detach(request.client, now) && is_others) {
                // A connection that closed in this iteration belongs to the session until the module notices.
                if self.sessions[index].ever.len() > 1 {
                    self.sessions[index].mark_uncertain();
                } else {
                    self.sessions.remove(index);
                }
            }
            if grant.open.is_empty() && !grant.is_notified {
                grant.unnotified_since = Some(now);
            }
        }
        // Removes the closed grants, except the latest one.
        let mut number = 0;
        self.grants.retain(|grant| {
            number += 1;
            !grant.open.is_empty() || is_latest(number - 1) && grant.unnotified_since.is_some()
        });
    }

    /// Records that an external write has changed the holder from `was` to `is`.
    pub fn overwrite_grants(&mut self, was: &Lock, is: &Lock) {
        let is_gone = |grant: &&mut Grant| ![was, is].iter().all(|lock| lock.is_held_by(&grant.queue_entry.who));
        self.grants.iter_mut().filter(is_gone).for_each(|grant| grant.is_overwritten = true);
    }

    /// Forgets the grants that exclude this holder.
    pub fn void_grants(&mut self, who: &Who) {
        let is_over = |grant: &&mut Grant| !grant.queue_entry.who.can_hold_with(who);
        for grant in self.grants.iter_mut().filter(is_over) {
            if grant.unnotified_since.take().is_some()
                && grant.queue_entry.who.form == Form::Share
                && grant.queue_entry.who != *who
            {
                self.unknown.push(grant.queue_entry.who.clone());
            }
        }
    }

    /// Returns the latest grant to this holder, if no later grant excludes it.
    pub fn grant_to(&self, who: &Who) -> Option<&Grant> {
        self.grants
            .iter()
            .rfind(|grant| !grant.queue_entry.who.can_hold_with(who))
            .filter(|grant| grant.queue_entry.who == *who)
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
        let QueueEntry { who, turn, since, vague, .. } = grant.queue_entry;
        let mut queue_entry = self.take_queue_entry(&who).unwrap_or(QueueEntry {
            who,
            turn,
            since,
            requests: Vec::new(),
            kept_until,
            vague: false,
        });
        queue_entry.turn = turn;
        queue_entry.vague |= vague;
        let index = self.queue.iter().position(|other| other.turn > turn).unwrap_or(self.queue.len());
        self.queue.insert(index, queue_entry);
    }
}

impl Grant {
    /// Returns whether a request was unblocked before the grant, because it had timed out.
    pub fn is_over_for(&self, tag: Tag) -> bool {
        self.open.iter().any(|request| request.tag == tag && request.is_unblocked)
    }

    /// Records that the holder knows of the grant.
    pub fn mark_notified(&mut self) {
        (self.is_notified, self.unnotified_since) = (true, None);
    }
}
