//! Why nobody is signed in.

use credence_delegation::inspect::printable;

/// Why a sign-in failed. The texts are for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("too many requests to the identity provider are in progress")]
    Busy,
    #[error("the identity provider's metadata and keys: {0}")]
    Metadata(String),
    #[error("the identity provider's token endpoint: {0}")]
    TokenEndpoint(String),
    #[error("the identity provider refuses the code: {0}")]
    Refused(String),
    #[error("the `iss` of the browser's answer is {0}, so it is not this identity provider's answer (RFC 9207)")]
    OtherIssuer(String),
    #[error("the ID token: {0}")]
    IdToken(String),
    #[error("the ID token has no `auth_time`, but `max_age` was demanded; the provider must support it")]
    NoAuthTime,
    #[error("the person signed in {age} s ago; at most {limit} s were demanded")]
    NotRecent { age: i64, limit: u32 },
    #[error("the sign-in has the `acr` {found}, which is not one of the demanded {demanded}")]
    Acr { found: String, demanded: String },
    #[error("the ID token's claim `{claim}` {problem}")]
    Claim { claim: String, problem: &'static str },
    #[error(
        "the person is in too many groups for the ID token, so it has no claim `{0}`; let the provider list fewer, such \
         as those assigned to the application"
    )]
    GroupsLeftOut(String),
}

// === impl SignInError ===

impl SignInError {
    /// What the person may see.
    pub(crate) fn for_person(&self) -> &'static str {
        match self {
            Self::Busy => "Too many people are signing in. Try again in a minute.",
            Self::Metadata(_) | Self::TokenEndpoint(_) => {
                "Your organization's sign-in cannot be reached. Try again later."
            }
            Self::Refused(_) | Self::OtherIssuer(_) => "This sign-in is no longer valid. Start again.",
            Self::IdToken(_) | Self::NoAuthTime => {
                "Your organization's sign-in gave an answer that cannot be used. Tell your administrator."
            }
            Self::NotRecent { .. } => "You signed in too long ago. Sign in again.",
            Self::Acr { .. } => "This needs a stronger sign-in, such as with a second factor.",
            Self::Claim { .. } | Self::GroupsLeftOut(_) => {
                "Your account's name or groups cannot be read. Tell your administrator."
            }
        }
    }
}

/// An error with its causes.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Foreign text for the log: printable, short, and without long words, which may be tokens.
pub(super) fn shown(text: &str) -> String {
    let is_of_token = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '+' | '=');
    let words = text
        .split_inclusive(|character| !is_of_token(character))
        .map(|word| match word.len() {
            ..=MAX_WORD_BYTES => word,
            _ => "… ",
        });
    let text: String = words.collect();
    printable(&text.chars().take(MAX_SHOWN).collect::<String>())
}

/// Characters of foreign text.
const MAX_SHOWN: usize = 400;
/// A UUID has 36.
const MAX_WORD_BYTES: usize = 40;
