//! Data that the workers of one process share.

use thiserror::Error;

/// Key-value storage shared by the workers of one process, with compare-and-set.
pub trait SharedStore {
    /// The value and its version, or `None` if the key was never set.
    ///
    /// If the host fails.
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure>;

    /// Sets the value if the key still has this version, or, for `None`, if it was never set. `false` if another worker
    /// was faster.
    ///
    /// # Errors
    /// If the host refuses.
    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure>;
}

/// The version of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u32);

/// The host could not read or write a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the host's shared data failed")]
pub struct StoreFailure;
