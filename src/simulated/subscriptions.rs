//! The events of which a module requests notification.

use super::module::Module;
use super::node_state;

/// Has no effect: the module is always notified of changes of the role.
pub fn subscribe_to_roles<M: Module>() {}

/// Requests the notification of events of Sorted Sets.
pub fn subscribe_to_sorted_sets<M: Module>() {
    node_state::with(|node| node.subscribes_sorted_sets = true);
}

/// Requests the notification of events.
pub fn subscribe<M: Module>() {
    node_state::with(|node| node.listens = true);
}
