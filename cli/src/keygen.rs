//! `credence keygen`

use std::io::Write;
use std::path::PathBuf;

use credence_delegation::SigningKey;

use crate::failure::{Failure, Outcome};
use crate::{files, random};

/// Make an Ed25519 key pair: the private JWK goes into a file, the public JWK to standard output.
#[derive(Debug, clap::Args)]
pub(crate) struct Keygen {
    /// The new private key file. Only you can read it; a file that exists is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "key.jwk")]
    out: PathBuf,
}

impl Keygen {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let key = SigningKey::from_seed(&*random::bytes::<32>()?);
        files::create_secret(&self.out, &format!("{}\n", *key.to_private_jwk()))?;
        writeln!(out, "{}", key.public().to_jwk())?;
        // Not on standard output, so that `credence keygen > public.jwk` is the public key and nothing else.
        eprintln!("thumbprint: {}", key.public().thumbprint());
        eprintln!("private key: {} (whoever reads it can sign as you)", self.out.display());
        Ok(Outcome::Done)
    }
}
