//! Defects on purpose, for the simulator to find.
//!
//! Each is planted at one place, as `planted!`. In a build with the feature `planted`, a thread chooses one of them at
//! run time; in every other build `planted!` is `false` or nothing, and nothing of it is left.

/// `planted!(Name)`: whether this defect is chosen. `planted!(Name => body)`: what to do if it is.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($name:ident) => {
        $crate::planted::is_chosen($crate::planted::Bug::$name)
    };
    ($name:ident => $body:expr) => {
        if $crate::planted::is_chosen($crate::planted::Bug::$name) {
            $body;
        }
    };
}

/// `planted!(Name)` is `false`, and `planted!(Name => body)` is nothing.
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($name:ident) => {
        false
    };
    ($name:ident => $body:expr) => {};
}

#[cfg(feature = "planted")]
pub use bugs::Bug;
#[cfg(feature = "planted")]
pub use chosen::{choose, is_chosen};

#[cfg(feature = "planted")]
mod bugs;
#[cfg(feature = "planted")]
mod chosen;
#[cfg(all(test, feature = "planted"))]
mod tests;
