//! `credence verify`

mod jsonl;

use std::io::{self, Write};

use credence_agent::cases::{Answer, DID_KEY, Policy, Question, RequiredProof, anchor};
use credence_delegation::{Algorithm, Algorithms, TrustAnchor, TrustAnchors, UnixTime};

use crate::chain_text::{self, ChainText};
use crate::failure::{Failure, Outcome};
use crate::invocation::InvocationOptions;
use crate::keys;
use crate::{clock, files, terminal};

/// Decide one use of a chain, as a service without any revocations would; or many, with --jsonl.
///
/// A denial names the step of section 8 of draft-niyikiza-oauth-attenuating-agent-tokens-02 that failed.
///
/// With --jsonl, each line of standard input that is not blank is a case {"id","anchors":[{"iss","jwk"}],"chain":[…],
/// "proof","tool","args":{},"now","audience":[…],"policy":{}}. Its answer is one line of standard output:
/// {"id","decision","step","reason"}.
///
/// An anchor may have "jwks", a JWK set, instead of "jwk", and needs neither if "iss" is a did:key. "policy" may have
/// require_pop_aud, require_chain_aud, nonce, algs (default ["Ed25519"]) and proof ("none": ignore proofs; "pop" or
/// "required": the default). A policy with any other member is denied. Other members of a case are ignored. An anchor
/// that cannot be used is not trusted.
///
/// An anchor with "access_tokens", as in the filter's configuration, signs access tokens; "algs" may then have RS256 and
/// PS256. With proof "dpop", "proof" is a DPoP proof (RFC 9449) for the request {"method","uri"}.
///
/// A line that is not a case is denied without a step and named on standard error; the exit code is then 2. Otherwise
/// it is 0, for any decisions.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// Read cases from standard input, one JSON object on each line.
    #[arg(long, exclusive = true)]
    jsonl: bool,

    #[arg(long, value_name = "CHAIN", help = chain_text::HELP, required_unless_present = "jsonl")]
    chain: Option<String>,

    /// A trust anchor (repeatable): an issuer's URI and its public key, as ISSUER=JWK. JWK is the JWK itself, a JWK
    /// set, or a file of either whose path has no `=`. A did:key needs no JWK.
    #[arg(long = "anchor", value_name = "ISSUER=JWK", required_unless_present = "jsonl")]
    anchors: Vec<String>,

    /// An algorithm of trust anchors' signatures (repeatable).
    #[arg(long = "algorithm", value_name = "ALG", value_parser = algorithm, default_value = "Ed25519")]
    algorithms: Vec<Algorithm>,

    /// An algorithm of holders' signatures (repeatable).
    #[arg(long = "holder-algorithm", value_name = "ALG", value_parser = algorithm, default_value = "Ed25519")]
    holder_algorithms: Vec<Algorithm>,

    /// The tool.
    #[arg(long, value_name = "NAME", required_unless_present = "jsonl")]
    tool: Option<String>,

    #[command(flatten)]
    invocation: InvocationOptions,

    /// The proof: the JWT, @FILE, or - for standard input.
    #[arg(long, value_name = "JWT")]
    proof: Option<String>,

    /// Ignore proofs: any client that has the chain may use it.
    #[arg(long, conflicts_with_all = ["proof", "nonce", "optional_proof_audience"])]
    no_proof: bool,

    /// An identifier of the service (repeatable). Tokens and proofs must be for one of them.
    #[arg(long, value_name = "URI")]
    audience: Vec<String>,

    /// Accept a proof that names no service.
    #[arg(long)]
    optional_proof_audience: bool,

    /// Deny a chain in which no token names a service.
    #[arg(long)]
    require_chain_audience: bool,

    /// The required nonce of the proof.
    #[arg(long, value_name = "NONCE")]
    nonce: Option<String>,

    /// The time of the decision, in seconds since the Unix epoch. Default: now.
    #[arg(long, value_name = "UNIX", value_parser = clock::unix_seconds, allow_negative_numbers = true)]
    now: Option<i64>,

    /// Print the answer as JSON, as --jsonl does.
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        if self.jsonl {
            return jsonl::answer_all(&mut io::stdin().lock(), out);
        }
        let decision = self.question()?.decide();
        let answer = Answer::decided(&decision);
        if self.json {
            writeln!(out, "{}", answer.to_json()?)?;
        } else {
            writeln!(out, "decision: {}", answer.decision)?;
            if let (Some(step), Some(reason)) = (answer.step, &answer.reason) {
                writeln!(out, "step: {step}")?;
                writeln!(out, "reason: {}", terminal::printable(reason))?;
            }
        }
        Ok(if decision.is_ok() {
            Outcome::Done
        } else {
            Outcome::Denied
        })
    }

    fn question(&self) -> Result<Question, Failure> {
        // Without --jsonl, clap requires a chain and a tool.
        let chain = ChainText::read(self.chain.as_deref().unwrap_or_default())?;
        let proof = self.proof.as_deref();
        Ok(Question {
            anchors: self.trust_anchors()?,
            holder_algorithms: Algorithms::new(self.holder_algorithms.iter().copied()),
            chain: chain.tokens().map(str::to_owned).collect(),
            proof: proof
                .map(|proof| files::read_argument(proof, "a proof JWT"))
                .transpose()?,
            tool: self.tool.clone().unwrap_or_default(),
            arguments: self.invocation.arguments()?,
            now: self.now.map_or_else(clock::now, UnixTime),
            audience: self.audience.clone(),
            policy: Policy {
                proof: if self.no_proof {
                    RequiredProof::None
                } else {
                    RequiredProof::Pop
                },
                require_proof_audience: !self.optional_proof_audience,
                require_chain_audience: self.require_chain_audience,
                nonce: self.nonce.clone(),
            },
        })
    }

    fn trust_anchors(&self) -> Result<TrustAnchors, Failure> {
        let algorithms = Algorithms::new(self.algorithms.iter().copied());
        let mut anchors = Vec::new();
        for given in &self.anchors {
            anchors.extend(trust_anchors(given, &algorithms)?);
        }
        Ok(TrustAnchors::new(anchors))
    }
}

/// Reads one `--anchor`.
pub(crate) fn trust_anchors(given: &str, algorithms: &Algorithms) -> Result<Vec<TrustAnchor>, Failure> {
    let parts = issuer_and_jwk(given);
    // Errors repeat the issuer, so it must not be a private key. No URI has these characters (RFC 3986).
    if files::looks_like_a_jwk(parts.map_or(given, |(issuer, _)| issuer)) {
        return Err(Failure::input(
            "--anchor: expected the issuer's URI, but found what looks like a JWK, which is not repeated here; write \
             ISSUER=JWK, with the JWK or its file",
        ));
    }
    let (issuer, keys) = match parts {
        Some((issuer, jwk)) => (issuer, Some(keys::issuer_keys(jwk)?)),
        None if given.starts_with(DID_KEY) => (given, None),
        None => {
            return Err(Failure::input(format!(
                "--anchor {given}: write ISSUER=JWK, with the JWK or its file; only a did:key needs none"
            )));
        }
    };
    let anchors = anchor::anchors(issuer, keys, algorithms)
        .map_err(|error| Failure::input(format!("--anchor {issuer}: {error}")))?;
    let unfit = anchors
        .iter()
        .map(|anchor| &anchor.key)
        .find(|key| !algorithms.iter().any(|algorithm| key.fits(algorithm)));
    match unfit {
        None => Ok(anchors),
        Some(key) => {
            let kind = key.key_type();
            Err(Failure::input(format!(
                "--anchor {issuer}: none of the algorithms fits its {kind} key; add --algorithm {}",
                kind.algorithm()
            )))
        }
    }
}

/// Splits ISSUER=JWK. An issuer's URI and the strings of a JWK may contain a `=`, but a URI contains no `{` (RFC 3986).
fn issuer_and_jwk(anchor: &str) -> Option<(&str, &str)> {
    let (issuer, jwk) = anchor
        .match_indices('=')
        .map(|(place, _)| (&anchor[..place], &anchor[place + 1..]))
        .find(|(_, jwk)| jwk.trim_start().starts_with('{'))
        .or_else(|| anchor.rsplit_once('='))?;
    (!issuer.is_empty() && !jwk.is_empty()).then_some((issuer, jwk))
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.name() == name)
        .ok_or_else(|| format!("write one of {}", Algorithm::ALL.map(Algorithm::name).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_s_issuer_ends_where_its_key_begins() {
        for (anchor, parts) in [
            ("https://i=issuer.pub", Some(("https://i", "issuer.pub"))),
            ("https://i?a=b=issuer.pub", Some(("https://i?a=b", "issuer.pub"))),
            (r#"https://i={"kid":"a="}"#, Some(("https://i", r#"{"kid":"a="}"#))),
            (
                r#"https://i?a=b= {"kid":"={","x":"="}"#,
                Some(("https://i?a=b", r#" {"kid":"={","x":"="}"#)),
            ),
            ("https://i=@issuer.pub", Some(("https://i", "@issuer.pub"))),
            ("https://i", None),
            ("=issuer.pub", None),
            ("https://i=", None),
        ] {
            assert_eq!(issuer_and_jwk(anchor), parts, "{anchor}");
        }
    }
}
