//! The two ports that may speak TLS.

/// A port, by what it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// HTTP/1.1.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
}

// === impl Port ===

impl Port {
    /// Its name in settings, logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// The name of its protocol in ALPN (RFC 7301).
    pub(super) fn protocol(self) -> &'static [u8] {
        match self {
            Self::Http => b"http/1.1",
            Self::Grpc => b"h2",
        }
    }
}
