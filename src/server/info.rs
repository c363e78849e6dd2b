//! INFO: its sections, as the module reads them, and the section that the module adds.

mod section;

use std::ffi::CStr;

use redis_module::raw;

pub(super) use section::register;

/// A section of INFO, as it was when it was read.
pub(super) struct ServerInfo {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// Reads a section.
    ///
    /// # Safety
    ///
    /// `ctx` is a valid context of the module that outlives the result.
    pub(super) unsafe fn read(ctx: *mut raw::RedisModuleCtx, section: &CStr) -> Self {
        // SAFETY: the context by contract; the name is a C string.
        let data = unsafe { api!(RedisModule_GetServerInfo(ctx, section.as_ptr())) };
        debug_assert!(!data.is_null(), "the server has no INFO");
        Self { ctx, data }
    }

    /// Returns the value of a field, or `None` if the section does not have the field.
    pub(super) fn field(&self, name: &CStr) -> Option<String> {
        // SAFETY: the data lives as long as this value, and the text is copied before that.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC(self.data, name.as_ptr()));
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: `read` created the data, and only this value frees it.
        unsafe { api!(RedisModule_FreeServerInfo(self.ctx, self.data)) };
    }
}
