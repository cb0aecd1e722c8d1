//! Errors of OAuth, in the protocol's own words.

/// An error for a client. Its description is for the client's developer, in printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OauthError {
    pub(crate) code: Code,
    pub(crate) description: String,
}

/// `error` (RFC 6749, sections 4.1.2.1 and 5.2, and the registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    InvalidRequest,
    InvalidClient,
    InvalidGrant,
    UnauthorizedClient,
    UnsupportedGrantType,
    UnsupportedResponseType,
    InvalidScope,
    AccessDenied,
    ServerError,
    TemporarilyUnavailable,
    InteractionRequired,
    RequestNotSupported,
    /// RFC 8707.
    InvalidTarget,
    /// RFC 9396.
    InvalidAuthorizationDetails,
    /// RFC 9449.
    InvalidDpopProof,
}

// === impl Code ===

impl Code {
    pub(crate) fn with(self, description: impl Into<String>) -> OauthError {
        let mut description = description.into();
        // RFC 6749, section 5.2: no quotes, backslashes and control characters.
        description
            .retain(|character| character == ' ' || (character.is_ascii_graphic() && !matches!(character, '"' | '\\')));
        description.truncate(MAX_DESCRIPTION_BYTES);
        OauthError {
            code: self,
            description,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// The status of an answer that is no redirect.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::InvalidClient => 401,
            Self::ServerError => 500,
            Self::TemporarilyUnavailable => 503,
            _ => 400,
        }
    }
}

// === impl OauthError ===

impl OauthError {
    pub(crate) fn invalid_request(description: impl Into<String>) -> Self {
        Code::InvalidRequest.with(description)
    }
}

const MAX_DESCRIPTION_BYTES: usize = 500;
