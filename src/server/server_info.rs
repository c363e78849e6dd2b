//! What INFO says.

use std::ffi::CStr;

use redis_module::raw;

/// A section of INFO, as it was when it was asked for.
pub(super) struct ServerInfo {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// Asks for a section.
    ///
    /// # Safety
    ///
    /// `ctx` is a context of the module that outlives the value.
    pub(super) unsafe fn of(ctx: *mut raw::RedisModuleCtx, section: &CStr) -> Self {
        // SAFETY: the context by contract; the name is a C string.
        Self { ctx, data: unsafe { api!(RedisModule_GetServerInfo(ctx, section.as_ptr())) } }
    }

    /// Returns a field, if there is one.
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
        // SAFETY: made in `of`, and given back here only.
        unsafe { api!(RedisModule_FreeServerInfo(self.ctx, self.data)) };
    }
}
