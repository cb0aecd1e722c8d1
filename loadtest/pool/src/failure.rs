//! Errors of the program.

use std::error::Error;

/// Shown to the user as is.
pub(crate) type Failure = Box<dyn Error>;
