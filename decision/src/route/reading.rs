//! Whether something is so to everybody who might read the request.

/// An answer about a request, by all the readings of it that a service behind us might make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// By every reading.
    Yes,
    /// By no reading.
    No,
    /// By some and not by others.
    Unclear,
}

impl Reading {
    /// Whether both are so. What is so by no reading settles it, however unclear the other is.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            (Self::Unclear, _) | (_, Self::Unclear) => Self::Unclear,
        }
    }
}

impl From<bool> for Reading {
    fn from(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }
}
