//! How much a target checks of an input, and how far the input got.

/// How far an input got. A target that nothing gets through tests nothing, so that this is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The crate denied or refused it.
    Refused,
    /// It was accepted: parsed, or verified where there is a signature.
    Accepted,
}

/// How much to check. The costly checks cost signatures: an input that had them all would leave time for few others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// One of the costly checks, which depends on the input: for fuzzing.
    One,
    /// All of them: for replaying.
    All,
}

impl Effort {
    /// Whether to make the costly check of this number, of so many.
    pub(super) fn makes(self, check: usize, of: usize, input: &[u8]) -> bool {
        let sum = input.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        self == Self::All || sum % of == check
    }
}
