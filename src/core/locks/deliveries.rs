//! Grants that are being delivered to blocked clients.
//!
//! A grant is delivered until its blocked client is freed. If that was not notified, the grant is revoked.

use super::record::{Delivery, DeliveryId};
use super::{Grant, HoldKey, Locks};
use crate::core::ClientId;

impl Locks {
    /// Returns whether any grant is being delivered.
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Begins the delivery of a grant to a blocked client. Returns `None` if the table is full.
    pub fn begin_delivery(&mut self, grant: Grant) -> Option<DeliveryId> {
        let hold = self.hold_for(grant.db, &grant.key, grant.claim.kind, &grant.claim.owner)?;
        let id = self.deliveries.insert(Delivery { grant, hold, is_notified: false })?;
        self.holds.get_mut(hold)?.delivery = Some(id);
        Some(id)
    }

    /// Records that a lock or a share was granted again, to a client that was notified. An earlier delivery has no effect then.
    pub fn supersede_delivery(&mut self, hold_key: HoldKey<'_>) {
        let Some(id) = self.find_hold(hold_key) else { return };
        if let Some(hold) = self.holds.get_mut(id) {
            hold.delivery = None;
        }
        self.drop_hold_if_unused(id);
    }

    /// Records that the reply to another request notifies the holder of a lock or a share that it holds it.
    pub fn mark_holder_notified(&mut self, hold_key: HoldKey<'_>) {
        let latest = self.find_hold(hold_key).and_then(|id| self.hold(id)?.delivery);
        debug_assert!(latest.is_none_or(|id| self.deliveries.get(id).is_some()), "the latest delivery has ended");
        if let Some(delivery) = latest.and_then(|id| self.deliveries.get_mut(id)) {
            delivery.is_notified = true;
        }
    }

    /// Finishes the delivery of a grant to this connection. If that was not notified, its session ends. If its owner was not
    /// notified at all, and the lock was not granted again since, the grant is revoked.
    pub fn finish_delivery(&mut self, id: DeliveryId, client: ClientId, is_notified: bool) {
        // It is unknown if a panic has ended all deliveries.
        let Some(Delivery { grant, hold, is_notified: was_notified }) = self.deliveries.remove(id) else { return };
        if !self.is_current(hold) || self.hold(hold).is_none_or(|hold| hold.delivery != Some(id)) {
            return;
        }
        if !is_notified {
            self.detach(hold, client);
            if !was_notified {
                self.revoke_grant(grant);
            }
        }
        if let Some(hold) = self.holds.get_mut(hold) {
            hold.delivery = None;
        }
        self.drop_hold_if_unused(hold);
    }
}

#[cfg(test)]
mod tests;
