//! Counts what the plugin does: its calls to the host, and its allocations beside those of the host.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Work {
    pub(super) host_calls: u64,
    pub(super) allocations: u64,
}

/// A call to the host, until it is dropped.
pub(super) struct HostCall(());

struct Counting;

thread_local! {
    static DONE: Cell<Work> = const { Cell::new(Work { host_calls: 0, allocations: 0 }) };
    static IN_HOST: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` does on this thread.
pub(super) fn measure(work: impl FnOnce()) -> Work {
    DONE.set(Work::default());
    work();
    DONE.get()
}

impl HostCall {
    pub(super) fn begin() -> Self {
        let done = DONE.get();
        DONE.set(Work {
            host_calls: done.host_calls + 1,
            ..done
        });
        IN_HOST.set(true);
        Self(())
    }
}

impl Drop for HostCall {
    fn drop(&mut self) {
        IN_HOST.set(false);
    }
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn count() {
    if !IN_HOST.get() {
        let done = DONE.get();
        DONE.set(Work {
            allocations: done.allocations + 1,
            ..done
        });
    }
}
