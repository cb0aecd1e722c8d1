//! `credence keygen`

use std::io::Write;
use std::path::PathBuf;

use credence_delegation::{KeyType, SigningKey};

use crate::failure::{Failure, Outcome};
use crate::{files, random, stderr};

/// Make a key pair: the private JWK goes into a file, the public JWK to standard output.
#[derive(Debug, clap::Args)]
pub(crate) struct Keygen {
    /// What the key signs with: Ed25519, ES256 (P-256) or ES256K (secp256k1). A filter accepts the latter two only where
    /// its configuration names them.
    #[arg(long, value_name = "ALG", default_value = "Ed25519", value_parser = kind_of)]
    alg: KeyType,

    /// The new private key file. Only you can read it; a file that exists is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "key.jwk")]
    out: PathBuf,
}

impl Keygen {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        // A secret of ECDSA is a number from 1 up to the order of the group (FIPS 186-5, appendix A.2.2): of 2^32 random ones
        // not even two are refused.
        let key = SigningKey::from_secret(self.alg, &*random::bytes::<32>()?)
            .map_err(|_| Failure::operation("the random bytes make no key; run the command again"))?;
        files::create_secret(&self.out, &format!("{}\n", *key.to_private_jwk()))?;
        let public = key.public();
        writeln!(out, "{}", public.to_jwk())?;
        // Not on standard output, so that `credence keygen > public.jwk` is the public key and nothing else.
        stderr::print(format_args!("thumbprint: {}", public.thumbprint()));
        stderr::print(format_args!("as an issuer: {}", public.to_did_key()));
        stderr::print(format_args!(
            "private key: {} (a reader of this file can sign as you)",
            self.out.display()
        ));
        Ok(Outcome::Done)
    }
}

fn kind_of(algorithm: &str) -> Result<KeyType, String> {
    let named = |kind: &KeyType| kind.algorithm().name() == algorithm;
    KeyType::ALL.into_iter().find(named).ok_or_else(|| {
        let names = KeyType::ALL.map(|kind| kind.algorithm().name()).join(", ");
        format!("there are {names}")
    })
}
