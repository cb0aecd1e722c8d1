//! What the tokens of a chain say. Nothing is verified.

use credence_delegation::inspect;
use credence_delegation::json::Json;
use serde::Serialize;
use serde_json::value::RawValue;

/// A chain as JSON.
#[derive(Debug, Serialize)]
pub struct Inspected {
    /// Always false, so that the output is not mistaken for a decision.
    verified: bool,
    tokens: Vec<Token>,
}

/// A decoded token.
#[derive(Debug, Serialize)]
pub struct Token {
    /// The protected header.
    pub header: Box<RawValue>,
    /// The claims.
    pub claims: Box<RawValue>,
    /// The hash by which a derived token or a proof names it.
    pub hash: String,
}

impl Inspected {
    /// These tokens, root first.
    pub fn of(tokens: Vec<Token>) -> Self {
        let verified = false;
        Self { verified, tokens }
    }
}

impl Token {
    /// Decodes a token.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn read(token: &str) -> Result<Self, String> {
        let contents = inspect::contents(token).map_err(|denial| denial.cause.to_string())?;
        let json = |bytes: Vec<u8>, what: &str| {
            Json::parse(&bytes).map_err(|error| format!("{what}: {error}"))?;
            serde_json::from_slice(&bytes).map_err(|error| format!("{what}: {error}"))
        };
        Ok(Self {
            header: json(contents.header, "its header")?,
            claims: json(contents.claims, "its claims")?,
            hash: contents.hash,
        })
    }
}
