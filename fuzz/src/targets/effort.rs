//! How much a target checks for an input, and how far the input got.

/// How far an input got. A target that accepts no input tests nothing, so this is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The crate denied or refused it.
    Refused,
    /// The crate accepted it: parsed it, or verified it if there is a signature.
    Accepted,
}

/// How many checks to make. The costly checks verify signatures. All of them for each input would leave time for few
/// inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// One of the costly checks, chosen by the input: for fuzzing.
    One,
    /// All of them: for replaying.
    All,
}

impl Effort {
    /// Whether to make the costly check of this number, out of `of`.
    pub(super) fn makes(self, check: usize, of: usize, input: &[u8]) -> bool {
        let sum = input.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        self == Self::All || sum % of == check
    }
}
