//! The options that say what a new token grants, shared by `mint` and `derive`.

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

/// What a new token grants, to whom, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantOptions {
    /// The private JWK file to sign with.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,

    /// Who shall hold the token: a public JWK, the file of a JWK (of a private one the public half is taken), or a
    /// did:key.
    #[arg(long, value_name = "JWK")]
    holder: String,

    /// A tool to grant (repeatable). NAME alone grants it with any arguments; NAME=CONSTRAINTS with those that a JSON
    /// object of argument names to constraints allows, such as
    /// 'payments.charge={"amount":{"constraint_type":"range","max":100}}'.
    #[arg(long = "tool", value_name = "NAME[=CONSTRAINTS]")]
    tools: Vec<String>,

    /// A JSON file with a whole object of tool names to constraints.
    #[arg(long = "tools", value_name = "FILE")]
    tools_file: Option<PathBuf>,

    /// A service that may accept the token (repeatable); without any, every service that trusts the issuer may.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    audience: Vec<String>,

    /// How long the token is valid: a whole number and s, m, h or d. One hour if not given (and for a derived token
    /// never longer than its parent).
    #[arg(long, value_name = "SPAN", value_parser = clock::span)]
    ttl: Option<Duration>,

    /// The greatest depth that tokens derived from this one may have; a root has depth 0. If not given, nothing can be
    /// derived from the token.
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,

    /// The token's id; a fresh UUIDv7 if not given.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,

    /// The client certificate that the holder shows in mutual TLS: a PEM or DER file, or its SHA-256 digest in
    /// hexadecimal or base64url.
    #[arg(long, value_name = "CERTIFICATE")]
    holder_certificate: Option<String>,

    /// The SPIFFE ID of the client certificates that the holder shows in mutual TLS, such as
    /// spiffe://cluster.local/ns/pay/sa/agent: counts for rules with `peer_validated: true`, and together with
    /// --holder-certificate for all.
    #[arg(long, value_name = "ID")]
    holder_spiffe_id: Option<String>,

    /// When the token is issued, in seconds since the Unix epoch; now if not given.
    #[arg(long, value_name = "UNIX", value_parser = clock::unix_seconds, allow_negative_numbers = true)]
    pub(crate) issued_at: Option<i64>,
}

impl GrantOptions {
    /// The grant that the options describe, with these tools, below a parent or as a root.
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

    /// The tools that `--tool` and `--tools` name together; `None` if neither was given.
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

/// Refuses a name, given as this option, that is valid but longer than what filters take.
pub(crate) fn check_name(option: &str, name: &str) -> Result<(), Failure> {
    if name.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    Err(Failure::operation(format!(
        "{option} has {} bytes, and filters deny every request under a name of more than {MAX_ID_BYTES}; give a \
         shorter one",
        name.len()
    )))
}

/// A refusal to mint, derive or prove, with what to change on the command line.
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

/// What to change about the options so that the token passes this step.
fn cure(step: Step) -> Option<&'static str> {
    match step {
        // The time to expire by is the time of issue.
        Step::S3e | Step::S3g | Step::S4i | Step::S4l => Some("give a --ttl of at least one second"),
        Step::S3h => Some("give a shorter --ttl: at most 90d"),
        Step::S3i => Some("give a --max-depth from 0 to 8"),
        Step::S3k => Some(
            "give --issuer a URI, such as https://id.example.com, or leave it out: then it is the key's own did:key",
        ),
        Step::S4e => Some("the parent is the end of its chain: nothing can be derived from it"),
        Step::S4f => Some("the chain is as deep as chains may be: derive from a token nearer to the root"),
        Step::S4g | Step::S4m => Some("give a --max-depth between this token's own depth and the parent's --max-depth"),
        Step::S4h => Some("give a shorter --ttl: a token does not outlive its parent"),
        Step::S4j => Some("give no --issued-at before the parent's"),
        Step::S3m | Step::S3n | Step::S4n | Step::S4o => Some("correct the constraints of --tool or --tools"),
        Step::S4p1 | Step::S4p2 | Step::S4p3 | Step::S4p4 => {
            Some("grant no more than the parent does: `credence inspect` shows what that is")
        }
        _ => None,
    }
}

/// Reads a JSON object whose numbers are all admissible.
fn json_object(text: &[u8], place: &str) -> Result<Members, Failure> {
    let json = Json::parse(text).map_err(|error| Failure::input(format!("{place}: {error}")))?;
    let object = json
        .as_object()
        .ok_or_else(|| Failure::input(format!("{place}: not a JSON object; write one, such as {{}}")))?;
    Members::from_json(object).map_err(|error| Failure::input(format!("{place}: {error}")))
}

/// SHA-256 of the DER form of a certificate (RFC 8705, section 3.1), from the certificate or written out.
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
    // DER of a certificate is a SEQUENCE, long enough for its length to take two bytes.
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
