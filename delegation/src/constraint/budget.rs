//! What comparing constraints may cost.

/// Comparisons of values that are left.
pub(crate) struct Budget(usize);

impl Budget {
    /// What one derived token may cost: a few milliseconds at worst. More than plain sets can: a value takes at least
    /// two of the 49,152 bytes of claims that fit a token of the default size (64 KiB in base64url).
    pub(crate) const PER_TOKEN: Self = Self(32_768);

    /// Takes the cost of a comparison from what is left; `false` if that is not enough.
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
