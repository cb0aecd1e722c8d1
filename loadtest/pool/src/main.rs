//! `credence-pool`: makes many delegations of many principals for a load test, valid and not; see loadtest/README.md.

mod delegations;
mod failure;
mod kind;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use credence_delegation::{KeyType, SigningKey, UnixTime};
use serde::Serialize;
use serde_json::value::RawValue;

use self::delegations::{Delegation, Mint};
use self::failure::Failure;
use self::kind::{Expectation, Kind, Pattern};

/// Make many delegations of many principals for a load test, valid and not: see loadtest/README.md.
///
/// A reader of the pool can act under its delegations: use the key of an issuer that is trusted only for tests.
#[derive(Debug, Parser)]
#[command(name = "credence-pool")]
struct Pool {
    /// The private JWK file of the issuer.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The issuer's URI.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    issuer: String,

    /// The service under load.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    audience: String,

    /// The tool of the service's rules.
    #[arg(long, value_name = "NAME", default_value = "catalog.read")]
    tool: String,

    /// The tool's only argument.
    #[arg(long, value_name = "NAME", default_value = "item")]
    argument: String,

    /// How many delegations, each of another principal: whole thousands.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole_thousands)]
    delegations: u64,

    /// How many of a hundred are for a rule that needs a proof.
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(0..=100))]
    proof_share: u8,

    /// How many of a hundred are invalid, in equal parts of every kind.
    #[arg(long, value_name = "PERCENT", default_value_t = 16, value_parser = clap::value_parser!(u8).range(0..=100))]
    invalid_share: u8,

    /// The most tokens of a chain; each length is equally frequent.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=9))]
    max_tokens: u8,

    /// The algorithm of proofs: Ed25519, or ES256, which k6 has without our extension.
    #[arg(long, value_name = "ALG", default_value = "Ed25519", value_parser = proof_key)]
    proof_algorithm: KeyType,

    /// How long the delegations are valid, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    ttl: u64,

    /// When they are issued, in seconds since the Unix epoch; now if not given.
    #[arg(long, value_name = "UNIX", value_parser = clap::value_parser!(i64).range(0..))]
    issued_at: Option<i64>,

    /// What keys and ids are made from: the same text, key and --issued-at make the same pool. Random if not given.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    seed: Option<String>,

    /// The new folder, readable only by you. An existing one is never written to.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match Pool::parse().make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("credence-pool: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `pool.json`: the common properties of the delegations, and their files.
#[derive(Debug, Serialize)]
struct Contents<'a> {
    format: &'static str,
    issuer: &'a str,
    issuer_jwk: Box<RawValue>,
    audience: &'a str,
    tool: &'a str,
    argument: &'a str,
    proof_algorithm: &'static str,
    issued_at: i64,
    expires_at: i64,
    delegations: u64,
    /// Delegation n is in shard n / `shard_length`.
    shards: Vec<String>,
    shard_length: u64,
    /// Delegation n is of the kind at place n % `pattern_length`.
    pattern_length: u64,
    kinds: BTreeMap<Kind, KindContents>,
}

#[derive(Debug, Serialize)]
struct KindContents {
    #[serde(flatten)]
    expectation: Expectation,
    places: Vec<usize>,
}

impl Pool {
    fn make(&self) -> Result<(), Failure> {
        let pattern = Pattern::new(self.proof_share, self.invalid_share)
            .ok_or("--proof-share and --invalid-share are more than a hundred together; give smaller ones")?;
        let mint = self.mint()?;
        // Finds invalid options before it creates the folder.
        mint.delegation(Kind::Delegated, 0)?;
        DirBuilder::new().mode(0o700).create(&self.out).map_err(|error| {
            format!(
                "the folder {} cannot be created: {error}; give --out a new one, in a folder that exists",
                self.out.display()
            )
        })?;
        let shards = self.write_shards(&mint, &pattern)?;
        // Last: if this file exists, all files do.
        let contents = self.contents(&mint, &pattern, shards)?;
        self.write("pool.json", &contents)?;
        writeln!(std::io::stdout(), "{}", self.out.join("pool.json").display())?;
        Ok(())
    }

    fn mint(&self) -> Result<Mint, Failure> {
        let issued_at = UnixTime(match self.issued_at {
            Some(given) => given,
            None => i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?,
        });
        let seed = match &self.seed {
            Some(seed) => seed.clone(),
            None => {
                let mut random = [0; 32];
                getrandom::fill(&mut random)?;
                random.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        };
        let key = fs::read(&self.key).map_err(|error| format!("the key file {}: {error}", self.key.display()))?;
        let issuer_key = SigningKey::from_jwk_text(&key).map_err(|error| {
            format!(
                "the key file {}: {error}; give the private JWK file that `credence keygen` wrote",
                self.key.display()
            )
        })?;
        Ok(Mint {
            seed,
            issuer_key,
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            tool: self.tool.clone(),
            argument: self.argument.clone(),
            proof_key: self.proof_algorithm,
            max_tokens: self.max_tokens,
            issued_at,
            expires_at: issued_at.plus(self.ttl),
        })
    }

    /// Writes all shards, and returns their names.
    fn write_shards(&self, mint: &Mint, pattern: &Pattern) -> Result<Vec<String>, Failure> {
        let mut progress = Progress::new(self.delegations);
        let mut shards = Vec::new();
        let mut shard: Vec<Delegation> = Vec::new();
        for number in 0..self.delegations {
            shard.push(mint.delegation(pattern.kind(number), number)?);
            progress.made(number + 1);
            if shard.len() as u64 == SHARD_LENGTH || number + 1 == self.delegations {
                let name = format!("shard-{:05}.json", shards.len());
                self.write(&name, &shard)?;
                shards.push(name);
                shard.clear();
            }
        }
        Ok(shards)
    }

    fn contents<'a>(&self, mint: &'a Mint, pattern: &Pattern, shards: Vec<String>) -> Result<Contents<'a>, Failure> {
        let kinds = pattern.places().into_iter().map(|(kind, places)| {
            let expectation = kind.expectation();
            (kind, KindContents { expectation, places })
        });
        Ok(Contents {
            format: "credence-pool-1",
            issuer: &mint.issuer,
            issuer_jwk: RawValue::from_string(mint.issuer_key.public().to_jwk())?,
            audience: &mint.audience,
            tool: &mint.tool,
            argument: &mint.argument,
            proof_algorithm: self.proof_algorithm.algorithm().name(),
            issued_at: mint.issued_at.0,
            expires_at: mint.expires_at.0,
            delegations: self.delegations,
            shards,
            shard_length: SHARD_LENGTH,
            pattern_length: Pattern::LENGTH,
            kinds: kinds.collect(),
        })
    }

    fn write(&self, name: &str, contents: &impl Serialize) -> Result<(), Failure> {
        let path = self.out.join(name);
        fs::write(&path, serde_json::to_vec(contents)?)
            .map_err(|error| format!("the file {} cannot be written: {error}", path.display()))?;
        Ok(())
    }
}

/// The progress, printed once a second and at the end.
struct Progress {
    total: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    fn new(total: u64) -> Self {
        let now = Instant::now();
        Self {
            total,
            began: now,
            told: now,
        }
    }

    fn made(&mut self, count: u64) {
        if self.told.elapsed() < SECOND && count < self.total {
            return;
        }
        self.told = Instant::now();
        let spent = self.began.elapsed().as_secs_f64();
        let left = spent * (self.total - count) as f64 / count as f64;
        let rate = count as f64 / spent;
        eprintln!("{count} of {} delegations, {rate:.0}/s, {left:.0} s left", self.total);
    }
}

fn whole_thousands(text: &str) -> Result<u64, String> {
    let count = text.parse().ok();
    count
        .filter(|count| (1..=MOST_DELEGATIONS).contains(count) && count % Pattern::LENGTH == 0)
        .ok_or_else(|| format!("write whole thousands, from 1000 to {MOST_DELEGATIONS}"))
}

fn proof_key(algorithm: &str) -> Result<KeyType, String> {
    let kinds = [KeyType::Ed25519, KeyType::P256];
    kinds
        .into_iter()
        .find(|kind| kind.algorithm().name() == algorithm)
        .ok_or_else(|| "there are Ed25519 and ES256".to_owned())
}

/// About 10 MiB, which a reader can load at once.
const SHARD_LENGTH: u64 = 5_000;

/// About 20 GiB.
const MOST_DELEGATIONS: u64 = 10_000_000;

const SECOND: Duration = Duration::from_secs(1);
