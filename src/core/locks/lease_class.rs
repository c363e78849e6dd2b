//! Classes of leases, by their length.

use crate::core::Lease;

/// The number of classes.
pub const CLASSES: usize = 6;

/// The shortest lease of each class after the first, in milliseconds.
const SHORTEST_MS: [i64; CLASSES - 1] = [400, 1_600, 6_400, 25_600, 102_400];

/// The class of a lease. Classes with lower numbers have shorter leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u8);

impl Class {
    pub const SHORTEST: Self = Self(0);

    pub fn of(lease: Lease) -> Self {
        debug_assert!(SHORTEST_MS.is_sorted(), "classes grow");
        let ms = lease.end_from(0);
        Self(SHORTEST_MS.iter().filter(|&&shortest| shortest <= ms).fold(0, |class: u8, _| class.saturating_add(1)))
    }
}
