//! The versions of MCP that have Streamable HTTP.

/// A version of MCP, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The first one with Streamable HTTP. It has no `MCP-Protocol-Version` header.
    V2025_03_26,
    /// The first one with that header.
    V2025_06_18,
    /// The last one with sessions.
    V2025_11_25,
    /// Each request says everything about itself.
    V2026_07_28,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// As the protocol writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Whether there are no sessions, and servers compare headers and body.
    pub fn is_stateless(self) -> bool {
        self >= Self::V2026_07_28
    }
}
