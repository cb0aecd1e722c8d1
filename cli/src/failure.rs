//! How a command ends: its exit code, and the error of a command that failed.

use std::io;
use std::process::ExitCode;

/// The outcome of a command that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success; for a decision, "allow".
    Done,
    /// The decision is "deny".
    Denied,
}

/// Why a command failed. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, a file or standard input is invalid.
    #[error("{0}")]
    Input(String),
    /// The input is valid, but the operation failed.
    #[error("{0}")]
    Operation(String),
    /// The result could not be written.
    #[error("standard output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Outcome {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Denied => ExitCode::from(1),
        }
    }
}

impl Failure {
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    pub(crate) fn operation(message: impl Into<String>) -> Self {
        Self::Operation(message.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Operation(_) | Self::Output(_) => ExitCode::from(1),
            Self::Input(_) => ExitCode::from(2),
        }
    }

    /// Whether the reader of standard output has closed it, as `head` does. That is not reported.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
