//! `credence-dpop`: makes DPoP proofs (RFC 9449) for a benchmark, each for one request. The product verifies them, and
//! never makes any.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Parser;
use credence_delegation::SigningKey;
use sha2::{Digest as _, Sha256};

/// Make DPoP proofs for a benchmark, one on each line.
#[derive(Debug, Parser)]
#[command(name = "credence-dpop")]
struct Proofs {
    /// The private JWK file of the token's holder.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The access token.
    #[arg(long, value_name = "TOKEN")]
    token: String,

    /// The request's method.
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,

    /// The request's URI, without query.
    #[arg(long, value_name = "URI")]
    uri: String,

    /// How many.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
}

fn main() -> ExitCode {
    match Proofs::parse().write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Proofs {
    fn write(&self) -> io::Result<()> {
        let key = fs::read(&self.key).map_err(|error| io::Error::other(format!("{}: {error}", self.key.display())))?;
        let key = SigningKey::from_jwk_text(&key).map_err(io::Error::other)?;
        let (algorithm, jwk) = (key.algorithm().name(), key.public().to_jwk());
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}","typ":"dpop+jwt","jwk":{jwk}}}"#));
        let (method, uri) = (&self.method, &self.uri);
        let token_hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&self.token));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let now = now.as_secs();
        let mut prefix = [0; 12];
        getrandom::fill(&mut prefix).map_err(|error| io::Error::other(error.to_string()))?;
        let prefix = URL_SAFE_NO_PAD.encode(prefix);
        let mut out = BufWriter::new(io::stdout().lock());
        for number in 0..self.count {
            let claims = format!(
                r#"{{"jti":"{prefix}{number:08}","htm":"{method}","htu":"{uri}","iat":{now},"ath":"{token_hash}"}}"#
            );
            let input = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
            let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()));
            writeln!(out, "{input}.{signature}")?;
        }
        out.flush()
    }
}
