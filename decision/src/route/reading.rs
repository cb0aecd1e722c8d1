//! An answer that may differ between the services that read a request.

/// Whether something is true of a request, under every reading that a service behind Envoy might make of it.
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
    /// Whether both are true. One `No` decides, also where the other is unclear.
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
