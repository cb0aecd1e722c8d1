//! Codes and refresh tokens: the number of a grant, and a MAC. So nothing in the database is worth stealing, and a text
//! that this issuer never gave out changes nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::keys::Keys;

/// The code of a grant.
pub(crate) fn code(keys: &Keys, grant: Uuid) -> String {
    seal(keys, CODE, grant.as_bytes())
}

/// The grant of a code that this issuer gave out.
pub(crate) fn grant_of_code(keys: &Keys, code: &str) -> Option<Uuid> {
    Uuid::from_slice(&open(keys, CODE, code)?).ok()
}

/// A grant's refresh token with this number.
pub(crate) fn refresh_token(keys: &Keys, grant: Uuid, number: u32) -> String {
    seal(
        keys,
        REFRESH,
        &[grant.as_bytes().as_slice(), &number.to_be_bytes()].concat(),
    )
}

/// The grant and the number of a refresh token that this issuer gave out.
pub(crate) fn grant_of_refresh_token(keys: &Keys, token: &str) -> Option<(Uuid, u32)> {
    let contents = open(keys, REFRESH, token)?;
    let (grant, number) = contents.split_at_checked(16)?;
    Some((
        Uuid::from_slice(grant).ok()?,
        u32::from_be_bytes(number.try_into().ok()?),
    ))
}

fn seal(keys: &Keys, label: &str, contents: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([contents, &keys.mac(label, contents)].concat())
}

fn open(keys: &Keys, label: &str, text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (contents, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    keys.is_mac(label, contents, mac).then(|| contents.to_vec())
}

const CODE: &str = "code";
const REFRESH: &str = "refresh token";
const MAC_BYTES: usize = 32;
