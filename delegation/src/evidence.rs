//! Verifies recorded chains again, in bulk.
//!
//! The question about a recorded chain is not whether it is valid now, but whether it ever was, and when. So it is
//! verified at the last second before its first token expires. A caller that knows the time of use compares it with
//! [`VerifiedChain::issued_at`] and [`VerifiedChain::expires_at`].
//!
//! The signatures of all chains of a call are verified in batches; [`crate::batch`] explains how that changes which are
//! accepted. All other checks are section 8 of the draft, chain by chain.

use crate::anchor::TrustAnchors;
use crate::batch::Batch;
use crate::chain::{Chain, VerificationContext};
use crate::denial::{Cause, Denial, Step};
use crate::key::{Algorithms, HotKeys};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::verified::VerifiedChain;

/// Verifies recorded chains under these anchors.
///
/// It caches decoded keys (up to 65,536 of them, about 20 MB), since the same agents and issuers recur. Use one for
/// each thread.
#[derive(Debug)]
pub struct EvidenceVerifier<'c> {
    anchors: &'c TrustAnchors,
    limits: Limits,
    holder_algorithms: Algorithms,
    keys: HotKeys,
    batch: Batch,
}

impl<'c> EvidenceVerifier<'c> {
    /// Verifies under these anchors. All other settings are those of the most permissive enforcement point
    /// ([`Limits::WIDEST`], every algorithm for derived tokens), so that the result never contradicts a stricter one.
    pub fn new(anchors: &'c TrustAnchors) -> Self {
        Self {
            anchors,
            limits: Limits::WIDEST,
            holder_algorithms: Algorithms::all(),
            keys: HotKeys::new(KEYS),
            batch: Batch::default(),
        }
    }

    /// For each chain, with tokens joined by `~`: whether it was ever valid, and if so, the result of `keep`. The
    /// answers are in the order of the chains. Chains with thousands of signatures in total make full batches.
    pub fn verify<'a, T>(
        &mut self,
        chains: impl IntoIterator<Item = &'a str>,
        keep: impl Fn(VerifiedChain) -> T,
    ) -> Vec<Result<T, Denial>> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut answers = Vec::new();
        // The chain of each signature in the batch.
        let mut chain_of: Vec<(usize, &'a str)> = Vec::new();
        for joined in chains {
            if batch.is_full() {
                self.settle(&mut batch, &mut chain_of, &mut answers);
            }
            let before = batch.len();
            let answer = self.verify_structure(joined, &mut batch);
            if answer.is_err() {
                // Its deferred signatures are irrelevant now.
                batch.truncate(before);
            }
            chain_of.resize(batch.len(), (answers.len(), joined));
            answers.push(answer.map(&keep));
        }
        self.settle(&mut batch, &mut chain_of, &mut answers);
        self.batch = batch;
        // The anchors of issuers with several keys.
        self.keys.prepare(1);
        answers
    }

    /// Verifies the signatures in the batch, and empties it.
    fn settle<T>(&self, batch: &mut Batch, chain_of: &mut Vec<(usize, &str)>, answers: &mut [Result<T, Denial>]) {
        for bad in batch.find_bad() {
            if let Some(&(place, joined)) = chain_of.get(bad)
                && let Some(answer) = answers.get_mut(place)
                && answer.is_ok()
            {
                // A signature that is bad alone fails here too. In every case, the chain has not verified.
                let denial = self.verify_alone(joined).err();
                *answer = Err(denial.unwrap_or(Step::S4b.deny(Cause::SignatureInvalid)));
            }
        }
        batch.clear();
        chain_of.clear();
    }

    fn verify_structure(&self, joined: &str, batch: &mut Batch) -> Result<VerifiedChain, Denial> {
        let chain = Chain::parse_joined(joined, &self.limits)?;
        let context = self.context(&chain, Some(&self.keys));
        // If the batch fails, the first failure may be a signature before the one that failed here.
        chain
            .verify_deferring_signatures(&context, batch)
            .or_else(|_| self.verify_alone(joined))
    }

    /// As for a decision, except for the time.
    fn verify_alone(&self, joined: &str) -> Result<VerifiedChain, Denial> {
        let chain = Chain::parse_joined(joined, &self.limits)?;
        chain.verify(&self.context(&chain, None))
    }

    fn context<'v>(&'v self, chain: &Chain<'_>, hot_keys: Option<&'v HotKeys>) -> VerificationContext<'v> {
        VerificationContext {
            anchors: self.anchors,
            holder_algorithms: &self.holder_algorithms,
            limits: &self.limits,
            // Without `exp`, the chain fails at any time.
            now: chain.last_second().unwrap_or(UnixTime(0)),
            hot_keys,
        }
    }
}

/// Tables for keys of anchors. Sixteen times as many keys are kept decoded.
const KEYS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use crate::key::SigningKey;
    use crate::mint::{self, Grant, RootGrant};
    use crate::value::Value;
    use crate::{TrustAnchor, chain_digest};

    const ISSUER: &str = "https://id.example";

    fn key(number: u8) -> SigningKey {
        SigningKey::from_seed(&[number; 32])
    }

    fn anchors(keys: &[u8]) -> TrustAnchors {
        TrustAnchors::new(keys.iter().map(|&number| TrustAnchor {
            issuer: ISSUER.to_owned(),
            key: key(number).public(),
            key_id: None,
            algorithms: Algorithms::default(),
            asserts_subjects: true,
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
        }))
    }

    fn grant(id: String, holder: u8) -> Grant {
        let tools = br#"{"pay":{},"read":{}}"#;
        Grant {
            id,
            // Long ago: it has expired today.
            issued_at: UnixTime(1_000_000),
            expires_at: UnixTime(1_003_600),
            holder: key(holder).public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: Vec::new(),
            max_depth: 8,
            tools: Value::from_json(&Json::parse(tools).unwrap()).unwrap(),
        }
    }

    /// A chain of `tokens` tokens. The holder of each has the key one above its signer's.
    fn chain(number: usize, tokens: u8) -> String {
        let limits = Limits::default();
        let root = RootGrant {
            grant: grant(format!("{number}-0"), 2),
            issuer: ISSUER.to_owned(),
            subject: Some("alice".to_owned()),
            epoch: None,
            agent_name: None,
        };
        let mut made = vec![mint::root(&root, &key(1), &limits).unwrap()];
        for depth in 1..tokens {
            let grant = grant(format!("{number}-{depth}"), depth + 2);
            made.push(mint::derive(made.last().unwrap(), &grant, &key(depth + 1), &limits).unwrap());
        }
        made.join("~")
    }

    /// Replaces the signature of the token at this place by the signature of another message.
    fn with_bad_signature(joined: &str, place: usize) -> String {
        let mut tokens: Vec<String> = joined.split('~').map(str::to_owned).collect();
        let (input, _) = tokens[place].rsplit_once('.').unwrap();
        let signer = u8::try_from(place).unwrap() + 1;
        tokens[place] = format!("{input}.{}", crate::base64url::encode(key(signer).sign(b"another")));
        tokens.join("~")
    }

    fn steps(verifier: &mut EvidenceVerifier<'_>, chains: &[String]) -> Vec<Option<Step>> {
        let answers = verifier.verify(chains.iter().map(String::as_str), |_| ());
        answers
            .into_iter()
            .map(|answer| answer.err().map(|denial| denial.step))
            .collect()
    }

    #[test]
    fn chains_that_were_once_valid_are_valid_and_keep_is_called() {
        let chains: Vec<String> = (0..40).map(|number| chain(number, (number % 4) as u8 + 1)).collect();
        let anchors = anchors(&[1]);
        let kept = EvidenceVerifier::new(&anchors).verify(chains.iter().map(String::as_str), |chain| {
            (chain.digest(), chain.issued_at(), chain.expires_at())
        });
        for (joined, kept) in chains.iter().zip(kept) {
            let (digest, from, to) = kept.unwrap();
            assert_eq!(digest, chain_digest(joined));
            assert_eq!((from, to), (UnixTime(1_000_000), UnixTime(1_003_600)));
        }
    }

    #[test]
    fn exactly_the_bad_chains_are_found_with_their_step() {
        let mut chains: Vec<String> = (0..60).map(|number| chain(number, 3)).collect();
        chains[7] = with_bad_signature(&chains[7], 0);
        chains[8] = with_bad_signature(&chains[8], 2);
        chains[30] = "not a token".to_owned();
        chains[41] = format!(
            "{}~{}",
            chains[40].split_once('~').unwrap().0,
            chains[41].split_once('~').unwrap().1
        );
        let anchors = anchors(&[1]);
        let found = steps(&mut EvidenceVerifier::new(&anchors), &chains);
        for (place, step) in found.iter().enumerate() {
            let expected = match place {
                7 => Some(Step::S3b),
                8 => Some(Step::S4b),
                30 => Some(Step::S2c),
                41 => Some(Step::S4q),
                _ => None,
            };
            assert_eq!(*step, expected, "{place}");
        }
    }

    #[test]
    fn a_bad_signature_before_a_bad_claim_fails_first() {
        let other = chain(2, 2);
        let broken = format!("{}~{}", chain(1, 1), other.split_once('~').unwrap().1);
        let anchors = anchors(&[1]);
        let mut verifier = EvidenceVerifier::new(&anchors);
        assert_eq!(steps(&mut verifier, std::slice::from_ref(&broken)), [Some(Step::S4q)]);
        assert_eq!(
            steps(&mut verifier, &[with_bad_signature(&broken, 0)]),
            [Some(Step::S3b)]
        );
    }

    #[test]
    fn the_right_key_of_several_is_found() {
        let anchors = anchors(&[9, 1]);
        let mut verifier = EvidenceVerifier::new(&anchors);
        let chains = [chain(1, 2), with_bad_signature(&chain(2, 2), 0)];
        assert_eq!(steps(&mut verifier, &chains), [None, Some(Step::S3b)]);
    }

    #[test]
    fn without_an_anchor_no_chain_is_valid() {
        let anchors = TrustAnchors::default();
        assert_eq!(
            steps(&mut EvidenceVerifier::new(&anchors), &[chain(1, 1)]),
            [Some(Step::S3k)]
        );
    }
}
