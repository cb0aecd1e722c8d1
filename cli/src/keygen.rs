//! `credence keygen`

use std::io::Write;
use std::path::PathBuf;

use credence_delegation::{KeyType, SigningKey};

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
}

impl Keygen {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        // A secret of ECDSA is a number from 1 up to the group order (FIPS 186-5, appendix A.2.2). A random one is
        // refused less often than once in 2^32 times.
        let key = SigningKey::from_secret(self.alg, &*random::bytes::<32>()?)
            .map_err(|_| Failure::operation("the random bytes are not a valid key; run the command again"))?;
        files::create_secret(&self.out, &format!("{}\n", *key.to_private_jwk()))?;
        let public = key.public();
        writeln!(out, "{}", public.to_jwk())?;
        // On standard error, so that `credence keygen > public.jwk` contains only the public key.
        stderr::print(format_args!("thumbprint: {}", public.thumbprint()));
        stderr::print(format_args!("as an issuer: {}", public.to_did_key()));
        stderr::print(format_args!(
            "private key: {} (anyone who can read this file can sign as you)",
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
