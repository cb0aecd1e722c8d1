//! The operator's bearer token.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Api;
use super::problem::Problem;
use crate::durable;

/// The digest of the token: comparing digests takes the same time whatever a guess looks like.
pub(crate) struct OperatorToken([u8; 32]);

/// Why a token file can not be used.
#[derive(Debug, thiserror::Error)]
pub enum OperatorTokenError {
    /// The system refused.
    #[error("the operator token file {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Everybody on the machine may read or write it.
    #[error(
        "the operator token file {path} has mode {mode:03o}: others than its owner and group can use it. Run: chmod \
         o-rwx {path}", path = path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It does not hold a token.
    #[error(
        "the operator token file {path} must hold one token of at least {MIN_TOKEN_BYTES} visible ASCII characters and \
         nothing else. Make one with: (umask 077; head -c 32 /dev/urandom | base64 > {path})", path = path.display()
    )]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

// === impl OperatorToken ===

impl OperatorToken {
    pub(crate) fn read(path: &Path) -> Result<Self, OperatorTokenError> {
        let io_error = |error| OperatorTokenError::Io {
            path: path.to_owned(),
            error,
        };
        let mode = std::fs::metadata(path).map_err(io_error)?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(OperatorTokenError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        let contents = durable::read_small_file(path, MAX_TOKEN_FILE_BYTES).map_err(io_error)?;
        let token = contents.strip_suffix(b"\n").unwrap_or(&contents);
        if token.len() < MIN_TOKEN_BYTES || !token.iter().all(u8::is_ascii_graphic) {
            return Err(OperatorTokenError::NoToken { path: path.to_owned() });
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    fn is(&self, guess: &[u8]) -> bool {
        let guess: [u8; 32] = Sha256::digest(guess).into();
        self.0.ct_eq(&guess).into()
    }
}

impl std::fmt::Debug for OperatorToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OperatorToken(..)")
    }
}

/// Lets a request through that carries the operator's token, exactly once.
pub(crate) async fn require(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let granted = match (values.next(), values.next()) {
        (Some(value), None) => bearer(value.as_bytes()).is_some_and(|guess| api.operator.is(guess)),
        _ => false,
    };
    if granted {
        return next.run(request).await;
    }
    // `/metrics` counts each of them. They cost a stranger nothing, so they must not cost us a line each.
    if let Some(refused) = api.refusals.count(Instant::now()) {
        tracing::warn!(
            refused,
            "requests without the operator's token were refused since the last such line"
        );
    }
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "send the operator's token as: Authorization: Bearer <token>",
    )
    .challenge("Bearer")
    .into_response()
}

/// The token of a `Bearer` credential; the scheme's case does not matter (RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

const MIN_TOKEN_BYTES: usize = 32;
const MAX_TOKEN_FILE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn read(contents: &str, mode: u32) -> Result<OperatorToken, OperatorTokenError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        OperatorToken::read(&path)
    }

    #[test]
    fn only_the_token_itself_is_accepted() {
        let token = read(&format!("{TOKEN}\n"), 0o600).unwrap();
        assert!(token.is(TOKEN.as_bytes()));
        for wrong in ["", &TOKEN[1..], &format!("{TOKEN}\n"), &TOKEN.to_uppercase()] {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_without_one_long_token_is_refused_with_the_command_that_makes_one() {
        for contents in [
            "",
            "short\n",
            &format!("{TOKEN}\n{TOKEN}\n"),
            &format!("{TOKEN} {TOKEN}"),
        ] {
            let error = read(contents, 0o600).unwrap_err();
            assert!(matches!(error, OperatorTokenError::NoToken { .. }), "{contents:?}");
            assert!(error.to_string().contains("/dev/urandom"));
        }
    }

    #[test]
    fn a_file_that_everybody_can_read_is_refused_with_the_command_that_mends_it() {
        let error = read(TOKEN, 0o644).unwrap_err().to_string();
        assert!(error.contains("644") && error.contains("chmod o-rwx"), "{error}");
        read(TOKEN, 0o640).unwrap();
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case_and_nothing_else() {
        assert_eq!(bearer(b"bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
