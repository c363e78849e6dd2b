//! The global allocator. It uses the server's memory, which counts in `used_memory` and shows in `MEMORY DOCTOR`.

use std::alloc::{GlobalAlloc, Layout, System};

use redis_module::raw;

/// The alignment that every allocator of a server (jemalloc, libc, tcmalloc) guarantees for any size.
const GUARANTEED_ALIGN: usize = 8;

/// The server's allocator inside a server, and the system's elsewhere (in `cargo test`).
///
/// The choice cannot change while memory is held: the server provides its functions before the module allocates.
struct ServerAllocator;

#[global_allocator]
static ALLOCATOR: ServerAllocator = ServerAllocator;

// SAFETY: each method forwards to one of two sound allocators, and the choice depends only on the layout, which a
// block keeps for its life, and on whether the API is loaded (see the type).
unsafe impl GlobalAlloc for ServerAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the pointers are written once, at load, on the only thread that allocates here. Any size may be asked of the
        // server's allocator, and the caller's promise about the layout is passed on to the other.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) if layout.align() <= GUARANTEED_ALIGN => alloc(layout.size()).cast(),
                _ => System.alloc(layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; `block` came from the same allocator, because its layout is the same.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(realloc) if layout.align() <= GUARANTEED_ALIGN => realloc(block.cast(), new_size).cast(),
                _ => System.realloc(block, layout, new_size),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) if layout.align() <= GUARANTEED_ALIGN => free(block.cast()),
                _ => System.dealloc(block, layout),
            }
        }
    }
}
