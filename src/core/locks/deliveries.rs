//! Grants that are being delivered to blocked clients.
//!
//! A grant is delivered until the last of its blocked clients is freed. If no client was notified then, it is revoked.

use super::record::{Delivery, DeliveryId, HoldId};
use super::{Grant, HoldKey, Locks};
use crate::core::ClientId;

impl Locks {
    /// Returns whether any grant is being delivered.
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Begins the delivery of a grant to a number of blocked clients. Messages have notified the connections `notified`. Returns
    /// `None` if the table is full.
    pub fn begin_delivery(&mut self, grant: Grant, clients: usize, notified: Vec<ClientId>) -> Option<DeliveryId> {
        debug_assert!(clients > 0, "a grant without blocked clients is not delivered");
        let hold = self.hold_for(grant.db, &grant.key, grant.claim.kind, &grant.claim.owner)?;
        let is_notified = !notified.is_empty();
        let id = self.deliveries.insert(Delivery { grant, hold, clients, is_notified, pubsub_clients: notified })?;
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

    /// Returns the hold of a grant that is being delivered, unless a message has notified this connection, or the lock was granted
    /// again.
    pub fn hold_unknown_to(&self, client: ClientId, id: DeliveryId) -> Option<HoldId> {
        let delivery = self.deliveries.get(id).filter(|delivery| !delivery.pubsub_clients.contains(&client))?;
        self.is_latest(id, delivery.hold).then_some(delivery.hold)
    }

    /// Returns whether the lock of a grant was not granted again since.
    fn is_latest(&self, id: DeliveryId, hold: HoldId) -> bool {
        self.is_current(hold) && self.hold(hold).is_some_and(|hold| hold.delivery == Some(id))
    }

    /// Finishes the delivery of a grant to one client. With the last client, the grant is revoked if no client was notified and the
    /// lock was not granted again since.
    pub fn finish_delivery(&mut self, id: DeliveryId, is_notified: bool) {
        // It is unknown if a panic has ended all deliveries.
        let Some(delivery) = self.deliveries.get_mut(id) else { return };
        debug_assert!(delivery.clients > 0, "the delivery has finished");
        delivery.is_notified |= is_notified;
        delivery.clients = delivery.clients.saturating_sub(1);
        if delivery.clients > 0 {
            return;
        }
        let Some(Delivery { grant, hold, is_notified, .. }) = self.deliveries.remove(id) else { return };
        if !self.is_latest(id, hold) {
            return;
        }
        if !is_notified {
            self.revoke_grant(grant);
        }
        if let Some(hold) = self.holds.get_mut(hold) {
            hold.delivery = None;
        }
        self.drop_hold_if_unused(hold);
    }
}

#[cfg(test)]
mod tests;
