//! `credence mint`

use std::io::Write;

use clap::builder::NonEmptyStringValueParser;
use credence_delegation::mint::{self, RootGrant};
use credence_delegation::{Algorithms, Chain, Limits, SigningKey, TrustAnchor, TrustAnchors, VerificationContext};

use crate::failure::{Failure, Outcome};
use crate::grant::{self, GrantOptions};
use crate::keys::{self, DID_KEY};

/// Issue a root token: sign authority over to the holder of a key.
#[derive(Debug, clap::Args)]
pub(crate) struct Mint {
    #[command(flatten)]
    grant: GrantOptions,

    /// The issuer: the URI that verifiers know the signing key by; the key's own did:key if not given.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    issuer: Option<String>,

    /// On whose behalf: the principal's name at the issuer.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    subject: Option<String>,

    /// The principal's present revocation epoch; 0 until something the principal granted was revoked.
    #[arg(long, value_name = "N", value_parser = epoch, allow_negative_numbers = true)]
    epoch: Option<u64>,

    /// What to call the agent in logs. For display only.
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
}

impl Mint {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let tools = self.grant.tools()?.ok_or_else(|| {
            Failure::input("a token grants at least one tool: give --tool NAME[=CONSTRAINTS] or --tools FILE")
        })?;
        if let Some(subject) = &self.subject {
            grant::check_name("--subject", subject)?;
        }
        let key = keys::signing_key(&self.grant.key)?;
        let root = RootGrant {
            grant: self.grant.grant(tools, None)?,
            issuer: self.issuer_of(&key)?,
            subject: self.subject.clone(),
            epoch: self.epoch,
            agent_name: self.agent_name.clone(),
        };
        let token = mint::root(&root, &key, &Limits::default())?;
        check_as_a_verifier_would(&token, &root, &key)?;
        writeln!(out, "{token}")?;
        Ok(Outcome::Done)
    }

    /// The issuer that signs with `key`.
    fn issuer_of(&self, key: &SigningKey) -> Result<String, Failure> {
        let own = key.public().to_did_key();
        match &self.issuer {
            None => Ok(own),
            // Verifiers take the key from the name.
            Some(issuer) if issuer.starts_with(DID_KEY) && *issuer != own => Err(Failure::input(format!(
                "--issuer {issuer}: not the did:key of the key that signs, which is {own}; give that one's key file, or \
                 leave --issuer out"
            ))),
            Some(issuer) => Ok(issuer.clone()),
        }
    }
}

/// Verifies what was minted under an anchor that believes all of it, so that a token is never handed out that no
/// verifier takes: for its subject or its epoch, say.
fn check_as_a_verifier_would(token: &str, root: &RootGrant, key: &SigningKey) -> Result<(), Failure> {
    let anchors = TrustAnchors::new([TrustAnchor {
        issuer: root.issuer.clone(),
        key: key.public(),
        key_id: None,
        algorithms: Algorithms::new([key.algorithm()]),
        asserts_subjects: true,
    }]);
    let limits = &Limits::default();
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits,
        now: root.grant.issued_at,
        hot_keys: None,
    };
    Chain::parse([token], limits)
        .and_then(|chain| chain.verify(&context))
        .map(|_| ())
        .map_err(|denial| {
            let cure = grant::cure(denial.step).unwrap_or("correct the option");
            Failure::operation(format!("the token would be denied: {denial}; {cure}"))
        })
}

/// An epoch: an integer that every JSON parser keeps (RFC 8259, section 6).
fn epoch(text: &str) -> Result<u64, String> {
    let epoch = text.parse().ok().filter(|epoch| *epoch <= MAX_EPOCH);
    epoch.ok_or_else(|| {
        format!("write a whole number from 0 to {MAX_EPOCH}, the one that `credence revoke principal` printed last")
    })
}

/// 2^53-1.
const MAX_EPOCH: u64 = (1 << 53) - 1;
