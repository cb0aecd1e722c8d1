//! `credence revoke`

use std::io::Write;

use credence_delegation::{Revocation, Thumbprint, UnixTime};
use serde::Serialize;
use serde_json::json;

use crate::chain_text::{self, ChainText, Claimed};
use crate::confirmation::{Answer, AnswerOptions};
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::principal_name::PrincipalName;
use crate::statement::StatementOptions;
use crate::{clock, keys, terminal};

/// Revoke a principal's grants, a key, an issuer's root tokens or a delegation.
///
/// Returns once the revocation is confirmed: no filter allows a revoked request any more. Exit code 1 means that this
/// is not certain; the message says whether the revocation is durable.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Revoke {
    Principal(Principal),
    Key(Key),
    Issuer(Issuer),
    Delegation(Delegation),
}

/// Revoke everything granted so far on a principal's behalf, by raising the principal's epoch.
#[derive(Debug, clap::Args)]
pub(crate) struct Principal {
    #[command(flatten)]
    principal: PrincipalName,

    /// Also deny later grants, until --enable.
    #[arg(long, conflicts_with = "enable")]
    disable: bool,

    /// Undo --disable. Earlier grants stay revoked.
    #[arg(long)]
    enable: bool,

    /// With --sign-with: the present epoch, to raise from. If the epoch has changed, the statement has no effect.
    #[arg(long, value_name = "N", requires = "sign_with", conflicts_with_all = ["disable", "enable"])]
    epoch: Option<u64>,

    #[command(flatten)]
    options: RevocationOptions,
}

/// Revoke every chain that contains a key, as a trust anchor's or as a holder's.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// The key: its thumbprint, its did:key, its JWK, or the file of its JWK.
    #[arg(long, value_name = "KEY")]
    key: String,

    /// With --sign-with: the issuer that the key belongs to. Default: the signing key's own did:key.
    #[arg(long, value_name = "URI", requires = "sign_with")]
    issuer: Option<String>,

    #[command(flatten)]
    options: RevocationOptions,
}

/// Revoke all root tokens of an issuer that were issued up to a time, and within the allowed skew (30s) after it.
#[derive(Debug, clap::Args)]
pub(crate) struct Issuer {
    /// The issuer's URI.
    #[arg(long, value_name = "URI")]
    issuer: String,

    /// The last revoked second, in seconds since the Unix epoch. Default: now.
    #[arg(long, value_name = "UNIX", value_parser = log_seconds, allow_negative_numbers = true)]
    issued_up_to: Option<i64>,

    #[command(flatten)]
    options: RevocationOptions,
}

/// Revoke one token and everything derived from it.
///
/// With --chain or --under, other tokens with the same id stay valid.
#[derive(Debug, clap::Args)]
pub(crate) struct Delegation {
    #[arg(long, value_name = "CHAIN", help = chain_text::HELP, conflicts_with_all = ["issuer", "subject", "id"])]
    chain: Option<String>,

    /// The position of the token in the chain, from the root, as `credence inspect` counts. Default: the last.
    #[arg(long, value_name = "N", requires = "chain")]
    token: Option<usize>,

    /// The issuer of the chain's root token.
    #[arg(long, value_name = "URI", required_unless_present = "chain")]
    issuer: Option<String>,

    /// The principal's name in the chain's root token.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// The token's id (`jti`).
    #[arg(long, value_name = "ID", required_unless_present = "chain")]
    id: Option<String>,

    /// The id of a token above it, once for each, root first. Without it, the id is revoked in every chain of the
    /// principal.
    #[arg(long, value_name = "ID", conflicts_with = "chain")]
    under: Vec<String>,

    #[command(flatten)]
    options: RevocationOptions,
}

/// How to send a revocation, and how to print the answer.
#[derive(Debug, clap::Args)]
struct RevocationOptions {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    statement: StatementOptions,

    /// The reason, for the principal's history and the control plane's log: 1 to 512 bytes.
    #[arg(long, value_name = "TEXT", conflicts_with = "sign_with")]
    reason: Option<String>,

    #[command(flatten)]
    answer: AnswerOptions,
}

/// The body of `POST /v1/revocations`.
#[derive(Debug, Serialize)]
struct Request<'a, T> {
    #[serde(flatten)]
    request: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Revoke {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Principal(principal) => principal.run(out),
            Self::Key(key) => key.run(out),
            Self::Issuer(issuer) => issuer.run(out),
            Self::Delegation(delegation) => delegation.run(out),
        }
    }
}

impl Principal {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let action = match (self.disable, self.enable) {
            (true, _) => "disable",
            (false, true) => "enable",
            (false, false) => "raise",
        };
        let name = &self.principal;
        let request = json!({"principal": name, "action": action});
        let done = match action {
            "disable" => format!("disabled {name}: all present and later grants of the principal are denied"),
            "enable" => format!("enabled {name}: new grants are valid again"),
            _ => format!("revoked everything granted so far by {name}"),
        };
        let stated = || {
            let from = self.epoch.filter(|_| action == "raise").ok_or_else(|| {
                Failure::input("a statement raises an epoch, and only from the present one: give --epoch, and neither --disable nor --enable")
            })?;
            Ok((name.clone(), Revocation::Epoch(from)))
        };
        self.options.revoke(&done, &[(String::new(), request)], stated, out)
    }
}

impl Key {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let thumbprint = match Thumbprint::parse(&self.key) {
            Some(thumbprint) => thumbprint,
            None => keys::public_key(&self.key)?.thumbprint(),
        };
        let request = json!({"key": {"thumbprint": thumbprint.to_string()}});
        let done = format!("revoked the key {thumbprint}");
        let stated = || {
            let issuer = match &self.issuer {
                Some(issuer) => issuer.clone(),
                None => self.options.statement.own_issuer()?,
            };
            Ok((issuer_alone(issuer), Revocation::Key(thumbprint)))
        };
        self.options.revoke(&done, &[(String::new(), request)], stated, out)
    }
}

impl Issuer {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let up_to = self.issued_up_to.map_or_else(clock::now, UnixTime);
        let request = json!({"issuer": {"issuer": self.issuer, "issued_up_to": up_to.0}});
        let issuer = terminal::printable(&self.issuer);
        let done = format!(
            "revoked every root token that {issuer} issued up to {}",
            clock::rfc3339(up_to)
        );
        let stated = || Ok((issuer_alone(self.issuer.clone()), Revocation::IssuedUntil(up_to)));
        self.options.revoke(&done, &[(String::new(), request)], stated, out)
    }
}

impl Delegation {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let (principals, under, id) = match &self.chain {
            Some(chain) => in_chain(&ChainText::read(chain)?, self.token)?,
            None => {
                // Without a chain, clap requires an issuer and an id.
                let issuer = self.issuer.clone().unwrap_or_default();
                let subject = self.subject.clone();
                let principal = PrincipalName { issuer, subject };
                (vec![principal], self.under.clone(), self.id.clone().unwrap_or_default())
            }
        };
        let done = format!("revoked the delegation {} of ", terminal::printable(&id));
        let request = |principal: &PrincipalName| {
            let mut delegation = json!(principal);
            delegation["id"] = json!(id);
            if !under.is_empty() {
                delegation["under"] = json!(under);
            }
            (principal.to_string(), json!({ "delegation": delegation }))
        };
        let requests: Vec<_> = principals.iter().map(request).collect();
        let stated = || {
            let by = principals.last().ok_or_else(|| missing("iss"))?;
            Ok((by.clone(), Revocation::Delegation { under, id }))
        };
        self.options.revoke(&done, &requests, stated, out)
    }
}

/// A delegation in a chain, as the log names it: its principals, the ids of the tokens above it, root first, and its
/// own.
///
/// A root's `sub` names a principal only if the trust anchor asserts subjects, which this command cannot know. It
/// revokes the id under both readings, so that the revocation always has an effect.
fn in_chain(chain: &ChainText, number: Option<usize>) -> Result<(Vec<PrincipalName>, Vec<String>, String), Failure> {
    let root = Claimed::read(chain.root())?;
    let tokens = chain.tokens().count();
    let number = number.unwrap_or(tokens);
    if !(1..=tokens).contains(&number) {
        return Err(Failure::input(format!(
            "--token {number}: the chain's tokens are numbered from 1 to {tokens}"
        )));
    }
    let mut under = Vec::new();
    for token in chain.tokens().take(number) {
        under.push(Claimed::read(token)?.id.ok_or_else(|| missing("jti"))?);
    }
    let alone = issuer_alone(root.issuer.ok_or_else(|| missing("iss"))?);
    let named = root.subject.map(|subject| PrincipalName {
        subject: Some(subject),
        ..alone.clone()
    });
    let id = under.pop().ok_or_else(|| missing("jti"))?;
    Ok(([Some(alone), named].into_iter().flatten().collect(), under, id))
}

impl RevocationOptions {
    /// Makes a revocation, by request or by statement, and prints `done` with the principals.
    ///
    /// Each request is a principal's name and the members that say what is revoked. A statement carries the last revocation: an issuer that asserts
    /// subjects has the principal in `sub`; otherwise there is no `sub`.
    fn revoke(
        &self,
        done: &str,
        requests: &[(String, impl Serialize)],
        stated: impl FnOnce() -> Result<(PrincipalName, Revocation), Failure>,
        out: &mut impl Write,
    ) -> Result<Outcome, Failure> {
        let mut answers = Vec::new();
        if self.statement.sign_with.is_some() {
            let (by, revocation) = stated()?;
            let statement = self.statement.sign(&by, revocation)?;
            if self.statement.print {
                writeln!(out, "{statement}")?;
                return Ok(Outcome::Done);
            }
            let client = self.control_plane.anonymous_client()?;
            let answer = client.state(&statement, "committed")?;
            // The sender of a statement cannot query the progress. Sending it again has no effect, and returns the
            // progress.
            answers.push(self.answer.confirmed(answer, |_| client.state(&statement, "applied"))?);
        } else {
            let client = self.control_plane.client()?;
            for (_, request) in requests {
                let reason = self.reason.as_deref();
                let answer = self
                    .answer
                    .post(&client, &json!(Request { request, reason }).to_string());
                answers.push(answer.map_err(|failure| half_done(failure, requests, answers.len()))?);
            }
        }
        if self.answer.json {
            for answer in &answers {
                writeln!(out, "{}", answer.text.trim())?;
            }
            return Ok(Outcome::Done);
        }
        let answered = requests.iter().skip(requests.len() - answers.len()).zip(&answers);
        let named: Vec<_> = answered
            .map(|((whose, _), answer)| format!("{whose}{}", answer.position()))
            .collect();
        // When the last entry is confirmed, the earlier ones are too.
        let filters = answers.last().map_or_else(String::new, Answer::filters);
        writeln!(out, "{done}{}{filters}", named.join(" and of "))?;
        Ok(Outcome::Done)
    }
}

/// An issuer that is its own principal.
fn issuer_alone(issuer: String) -> PrincipalName {
    let subject = None;
    PrincipalName { issuer, subject }
}

fn missing(claim: &str) -> Failure {
    Failure::input(format!("the chain has no \"{claim}\" claim to name it by"))
}

/// Adds to the failure which of several requests succeeded.
fn half_done(failure: Failure, requests: &[(String, impl Serialize)], done: usize) -> Failure {
    let (done, open) = requests.split_at(done);
    let done = match done {
        [] if open.len() == 1 => return failure,
        [] => "nothing".to_owned(),
        done => format!("that of {}", names(done)),
    };
    Failure::operation(format!(
        "{failure}. Revoked: {done}; not known to be revoked: that of {}. Repeat the command: this is harmless",
        names(open)
    ))
}

fn names(requests: &[(String, impl Serialize)]) -> String {
    let names: Vec<_> = requests.iter().map(|(whose, _)| whose.as_str()).collect();
    names.join(" and of ")
}

/// A time in the range of the revocation log.
fn log_seconds(text: &str) -> Result<i64, String> {
    clock::unix_seconds_up_to(i64::from(u32::MAX), text)
}
