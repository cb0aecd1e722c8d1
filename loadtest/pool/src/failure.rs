//! Why no pool is made.

use std::error::Error;

/// Said to the caller as it is.
pub(crate) type Failure = Box<dyn Error>;
