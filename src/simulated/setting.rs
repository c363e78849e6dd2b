//! Settings for operators. They apply to all nodes of a thread, so that tests on other threads do not see them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;

thread_local! {
    static VALUES: RefCell<BTreeMap<&'static CStr, i64>> = const { RefCell::new(BTreeMap::new()) };
    static ARE_HIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// A setting that is a number.
pub struct Setting {
    pub(super) name: &'static CStr,
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Setting {
    pub const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max }
    }

    /// Creates a setting that is `yes` or `no` on a real server, and 1 or 0 here.
    pub const fn switch(name: &'static CStr) -> Self {
        Self::new(name, 0, 0, 1)
    }

    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    pub fn get(&self) -> i64 {
        VALUES.with_borrow(|values| values.get(self.name).copied().unwrap_or(self.default))
    }

    pub(super) fn set(&self, value: i64) {
        VALUES.with_borrow_mut(|values| _ = values.insert(self.name, value));
    }
}

/// The settings of the server that the module reads.
static OF_SERVER: [Setting; 1] = [Setting::new(c"min-replicas-max-lag", 10, 0, 2_147_483_647)];

/// Returns the setting of the server with this name.
pub(super) fn of_server(name: &[u8]) -> Option<&'static Setting> {
    OF_SERVER.iter().find(|setting| setting.name.to_bytes() == name)
}

/// Hides the server's settings from modules, as if `rename-command` had changed the name of CONFIG.
pub(super) fn hide() {
    ARE_HIDDEN.set(true);
}

/// Returns whether the server's settings are hidden.
pub(super) fn are_hidden() -> bool {
    ARE_HIDDEN.get()
}

/// Resets every setting to its default.
pub(super) fn forget() {
    ARE_HIDDEN.set(false);
    VALUES.with_borrow_mut(BTreeMap::clear);
}
