//! `credence prove`

use std::io::Write;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use credence_delegation::mint::{self, Invocation};
use credence_delegation::{Limits, UnixTime};

use crate::chain_text::{self, ChainText, Claimed};
use crate::failure::{Failure, Outcome};
use crate::invocation::InvocationOptions;
use crate::{clock, keys, random};

/// Prove possession of a delegation: sign one use of a tool.
///
/// Prints the proof, for the header `delegation-proof`. It is valid for one request, within seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct Prove {
    #[arg(long, value_name = "CHAIN", help = chain_text::HELP)]
    chain: String,

    /// The private JWK file of the holder of the chain's last token.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The tool to use.
    #[arg(long, value_name = "NAME")]
    tool: String,

    #[command(flatten)]
    invocation: InvocationOptions,

    /// The service that receives the proof. Services may refuse a proof without it.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    audience: Option<String>,

    /// The nonce from the service.
    #[arg(long, value_name = "NONCE", value_parser = NonEmptyStringValueParser::new())]
    nonce: Option<String>,

    /// The proof's id, never used twice. Default: a new UUIDv7.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,

    /// Time of issue, in seconds since the Unix epoch. Default: now.
    #[arg(long, value_name = "UNIX", value_parser = clock::unix_seconds, allow_negative_numbers = true)]
    issued_at: Option<i64>,

    /// How many proofs of the same use to print, each valid for one request. Prints one on each line. At most 1000000.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "id", hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
}

impl Prove {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let chain = ChainText::read(&self.chain)?;
        let arguments = self
            .invocation
            .arguments()?
            .map_err(|error| Failure::input(error.to_string()))?;
        let key = keys::signing_key(&self.key)?;
        let issued_at = self.issued_at.map_or_else(clock::now, UnixTime);
        let limits = Limits::default();
        let leaf = Claimed::read(chain.leaf())?;
        leaf.check_not_expired(issued_at)?;
        leaf.check_not_older(self.issued_at, limits.iat_skew)?;
        let mut invocation = Invocation {
            id: self.id.clone().map_or_else(|| random::id(issued_at), Ok)?,
            issued_at,
            tool: self.tool.clone(),
            arguments,
            audience: self.audience.clone(),
            nonce: self.nonce.clone(),
        };
        clock::warn_if_far_off(self.issued_at);
        for made in 0..self.count {
            if made > 0 {
                invocation.id = random::id(issued_at)?;
            }
            writeln!(out, "{}", mint::prove(chain.leaf(), &invocation, &key, &limits)?)?;
        }
        Ok(Outcome::Done)
    }
}
