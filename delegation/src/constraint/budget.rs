//! The limit on the cost of comparing constraints.

/// The remaining number of comparisons of values.
pub(crate) struct Budget(usize);

impl Budget {
    /// The budget of one derived token: a few milliseconds at worst. Plain sets cannot exceed it: a value takes at
    /// least two bytes of the 49,152 bytes of claims that fit into a token of the default size (64 KiB in base64url).
    pub(crate) const PER_TOKEN: Self = Self(32_768);

    /// Subtracts the cost of a comparison; `false` if the remainder is not enough.
    pub(super) fn spend(&mut self, cost: usize) -> bool {
        match self.0.checked_sub(cost) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}
