//! `credence keygen`

use std::io::Write;
use std::path::PathBuf;

use credence_delegation::{KeyType, SigningKey};
use credence_proxy::encrypt;
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};
use crate::{files, random, stderr};

/// Create a key pair: the private JWK goes to a file, the public JWK to standard output.
#[derive(Debug, clap::Args)]
pub(crate) struct Keygen {
    /// The algorithm: Ed25519, ES256 (P-256) or ES256K (secp256k1). A filter accepts the latter two only if its
    /// configuration lists them.
    #[arg(long, value_name = "ALG", default_value = "Ed25519", value_parser = kind_of)]
    alg: KeyType,

    /// The new private key file. Only you can read it. An existing file is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "key.jwk")]
    out: PathBuf,

    /// A file with a passphrase: the private key file is PKCS #8 (RFC 5958) in PEM, encrypted with it. Ed25519 only.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Keygen {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        // A secret of ECDSA is a number from 1 up to the group order (FIPS 186-5, appendix A.2.2). A random one is
        // refused less often than once in 2^32 times.
        let secret = random::bytes::<32>()?;
        let key = SigningKey::from_secret(self.alg, &secret)
            .map_err(|_| Failure::operation("the random bytes are not a valid key; run the command again"))?;
        let contents = match &self.passphrase_file {
            None => Zeroizing::new(format!("{}\n", *key.to_private_jwk())),
            Some(path) if self.alg == KeyType::Ed25519 => {
                let passphrase = files::read(path, "a passphrase")?;
                let encrypted = encrypt(&secret, passphrase.trim_ascii());
                encrypted.map_err(|error| Failure::operation(format!("the key cannot be encrypted: {error}")))?
            }
            Some(_) => {
                return Err(Failure::input(
                    "--passphrase-file: only Ed25519 keys are encrypted; use `openssl pkcs8`",
                ));
            }
        };
        files::create_secret(&self.out, &contents)?;
        let public = key.public();
        writeln!(out, "{}", public.to_jwk())?;
        // On standard error, so that `credence keygen > public.jwk` contains only the public key.
        stderr::print(format_args!("thumbprint: {}", public.thumbprint()));
        stderr::print(format_args!("as an issuer: {}", public.to_did_key()));
        let needed = if self.passphrase_file.is_some() {
            " and its passphrase"
        } else {
            ""
        };
        stderr::print(format_args!(
            "private key: {} (anyone who can read this file{needed} can sign as you)",
            self.out.display()
        ));
        Ok(Outcome::Done)
    }
}

fn kind_of(algorithm: &str) -> Result<KeyType, String> {
    let named = |kind: &KeyType| kind.algorithm().name() == algorithm;
    KeyType::ALL.into_iter().find(named).ok_or_else(|| {
        let names = KeyType::ALL.map(|kind| kind.algorithm().name()).join(", ");
        format!("write one of {names}")
    })
}
