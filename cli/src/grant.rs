//! The options of `mint` and `derive` that describe the grant of a new token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::builder::NonEmptyStringValueParser;
use credence_decision::engine::MAX_ID_BYTES;
use credence_delegation::json::Json;
use credence_delegation::mint::{Grant, MintError};
use credence_delegation::{Members, Step, UnixTime, Value};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest, Sha256};

use crate::chain_text::Claimed;
use crate::failure::Failure;
use crate::{clock, files, keys, random};

/// The grant of a new token: its tools, its holder, and its lifetime.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantOptions {
    /// The private JWK file to sign with.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,

    /// The holder of the token: a public JWK, a file with a JWK (of a private key, the public half is used), or a
    /// did:key.
    #[arg(long, value_name = "JWK")]
    holder: String,

    /// A tool to grant (repeatable). NAME alone allows any arguments. NAME=CONSTRAINTS limits them: a JSON object of
    /// argument names to constraints, such as 'payments.charge={"amount":{"constraint_type":"range","max":100}}'.
    #[arg(long = "tool", value_name = "NAME[=CONSTRAINTS]")]
    tools: Vec<String>,

    /// A JSON file with an object of tool names to constraints.
    #[arg(long = "tools", value_name = "FILE")]
    tools_file: Option<PathBuf>,

    /// A service that may accept the token (repeatable). Default: every service that trusts the issuer.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    audience: Vec<String>,

    /// Lifetime of the token: a whole number and s, m, h or d. Default: one hour. A derived token never outlives its
    /// parent.
    #[arg(long, value_name = "SPAN", value_parser = clock::span)]
    ttl: Option<Duration>,

    /// The greatest depth of tokens derived from this one; a root has depth 0. Default: no token can be derived from
    /// it.
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,

    /// The token's id. Default: a new UUIDv7.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,

    /// The holder's client certificate for mutual TLS: a PEM or DER file, or its SHA-256 digest in hexadecimal or
    /// base64url.
    #[arg(long, value_name = "CERTIFICATE")]
    holder_certificate: Option<String>,

    /// The SPIFFE ID of the holder's client certificates for mutual TLS, such as
    /// spiffe://cluster.local/ns/pay/sa/agent. Sufficient for rules with `peer_validated: true`; other rules also need
    /// --holder-certificate.
    #[arg(long, value_name = "ID")]
    holder_spiffe_id: Option<String>,

    /// Time of issue, in seconds since the Unix epoch. Default: now.
    #[arg(long, value_name = "UNIX", value_parser = clock::unix_seconds, allow_negative_numbers = true)]
    pub(crate) issued_at: Option<i64>,
}

impl GrantOptions {
    /// The grant that the options describe, with these tools, for a token below `parent` or for a root.
    pub(crate) fn grant(&self, tools: Value, parent: Option<&Claimed>) -> Result<Grant, Failure> {
        let issued_at = self.issued_at();
        let latest = parent.and_then(|parent| parent.expires_at);
        let expires_at = match (self.ttl, latest) {
            (None, Some(latest)) => issued_at.plus(DEFAULT_TTL.as_secs()).min(latest),
            (ttl, _) => issued_at.plus(ttl.unwrap_or(DEFAULT_TTL).as_secs()),
        };
        let depth = parent.map_or(0, |parent| parent.depth.unwrap_or_default().saturating_add(1));
        let id = self.id.clone().map_or_else(|| random::id(issued_at), Ok)?;
        check_name("--id", &id)?;
        clock::warn_if_far_off(self.issued_at);
        Ok(Grant {
            id,
            issued_at,
            expires_at,
            holder: keys::public_key(&self.holder)?,
            holder_certificate: self.holder_certificate.as_deref().map(certificate_digest).transpose()?,
            holder_spiffe_id: self.holder_spiffe_id.clone(),
            audience: self.audience.clone(),
            max_depth: self.max_depth.unwrap_or(depth),
            tools,
        })
    }

    /// When the token is issued.
    pub(crate) fn issued_at(&self) -> UnixTime {
        self.issued_at.map_or_else(clock::now, UnixTime)
    }

    /// The tools of `--tool` and `--tools` together; `None` if neither was given.
    pub(crate) fn tools(&self) -> Result<Option<Value>, Failure> {
        let mut members: Vec<(String, Value)> = Vec::new();
        if let Some(path) = &self.tools_file {
            let place = format!("the tools file {}", path.display());
            let text = files::read(path, "a JSON object of tool names to constraints")?;
            members.extend(json_object(&text, &place)?.into_vec());
        }
        for option in &self.tools {
            let (name, constraints) = option.split_once('=').unwrap_or((option, "{}"));
            if name.is_empty() {
                return Err(Failure::input("--tool: the tool has no name; write NAME=CONSTRAINTS"));
            }
            if members.iter().any(|(taken, _)| taken == name) {
                return Err(Failure::input(format!(
                    "the tool \"{name}\" is given twice; name each tool once"
                )));
            }
            let place = format!("--tool {name}");
            let constraints = json_object(constraints.as_bytes(), &place)?;
            members.push((name.to_owned(), Value::Object(constraints)));
        }
        Ok((!members.is_empty()).then(|| Value::object(members)))
    }
}

/// Refuses a name, given as `option`, that is valid but longer than filters accept.
pub(crate) fn check_name(option: &str, name: &str) -> Result<(), Failure> {
    if name.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    Err(Failure::operation(format!(
        "{option} has {} bytes, but filters deny every request with a name of more than {MAX_ID_BYTES}; give a shorter \
         one",
        name.len()
    )))
}

/// The error of mint, derive or prove, with the option to change.
impl From<MintError> for Failure {
    fn from(error: MintError) -> Self {
        let cure = match &error {
            MintError::WouldBeDenied(denial) => cure(denial.step),
            MintError::NotTheHolder { .. } => Some("give --key the private key file of the token's holder"),
            MintError::Parent(_) | MintError::Json(_) => None,
        };
        Self::operation(match cure {
            Some(cure) => format!("{error}; {cure}"),
            None => error.to_string(),
        })
    }
}

/// Which option to change so that the token passes this step.
fn cure(step: Step) -> Option<&'static str> {
    match step {
        // A lifetime of 0 s ends at the time of issue.
        Step::S3e | Step::S3g | Step::S4i | Step::S4l => Some("give a --ttl of at least one second"),
        Step::S3h => Some("give a shorter --ttl: at most 90d"),
        Step::S3i => Some("give a --max-depth from 0 to 8"),
        Step::S3k => Some(
            "give --issuer a URI, such as https://id.example.com, or leave it out: then it is the key's own did:key",
        ),
        Step::S4e => Some("the parent is the end of its chain: nothing can be derived from it"),
        Step::S4f => Some("the chain is as deep as chains may be: derive from a token nearer to the root"),
        Step::S4g | Step::S4m => Some("give a --max-depth from this token's depth to the parent's --max-depth"),
        Step::S4h => Some("give a shorter --ttl: a token does not outlive its parent"),
        Step::S4j => Some("give an --issued-at that is not before the parent's"),
        Step::S3m | Step::S3n | Step::S4n | Step::S4o => Some("correct the constraints of --tool or --tools"),
        Step::S4p1 | Step::S4p2 | Step::S4p3 | Step::S4p4 => {
            Some("grant no more than the parent does: `credence inspect` shows what that is")
        }
        _ => None,
    }
}

/// Reads a JSON object in which all numbers are admissible.
fn json_object(text: &[u8], place: &str) -> Result<Members, Failure> {
    let json = Json::parse(text).map_err(|error| Failure::input(format!("{place}: {error}")))?;
    let object = json
        .as_object()
        .ok_or_else(|| Failure::input(format!("{place}: not a JSON object; write one, such as {{}}")))?;
    Members::from_json(object).map_err(|error| Failure::input(format!("{place}: {error}")))
}

/// SHA-256 of a certificate's DER form (RFC 8705, section 3.1), from a file or given as text.
fn certificate_digest(digest_or_file: &str) -> Result<[u8; 32], Failure> {
    // OpenSSL prints colons between the bytes.
    let hexadecimal = base16ct::mixed::decode_vec(digest_or_file.replace(':', "")).ok();
    let base64 = URL_SAFE_NO_PAD.decode(digest_or_file).ok();
    if let Some(digest) = [hexadecimal, base64]
        .into_iter()
        .flatten()
        .find_map(|digest| digest.try_into().ok())
    {
        return Ok(digest);
    }
    let contents = files::read(Path::new(digest_or_file), "a PEM or DER certificate")?;
    let der = CertificateDer::from_pem_slice(&contents).unwrap_or_else(|_| contents.to_vec().into());
    // A certificate in DER is a SEQUENCE whose length takes two bytes.
    if der.starts_with(&[0x30, 0x82]) {
        return Ok(Sha256::digest(der).into());
    }
    Err(Failure::input(format!(
        "the file {digest_or_file} is neither a PEM nor a DER certificate; give one, or the SHA-256 digest of one in \
         hexadecimal or base64url"
    )))
}

const DEFAULT_TTL: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_certificate_is_given_by_its_digest_or_by_its_file() {
        let mut der = vec![0x30, 0x82, 0x01, 0x00];
        der.extend([7; 256]);
        let digest: [u8; 32] = Sha256::digest(&der).into();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, contents: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, contents).unwrap();
            path.display().to_string()
        };
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(&der)
        );
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let colons = digest
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<Vec<_>>()
            .join(":");
        for given in [
            hex,
            colons,
            URL_SAFE_NO_PAD.encode(digest),
            file("der", &der),
            file("pem", pem.as_bytes()),
        ] {
            assert_eq!(certificate_digest(&given).unwrap(), digest, "{given}");
        }
        assert!(
            certificate_digest(&file("text", b"hello"))
                .unwrap_err()
                .to_string()
                .contains("neither")
        );
    }
}
