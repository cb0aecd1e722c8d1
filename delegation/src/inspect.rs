//! Decodes a token without verifying it.

use crate::denial::{Denial, Step};
use crate::jws::Jws;

/// The contents of a token; its signature is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The JWS header's text.
    pub header: Vec<u8>,
    /// The claims' text.
    pub claims: Vec<u8>,
    /// The hash by which a derived token or a proof names it (draft section 4.6).
    pub hash: String,
}

/// Decodes a token or a proof. Verifies nothing.
///
/// # Errors
/// If it is not a compact JWS.
pub fn contents(compact: &str) -> Result<Contents, Denial> {
    let deny = |cause| Step::S2c.deny(cause);
    let jws = Jws::parse(compact).map_err(deny)?;
    Ok(Contents {
        header: jws
            .decoded_header()
            .ok_or_else(|| Step::S2c.malformed("the header is not base64url"))?,
        claims: jws.payload().map_err(deny)?,
        hash: jws.hash(),
    })
}

/// Foreign text without the characters that control a terminal or reorder the text around them.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '"' | '\'' | '\\') {
            out.push(character);
        } else if BLANK.contains(&character) {
            out.extend(character.escape_unicode());
        } else {
            out.extend(character.escape_debug());
        }
    }
    out
}

/// Letters and symbols that look like nothing.
const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];
