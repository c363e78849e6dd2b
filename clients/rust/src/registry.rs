//! Values that exist as long as someone uses them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A value for each name that is in use.
#[derive(Default)]
pub(crate) struct Registry<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K: Eq + Hash, V: Default> Registry<K, V> {
    /// Returns the value of a name, a new one for its first user.
    pub(crate) fn enter(&self, name: K) -> Arc<V> {
        let mut values = self.values();
        if values.len() == values.capacity() {
            // Before the map grows, it forgets the names that are not in use. Then it has space for as many again.
            values.retain(|_, value| value.strong_count() > 0);
            let used = values.len();
            values.reserve(used + 1);
        }
        let value = values.entry(name).or_default();
        value.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *value = Arc::downgrade(&new);
            new
        })
    }

    /// Returns the values of all names, also of those that are not in use.
    pub(crate) fn values(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        // No code panics between two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Registry;

    #[test]
    fn users_of_a_name_share_its_value() {
        let registry: Registry<_, AtomicU32> = Registry::default();
        let (first, second) = (registry.enter("door"), registry.enter("door"));
        first.store(1, Ordering::SeqCst);
        assert_eq!(second.load(Ordering::SeqCst), 1);
        drop((first, second));
        assert_eq!(registry.enter("door").load(Ordering::SeqCst), 0);
    }

    #[test]
    fn unused_names_are_forgotten() {
        let registry: Registry<_, ()> = Registry::default();
        let used: Vec<_> = (0..10).map(|name| registry.enter(name)).collect();
        for name in 10..1000 {
            registry.enter(name);
        }
        assert!(registry.values().len() < 100);
        assert!((0..10).all(|name| registry.values().contains_key(&name)));
        drop(used);
    }
}
