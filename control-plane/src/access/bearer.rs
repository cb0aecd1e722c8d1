//! Reads the bearer token of a request: RFC 6750 section 2.1, and gRPC metadata of the same name.

use axum::http::{HeaderMap, header};

use super::Refusal;

/// The bearer token, if there is one. Two tokens, or another scheme, count as a wrong token.
pub(crate) fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => bearer(value.as_bytes()).map(Some).ok_or(Refusal::Unknown),
        (Some(_), Some(_)) => Err(Refusal::Unknown),
    }
}

/// The token of a `Bearer` credential. The case of the scheme does not matter (RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_bearer_in_any_case_and_nothing_else() {
        assert_eq!(bearer(b"bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
