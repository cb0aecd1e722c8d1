//! Verifies again what filters allowed: finds a lying source once, and does not accuse honest ones.

use credence_control_plane::{Config, TrustAnchorSettings};
use credence_delegation::json::Json;
use credence_delegation::mint::{self, Grant, RootGrant};
use credence_delegation::{Limits, SigningKey, UnixTime, Value, chain_digest};
use credence_wire::v1;

use super::harness::{ISSUER, Place, Server};

const IAT: i64 = 1_790_000_000;
const EXP: i64 = IAT + 3_600;

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// Trusts the issuer's key 1.
fn trusting(config: &mut Config) {
    let jwk = key(1).public().to_jwk();
    let json = format!(r#"{{"issuer": "{ISSUER}", "jwk": {jwk}, "asserts_subjects": true}}"#);
    let anchor: TrustAnchorSettings = serde_json::from_str(&json).unwrap();
    config.settings.trust_anchors = vec![anchor];
}

/// A root for alice, signed by this issuer key, held by agent 3.
fn chain(issuer: u8) -> String {
    let grant = Grant {
        id: "root".to_owned(),
        issued_at: UnixTime(IAT),
        expires_at: UnixTime(EXP),
        holder: key(3).public(),
        holder_certificate: None,
        holder_spiffe_id: None,
        audience: Vec::new(),
        max_depth: 8,
        tools: Value::from_json(&Json::parse(br#"{"pay":{}}"#).unwrap()).unwrap(),
    };
    let root = RootGrant {
        grant,
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
        epoch: None,
        agent_name: None,
    };
    mint::root(&root, &key(issuer), &Limits::default()).unwrap()
}

fn alice() -> v1::Principal {
    v1::Principal {
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
    }
}

fn presented(chain: &str) -> v1::Entry {
    let presented = v1::PresentedChain {
        chain: chain.as_bytes().to_vec(),
        principal: Some(alice()),
    };
    v1::Entry {
        entry: Some(v1::entry::Entry::Chain(presented)),
    }
}

/// An allow of the tool under the chain, as a filter reports it.
fn allowed(chain: &str, tool: &str) -> v1::Entry {
    let event = v1::Event {
        time_unix_nano: (IAT as u64 + 60) * 1_000_000_000,
        tool: tool.to_owned(),
        decision: v1::Decision::Allow.into(),
        mode: v1::Mode::Enforce.into(),
        principal: Some(alice()),
        agent: key(3).public().thumbprint().to_string(),
        proof: v1::ProofKind::Pop.into(),
        delegation_ids: vec!["root".to_owned()],
        expires_at: EXP,
        chain_digest: chain_digest(chain).to_vec(),
        ..Default::default()
    };
    v1::Entry {
        entry: Some(v1::entry::Entry::Event(event)),
    }
}

/// Waits until this many allows had this outcome.
async fn checked(server: &Server, outcome: &str, count: u64) {
    let name = "credence_ledger_allows_checked_total";
    server
        .wait_for(&format!("{name}{{outcome=\"{outcome}\"}} {count}"))
        .await;
}

async fn mismatches(server: &Server) -> Vec<String> {
    let notes = server.events("?kind=note").await;
    notes.iter().map(|note| note.to_string()).collect()
}

#[tokio::test]
async fn an_allow_that_its_delegation_does_not_grant_is_reported_once() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let honest = chain(1);
    let (mut honestly, _) = server.report(None).await.unwrap();
    honestly
        .batch(
            1,
            vec![presented(&honest), allowed(&honest, "pay"), allowed(&honest, "pay")],
        )
        .await;
    honestly.acknowledged().await;
    checked(&server, "matched", 2).await;
    assert!(mismatches(&server).await.is_empty());

    let (mut lying, welcome) = server.report(None).await.unwrap();
    lying
        .batch(
            1,
            vec![
                presented(&honest),
                allowed(&honest, "delete"),
                allowed(&honest, "delete"),
            ],
        )
        .await;
    lying.acknowledged().await;
    server
        .wait_for("credence_ledger_mismatches_total{kind=\"tool\"} 2")
        .await;
    let liar = welcome.ticket.unwrap().source;
    let [note] = mismatches(&server).await.try_into().unwrap();
    assert!(note.contains(&liar) && note.contains("tool: "), "{note}");
    checked(&server, "matched", 2).await;
}

#[tokio::test]
async fn an_allow_under_a_forged_delegation_is_reported() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let forged = chain(9);
    let (mut lying, _) = server.report(None).await.unwrap();
    lying.batch(1, vec![presented(&forged), allowed(&forged, "pay")]).await;
    lying.acknowledged().await;
    server
        .wait_for("credence_ledger_mismatches_total{kind=\"chain\"} 1")
        .await;
    let [note] = mismatches(&server).await.try_into().unwrap();
    assert!(note.contains("3b"), "{note}");
}

#[tokio::test]
async fn it_continues_after_a_crash_with_chains_from_before() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let honest = chain(1);
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter
        .batch(1, vec![presented(&honest), allowed(&honest, "pay")])
        .await;
    reporter.acknowledged().await;
    checked(&server, "matched", 1).await;
    drop(server);
    let server = place.start_with(trusting).await;
    let (mut reporter, _) = server.report(welcome.ticket).await.unwrap();
    reporter
        .batch(3, vec![allowed(&honest, "pay"), allowed(&honest, "delete")])
        .await;
    reporter.acknowledged().await;
    server
        .wait_for("credence_ledger_mismatches_total{kind=\"tool\"} 1")
        .await;
    checked(&server, "matched", 1).await;
    assert_eq!(mismatches(&server).await.len(), 1);
}

#[tokio::test]
async fn without_trust_anchors_nothing_is_verified_and_the_metric_says_so() {
    let place = Place::new();
    let server = place.start().await;
    server.wait_for("credence_ledger_unchecked_records -1").await;
}
