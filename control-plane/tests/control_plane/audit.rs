//! `AuditService.Report`, and the API that reads records back.

use std::time::Duration;

use credence_wire::v1;
use credence_wire::v1::report_request::Message as ReportMessage;
use serde_json::Value;
use tonic::Code;

use super::harness::{ISSUER, Place, Server, TOKEN, event, events, raise};

#[tokio::test]
async fn acknowledged_evidence_is_read_back_newest_first() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    assert_eq!(welcome.acknowledged, 0);
    reporter.batch(1, events(&["a", "b"])).await;
    assert_eq!(reporter.acknowledged().await, 2);
    assert_eq!(tools(&server).await, ["b", "a"]);
}

#[tokio::test]
async fn acknowledged_evidence_survives_a_crash() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a", "b"])).await;
    reporter.acknowledged().await;
    drop(server);
    let server = place.start().await;
    assert_eq!(tools(&server).await, ["b", "a"]);
    let (_, resumed) = server.report(welcome.ticket).await.unwrap();
    assert_eq!(resumed.acknowledged, 2);
}

#[tokio::test]
async fn entries_sent_again_after_a_reconnect_are_stored_once() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a", "b"])).await;
    reporter.acknowledged().await;
    drop(reporter);
    let (mut reporter, resumed) = server.report(welcome.ticket).await.unwrap();
    assert_eq!(resumed.acknowledged, 2);
    reporter.batch(1, events(&["a", "b"])).await;
    assert_eq!(reporter.acknowledged().await, 2);
    reporter.batch(2, events(&["b", "c"])).await;
    assert_eq!(reporter.acknowledged().await, 3);
    assert_eq!(tools(&server).await, ["c", "b", "a"]);
}

#[tokio::test]
async fn batches_may_be_sent_ahead_of_their_acknowledgements() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    for sequence in 1..=10 {
        reporter.batch(sequence, events(&["a"])).await;
    }
    for sequence in 1..=10 {
        assert_eq!(reporter.acknowledged().await, sequence);
    }
}

#[tokio::test]
async fn a_gap_in_the_sequence_is_refused() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(2, events(&["b"])).await;
    let (code, text) = reporter.refusal().await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("the next one is 1"), "{text}");
    assert!(tools(&server).await.is_empty());
}

#[tokio::test]
async fn a_source_cannot_be_continued_without_its_secret() {
    let place = Place::new();
    let server = place.start().await;
    let (_reporter, welcome) = server.report(None).await.unwrap();
    let mut forged = welcome.ticket.unwrap();
    forged.secret[0] ^= 1;
    let Err(refused) = server.report(Some(forged)).await else {
        panic!("a forged ticket was accepted")
    };
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_newer_stream_of_a_source_ends_the_older_one() {
    let place = Place::new();
    let server = place.start().await;
    let (mut older, welcome) = server.report(None).await.unwrap();
    let (mut newer, _) = server.report(welcome.ticket).await.unwrap();
    assert_eq!(older.refusal().await.0, Code::Aborted);
    newer.batch(1, events(&["a"])).await;
    assert_eq!(newer.acknowledged().await, 1);
}

#[tokio::test]
async fn a_batch_over_the_announced_limits_is_refused() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            config.evidence.batch.entries = 2;
            config.evidence.batch.bytes = 65_536;
        })
        .await;
    let too_many = events(&["a", "b", "c"]);
    let too_large = vec![event(&"x".repeat(70_000))];
    let beyond_decoding = vec![event(&"x".repeat(200_000))];
    for batch in [too_many, too_large, beyond_decoding] {
        let (mut reporter, welcome) = server.report(None).await.unwrap();
        assert_eq!((welcome.max_batch_entries, welcome.max_batch_bytes), (2, 65_536));
        reporter.batch(1, batch).await;
        assert_eq!(reporter.refusal().await.0, Code::ResourceExhausted);
    }
    assert!(tools(&server).await.is_empty());
}

#[tokio::test]
async fn an_entry_of_an_unknown_kind_is_refused_and_not_silently_dropped() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, vec![event("a"), v1::Entry { entry: None }]).await;
    let (code, text) = reporter.refusal().await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("entry 2"), "{text}");
}

#[tokio::test]
async fn an_event_beyond_what_filters_send_is_refused_by_its_number() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    let mut many_ids = event("b");
    let Some(v1::entry::Entry::Event(event_of_many_ids)) = &mut many_ids.entry else {
        panic!()
    };
    event_of_many_ids.delegation_ids = vec![String::new(); 31_000];
    reporter.batch(1, vec![event("a"), many_ids]).await;
    let (code, text) = reporter.refusal().await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("entry 2"), "{text}");
    assert!(tools(&server).await.is_empty());
}

#[tokio::test]
async fn streams_whose_batches_do_not_fit_the_memory_together_wait_for_each_other() {
    let place = Place::new();
    let server = place.start_with(|config| config.evidence.ingest_bytes = 1 << 20).await;
    let mut reporters = Vec::new();
    for _ in 0..4 {
        let (reporter, _) = server.report(None).await.unwrap();
        reporter.batch(1, vec![event("a"); 1000]).await;
        reporters.push(reporter);
    }
    for mut reporter in reporters {
        assert_eq!(reporter.acknowledged().await, 1000);
    }
}

#[tokio::test]
async fn a_source_that_says_bye_has_ended() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    reporter.say(ReportMessage::Bye(v1::Bye {})).await;
    assert_eq!(reporter.acknowledged().await, 1);
    assert_eq!(reporter.refusal().await.0, Code::Ok);
    assert_eq!(changes(&server).await, ["ended", "started"]);
    let Err(refused) = server.report(welcome.ticket).await else {
        panic!("an ended source went on")
    };
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_source_that_does_not_come_back_ended_with_its_tail_unknown() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.evidence.source_grace = Duration::from_millis(50))
        .await;
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    reporter.acknowledged().await;
    drop(reporter);
    wait_for_change(&server, "ended, tail unknown").await;
    let (_reporter, resumed) = server.report(welcome.ticket).await.unwrap();
    assert_eq!(resumed.acknowledged, 1);
    assert_eq!(changes(&server).await, ["returned", "ended, tail unknown", "started"]);
}

#[tokio::test]
async fn a_source_whose_server_crashed_is_awaited_by_the_next_one() {
    let place = Place::new();
    let server = place.start().await;
    let _reporter = server.report(None).await.unwrap();
    drop(server);
    let server = place
        .start_with(|config| config.evidence.source_grace = Duration::from_millis(50))
        .await;
    wait_for_change(&server, "ended, tail unknown").await;
}

#[tokio::test]
async fn a_full_ledger_refuses_evidence_says_so_and_does_not_touch_revocations() {
    let place = Place::new();
    let server = place.start_with(|config| config.evidence.ledger.total = 2000).await;
    assert_eq!(server.get("/readyz", &[]).await.status, 200);
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, vec![event(&"x".repeat(1000)); 3]).await;
    let (code, text) = reporter.refusal().await;
    assert_eq!(code, Code::Unavailable);
    assert!(text.contains("--ledger-bytes"), "{text}");
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text.contains("evidence is refused"), "{}", ready.text);
    server.revoke(raise("alice")).await;
}

#[tokio::test]
async fn a_damaged_ledger_refuses_evidence_says_so_and_does_not_touch_revocations() {
    let place = Place::new();
    let server = place.start().await;
    let config = place.config();
    server.running.shutdown().await;
    std::fs::remove_file(config.data_dir.join("ledger/keys")).unwrap();
    let server = place.start().await;
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text.contains("ledger/keys"), "{}", ready.text);
    let refused = server.report(None).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("damaged"), "{refused}");
    // A query must not answer "no records" about a damaged ledger.
    for path in ["/v1/audit/events", "/v1/audit/events/0", "/v1/audit/stream"] {
        let answer = server.get_with(path, &[("last-event-id", "0")]).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text);
        assert!(answer.text.contains("ledger/keys"), "{}", answer.text);
    }
    server.revoke(raise("alice")).await;
}

#[tokio::test]
async fn a_planned_stop_acknowledges_the_entries_it_accepted() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    assert_eq!(reporter.acknowledged().await, 1);
    let stopping = tokio::spawn(server.running.shutdown());
    assert_eq!(reporter.refusal().await.0, Code::Unavailable);
    stopping.await.unwrap();
    assert_eq!(tools(&place.start().await).await, ["a"]);
}

#[tokio::test]
async fn aggregates_and_gaps_are_kinds_of_their_own() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    let aggregate = v1::Aggregate {
        second: 1_800_000_000,
        reason: "malformed".to_owned(),
        count: 9,
        decision: v1::Decision::Deny.into(),
        ..Default::default()
    };
    let gap = v1::Gap {
        shed: 3,
        ..Default::default()
    };
    let entries = [v1::entry::Entry::Aggregate(aggregate), v1::entry::Entry::Gap(gap)]
        .map(|entry| v1::Entry { entry: Some(entry) });
    reporter.batch(1, entries.to_vec()).await;
    reporter.acknowledged().await;
    let found = server.events("?limit=2").await;
    assert_eq!((&found[0]["kind"], &found[0]["shed"]), (&"gap".into(), &3.into()));
    assert_eq!(
        (&found[1]["kind"], &found[1]["count"]),
        (&"aggregate".into(), &9.into())
    );
    assert_eq!(found[1]["time"], "2027-01-15T08:00:00Z");
}

#[tokio::test]
async fn a_chain_that_was_presented_before_is_shown_by_its_digest_and_not_as_another() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    let chain = v1::Entry {
        entry: Some(v1::entry::Entry::Chain(v1::PresentedChain {
            chain: b"a~b".to_vec(),
            principal: None,
        })),
    };
    reporter.batch(1, vec![chain.clone(), chain]).await;
    reporter.acknowledged().await;
    let found = server.events("?kind=chain").await;
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["chain_digest"], found[1]["chain_digest"]);
    assert_eq!((found[0].get("chain"), found[1]["chain"].as_str()), (None, Some("a~b")));
    let digest = found[0]["chain_digest"].as_str().unwrap();
    let itself = server.events(&format!("?chain_digest={digest}")).await;
    assert_eq!(itself, [found[1].clone()]);
}

#[tokio::test]
async fn events_are_found_by_their_members_and_paged() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["pay", "read", "pay"])).await;
    reporter.acknowledged().await;
    assert_eq!(server.events("?tool=pay").await.len(), 2);
    assert_eq!(
        server
            .events("?principal_subject=alice&decision=allow&delegation_id=leaf")
            .await
            .len(),
        3
    );
    assert_eq!(server.events("?principal_subject=bob").await.len(), 0);

    let authorization = format!("Bearer {TOKEN}");
    let first = server
        .get("/v1/audit/events?limit=2&tool=pay", &[&authorization])
        .await
        .json();
    let sequences = |page: &Value| -> Vec<u64> {
        page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["sequence"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(sequences(&first), [3, 1]);
    let next = first["next"].as_u64().unwrap();
    let second = server
        .get(&format!("/v1/audit/events?before={next}"), &[&authorization])
        .await
        .json();
    assert_eq!(
        (second["events"][0]["kind"].as_str(), &second["next"]),
        (Some("source"), &Value::Null)
    );
}

#[tokio::test]
async fn every_condition_narrows_the_answer() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    let decision = v1::Event {
        time_unix_nano: 1_800_000_000_000_000_000,
        agent: "thumbprint".to_owned(),
        rule: "payments".to_owned(),
        reason: "tool_not_allowed".to_owned(),
        decision: v1::Decision::Deny.into(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        chain_digest: vec![0xab; 32],
        response_status: 403,
        ..Default::default()
    };
    let chain = v1::PresentedChain {
        chain: b"root~leaf".to_vec(),
        principal: Some(v1::Principal {
            issuer: ISSUER.to_owned(),
            subject: Some("alice".to_owned()),
        }),
    };
    let counted = v1::Aggregate {
        second: 1_800_000_000,
        rule: "payments".to_owned(),
        reason: "malformed".to_owned(),
        count: 2,
        decision: v1::Decision::Deny.into(),
        ..Default::default()
    };
    let entries = [
        v1::entry::Entry::Event(decision),
        v1::entry::Entry::Chain(chain),
        v1::entry::Entry::Aggregate(counted),
    ]
    .map(|entry| v1::Entry { entry: Some(entry) });
    reporter.batch(1, entries.to_vec()).await;
    reporter.acknowledged().await;
    // Chains are shown on request.
    for (query, expected) in [
        ("", &["aggregate", "decision", "source"][..]),
        ("?agent=thumbprint", &["decision"]),
        ("?agent=another", &[]),
        ("?trace_id=4bf92f3577b34da6a3ce929d0e0e4736", &["decision"]),
        ("?reason=malformed", &["aggregate"]),
        ("?decision=deny&rule=payments", &["aggregate", "decision"]),
        ("?decision=allow", &[]),
        ("?kind=chain", &["chain"]),
        ("?kind=source", &["source"]),
        (
            "?from=2027-01-15T08:00:00Z&until=2027-01-15T08:00:00.000000001Z",
            &["aggregate", "decision"],
        ),
        ("?until=2027-01-15T08:00:00Z&kind=decision", &[]),
    ] {
        let kinds: Vec<_> = server
            .events(query)
            .await
            .iter()
            .map(|event| event["kind"].clone())
            .collect();
        assert_eq!(kinds, expected, "{query}");
    }
    let chain = &server.events("?kind=chain").await[0];
    let digest = chain["chain_digest"].as_str().unwrap();
    assert_eq!(&server.events(&format!("?chain_digest={digest}")).await[0], chain);
    assert_eq!(chain["chain"], "root~leaf");

    let authorization = format!("Bearer {TOKEN}");
    let one = server.get("/v1/audit/events/1", &[&authorization]).await.json();
    assert_eq!(
        (&one["kind"], &one["response_status"]),
        (&"decision".into(), &403.into())
    );
    assert_eq!(one["chain_digest"], "ab".repeat(32));
    for (index, status) in [
        ("2", 200),
        ("4", 404),
        ("18446744073709551615", 404),
        ("x", 400),
        ("+1", 400),
    ] {
        let answer = server
            .get(&format!("/v1/audit/events/{index}"), &[&authorization])
            .await;
        assert_eq!(answer.status, status, "{index}");
    }
}

/// The tools of all stored decisions.
async fn tools(server: &Server) -> Vec<String> {
    texts(server, "tool").await
}

/// The changes of sources.
async fn changes(server: &Server) -> Vec<String> {
    texts(server, "change").await
}

async fn texts(server: &Server, field: &str) -> Vec<String> {
    server
        .events("")
        .await
        .iter()
        .filter_map(|event| event[field].as_str().map(str::to_owned))
        .collect()
}

async fn wait_for_change(server: &Server, expected: &str) {
    let found = async {
        while !changes(server).await.iter().any(|change| change == expected) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), found).await.unwrap();
}
