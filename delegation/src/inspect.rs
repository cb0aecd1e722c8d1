//! Looking into a token without believing it.

use crate::denial::{Denial, Step};
use crate::jws::Jws;

/// What a token says, whoever signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The JWS header's text.
    pub header: Vec<u8>,
    /// The claims' text.
    pub claims: Vec<u8>,
    /// The hash by which a derived token or a proof names it (draft section 4.6).
    pub hash: String,
}

/// Takes a token or a proof apart. Nothing is verified.
///
/// # Errors
/// If it is not a compact JWS.
pub fn contents(compact: &str) -> Result<Contents, Denial> {
    let malformed = |what| Step::S2c.malformed(what);
    let jws = Jws::parse(compact).ok_or_else(|| malformed("a token is three parts joined by dots (RFC 7515)"))?;
    Ok(Contents {
        header: jws
            .decoded_header()
            .ok_or_else(|| malformed("the header is not base64url"))?,
        claims: jws.payload().ok_or_else(|| malformed("the payload is not base64url"))?,
        hash: jws.hash(),
    })
}
