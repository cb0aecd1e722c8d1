//! An answer that may differ between the services that read a request.

/// Whether something is true for a request, under every reading of it by a service behind Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// In every reading.
    Yes,
    /// In no reading.
    No,
    /// In some readings only.
    Unclear,
}

impl Reading {
    /// Whether both are true. One `No` decides, even if the other is unclear.
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
