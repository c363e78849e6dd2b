//! Values that exist as long as someone uses them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value for each name that is in use.
pub(crate) struct Registry<V>(Mutex<HashMap<Vec<u8>, Arc<V>>>);

impl<V> Default for Registry<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V> Registry<V> {
    /// Returns the value of a name, which `new` makes for its first user.
    pub(crate) fn enter(self: &Arc<Self>, name: &[u8], new: impl FnOnce() -> V) -> Entry<V> {
        let value = self.values().entry(name.to_vec()).or_insert_with(|| Arc::new(new())).clone();
        Entry { registry: self.clone(), name: name.to_vec(), value }
    }

    /// Calls a function with the value of a name, if the name is in use.
    pub(crate) fn with(&self, name: &[u8], function: impl FnOnce(&V)) {
        if let Some(value) = self.values().get(name) {
            function(value);
        }
    }

    /// Calls a function with every value.
    pub(crate) fn for_each(&self, function: impl Fn(&V)) {
        self.values().values().for_each(|value| function(value));
    }

    fn values(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<V>>> {
        // No code in here panics between two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One use of a value. The last one that is dropped removes it.
pub(crate) struct Entry<V> {
    registry: Arc<Registry<V>>,
    name: Vec<u8>,
    value: Arc<V>,
}

impl<V> Deref for Entry<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> Drop for Entry<V> {
    fn drop(&mut self) {
        let mut values = self.registry.values();
        // The map and this entry. Another one can only come by `enter`, which waits for the map.
        if Arc::strong_count(&self.value) == 2 {
            values.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Registry;

    #[test]
    fn last_entry_removes_its_value() {
        let registry = Arc::new(Registry::default());
        let first = registry.enter(b"door", || 1);
        let second = registry.enter(b"door", || 2);
        assert_eq!((*first, *second), (1, 1));
        drop(first);
        assert_eq!(registry.values().len(), 1);
        drop(second);
        assert!(registry.values().is_empty());
    }
}
