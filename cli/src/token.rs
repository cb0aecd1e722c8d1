//! `credence token`

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_control_plane::{AccessSettings, Role, Settings, TokenSettings};
use credence_delegation::UnixTime;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};
use crate::{clock, files, random, stderr};

/// Create a bearer token for the control plane.
///
/// The token goes to a file for its owner. Standard output gets its entry for access.tokens in the configuration file
/// of `credence serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Token {
    /// The owner's name, which logs and histories show.
    #[arg(long, value_name = "NAME")]
    name: String,

    /// What the token permits: admin, revoker, watcher, auditor, filter, reporter, provisioner or transmitter.
    /// Repeatable.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<Role>,

    /// A root issuer that the token is limited to, with its principals and delegations. Repeatable. Default: every
    /// issuer.
    #[arg(long = "issuer", value_name = "URI")]
    issuers: Vec<String>,

    /// Lifetime of the token. Default: until its entry is removed from the configuration file.
    #[arg(long, value_name = "SPAN", value_parser = clock::span)]
    ttl: Option<Duration>,

    /// The new token file. Only you can read it. An existing file is never overwritten.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Token {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let token = generate()?;
        let expires = self.ttl.map(|ttl| expiry(clock::now(), ttl)).transpose()?;
        let entry = TokenSettings {
            name: self.name.clone(),
            sha256: Sha256::digest(token.as_bytes()).into(),
            roles: self.roles.clone(),
            issuers: (!self.issuers.is_empty()).then(|| self.issuers.clone()),
            expires,
        };
        let settings = Settings {
            access: AccessSettings {
                tokens: vec![entry.clone()],
                ..AccessSettings::default()
            },
            ..Settings::default()
        };
        settings
            .check()
            .map_err(|error| Failure::input(format!("the control plane would refuse this token: {}", error.problem)))?;
        files::create_secret(&self.out, &format!("{}\n", *token))?;
        write(&entry, out)?;
        // On standard error, so that standard output can be appended to a file.
        stderr::print(format_args!(
            "token: {} (anyone who can read this file can use it; there is no other copy)",
            self.out.display()
        ));
        Ok(Outcome::Done)
    }
}

/// 256 random bits, with a prefix by which secret scanners find leaked tokens.
pub(crate) fn generate() -> Result<Zeroizing<String>, Failure> {
    let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(random::bytes::<32>()?.as_slice()));
    Ok(Zeroizing::new(format!("{PREFIX}{}", *secret)))
}

fn expiry(now: UnixTime, ttl: Duration) -> Result<i64, Failure> {
    i64::try_from(ttl.as_secs())
        .ok()
        .and_then(|seconds| now.0.checked_add(seconds))
        .filter(|expires| !ttl.is_zero() && *expires <= clock::LATEST)
        .ok_or_else(|| Failure::input("--ttl: write a duration of at least 1s that ends before the year 10000"))
}

/// The entry as YAML. Strings are quoted as in JSON, which YAML reads the same.
fn write(entry: &TokenSettings, out: &mut impl Write) -> Result<(), Failure> {
    let digest: String = entry.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    let roles: Vec<_> = entry.roles.iter().map(|role| role.name()).collect();
    writeln!(out, "- name: {}", json!(entry.name))?;
    writeln!(out, "  sha256: {}", json!(digest))?;
    writeln!(out, "  roles: [{}]", roles.join(", "))?;
    if let Some(issuers) = &entry.issuers {
        let issuers: Vec<_> = issuers.iter().map(|issuer| json!(issuer).to_string()).collect();
        writeln!(out, "  issuers: [{}]", issuers.join(", "))?;
    }
    if let Some(expires) = entry.expires {
        writeln!(out, "  expires: {}", clock::rfc3339(UnixTime(expires)))?;
    }
    Ok(())
}

const PREFIX: &str = "crd_";
