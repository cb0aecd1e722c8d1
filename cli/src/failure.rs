//! How a command ends: its exit code, and what it says when it could not do what it was asked.

use std::io;
use std::process::ExitCode;

/// How a command ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it was asked; for a decision, "allow".
    Done,
    /// It came to the decision "deny".
    Denied,
}

/// Why a command did not do what it was asked. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, a file or standard input is not what it must be.
    #[error("{0}")]
    Input(String),
    /// The input was understood, but what it asks for cannot be done.
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

    /// Whether the reader of our output went away, as `head` does. That is not reported.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
