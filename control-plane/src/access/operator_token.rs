//! The file with the bearer token of the operator, which has every permission.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::TokenDigest;
use credence_server::Unusable;
use credence_storage::durable;

/// Reads the file. Only the token's digest stays in memory.
pub(crate) fn read_operator_token(path: &Path) -> Result<TokenDigest, Unusable> {
    let shown = path.display();
    let unusable = |problem: String| Unusable(format!("the operator token file {shown}{problem}"));
    let io_error = |error: std::io::Error| unusable(format!(": {error}"));
    let mode = std::fs::metadata(path).map_err(io_error)?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(unusable(format!(
            " has mode {mode:03o}: others than its owner and group can use it. Run: chmod o-rwx {shown}"
        )));
    }
    let contents = durable::read_small_file(path, MAX_TOKEN_FILE_BYTES).map_err(io_error)?;
    let token = contents.strip_suffix(b"\n").unwrap_or(&contents);
    if token.len() < MIN_TOKEN_BYTES || !token.iter().all(u8::is_ascii_graphic) {
        return Err(unusable(format!(
            " must hold one token of at least {MIN_TOKEN_BYTES} visible ASCII characters and nothing else. Make one \
             with: (umask 077; head -c 32 /dev/urandom | base64 > {shown})"
        )));
    }
    Ok(TokenDigest::of(token))
}

const MIN_TOKEN_BYTES: usize = 32;
const MAX_TOKEN_FILE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn read(contents: &str, mode: u32) -> Result<TokenDigest, Unusable> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        read_operator_token(&path)
    }

    #[test]
    fn the_final_newline_is_not_part_of_the_token() {
        let token = read(&format!("{TOKEN}\n"), 0o600).unwrap();
        assert_eq!(token, TokenDigest::of(TOKEN.as_bytes()));
        assert_eq!(token, read(TOKEN, 0o600).unwrap());
    }

    #[test]
    fn a_file_without_one_long_token_is_refused_with_the_command_that_makes_one() {
        for contents in [
            "",
            "short\n",
            &format!("{TOKEN}\n{TOKEN}\n"),
            &format!("{TOKEN} {TOKEN}"),
        ] {
            let error = read(contents, 0o600).unwrap_err().to_string();
            assert!(error.contains("must hold one token of at least 32"), "{contents:?}");
            assert!(error.contains("/dev/urandom"));
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_command_that_fixes_it() {
        let error = read(TOKEN, 0o644).unwrap_err().to_string();
        assert!(error.contains("644") && error.contains("chmod o-rwx"), "{error}");
        read(TOKEN, 0o640).unwrap();
    }
}
