//! A grant's code and refresh tokens.

use super::*;
use crate::store::Store;
use credence_runtime::metrics::Counters;
use credence_storage::folder_lock::FolderLock;

const NOW: u64 = 1_800_000_000;

struct Scene {
    _folder: tempfile::TempDir,
    _lock: FolderLock,
    store: Store,
    grants: Grants,
    id: Uuid,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path(), None).unwrap();
        let store = Store::open(folder.path(), lock.watch(&[]).unwrap(), |transaction| {
            Grants::prepare(transaction)?;
            events::prepare(transaction)
        })
        .unwrap();
        let grants = Grants::new(store.clone(), "https://issuer.example", Counters::default());
        let id = Uuid::now_v7();
        assert!(grants.begin(id, grant(), 3).await.unwrap());
        Self {
            _folder: folder,
            _lock: lock,
            store,
            grants,
            id,
        }
    }

    fn presented(&self, by: Credential) -> Presented {
        Presented {
            grant: self.id,
            client: "planner".to_owned(),
            by,
            proved: Some("key 1".to_owned()),
            is_public: true,
            token_seconds: 600,
            now: NOW + 10,
        }
    }

    async fn redeem(&self, presented: Presented) -> Result<(String, u32), Refusal> {
        let issued = self.grants.redeem(presented).await.unwrap();
        issued.map(|issued| (issued.id, issued.refresh))
    }

    async fn refresh(&self, number: u32) -> Result<u32, Refusal> {
        let redeemed = self.redeem(self.presented(Credential::Refresh(number))).await;
        redeemed.map(|(_, refresh)| refresh)
    }

    fn reasons(&self) -> Vec<String> {
        let events = events::oldest(&self.store, 100).unwrap();
        let reason = |event: &[u8]| {
            let text = String::from_utf8(event.to_vec()).unwrap();
            text.split(r#""reason":""#)
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .to_owned()
        };
        events.iter().map(|(_, event)| reason(event)).collect()
    }
}

fn grant() -> Grant {
    Grant {
        subject: "ada".to_owned(),
        client: "planner".to_owned(),
        client_name: "Planner".to_owned(),
        tools: RawValue::from_string(r#"{"read":{}}"#.to_owned()).unwrap(),
        audience: ["https://orders.example".to_owned()].into(),
        depth: 0,
        bearer: false,
        token_seconds: 300,
        rules: ["read".to_owned()].into(),
        scope: None,
        epochs: Epochs { own: 0, provider: 0 },
        granted_at: NOW,
        expires_at: NOW + 3_600,
        code: Code {
            challenge: "challenge".to_owned(),
            redirect_uri: Some("https://planner.example/cb".to_owned()),
            dpop_jkt: None,
            expires_at: NOW + 60,
        },
        refresh: (0, 0),
        bound_to: None,
        tokens: 0,
        live: Vec::new(),
        withdrawn: None,
    }
}

fn code() -> Credential {
    Credential::Code {
        challenge: "challenge".to_owned(),
        redirect_uri: Some("https://planner.example/cb".to_owned()),
    }
}

#[tokio::test]
async fn a_code_gives_one_token_and_its_second_use_ends_the_grant() {
    let scene = Scene::new().await;
    let (id, refresh) = scene.redeem(scene.presented(code())).await.unwrap();
    assert_eq!((id, refresh), (format!("{}.1", scene.id), 1));
    assert_eq!(scene.redeem(scene.presented(code())).await, Err(Refusal::Reused));
    assert_eq!(scene.refresh(1).await, Err(Refusal::Withdrawn));
    assert_eq!(scene.reasons(), ["granted", "withdrawn_after_reuse"]);
    let unrevoked = |after| scene.grants.unrevoked(after).unwrap();
    assert_eq!(
        unrevoked(Uuid::nil()),
        (vec![scene.id], 1),
        "the log has to revoke the token"
    );
    assert_eq!(unrevoked(scene.id), (vec![], 1), "those after it");
    assert_eq!(scene.grants.find(scene.id).unwrap().unwrap().live.len(), 1);
    scene.grants.mark_revoked(scene.id).await.unwrap();
    assert_eq!(unrevoked(Uuid::nil()), (vec![], 0));
}

#[tokio::test]
async fn a_code_counts_only_for_who_asked_for_it_and_only_for_a_minute() {
    let scene = Scene::new().await;
    let presented = |change: &dyn Fn(&mut Presented)| {
        let mut presented = scene.presented(code());
        change(&mut presented);
        presented
    };
    let code = |challenge: &str, uri: Option<&str>| Credential::Code {
        challenge: challenge.to_owned(),
        redirect_uri: uri.map(str::to_owned),
    };
    for (wrong, expected) in [
        (presented(&|one| one.client = "other".to_owned()), Refusal::OtherClient),
        (
            presented(&|one| one.by = code("other", Some("https://planner.example/cb"))),
            Refusal::Mismatch,
        ),
        (presented(&|one| one.by = code("challenge", None)), Refusal::Mismatch),
        (
            presented(&|one| one.by = code("challenge", Some("https://evil.example"))),
            Refusal::Mismatch,
        ),
        (presented(&|one| one.now = NOW + 60), Refusal::Unknown),
        (presented(&|one| one.grant = Uuid::now_v7()), Refusal::Unknown),
        (presented(&|one| one.by = Credential::Refresh(1)), Refusal::Unknown),
        (presented(&|one| one.by = Credential::Refresh(0)), Refusal::Unknown),
    ] {
        assert_eq!(scene.redeem(wrong.clone()).await, Err(expected), "{wrong:?}");
    }
    // None of that has ended the grant, and after its use, only its owner's second use does.
    scene.redeem(scene.presented(self::code())).await.unwrap();
    let stolen = presented(&|one| one.by = code("other", Some("https://planner.example/cb")));
    assert_eq!(scene.redeem(stolen).await, Err(Refusal::Mismatch));
    assert_eq!(scene.refresh(1).await, Ok(2));
}

#[tokio::test]
async fn policy_can_shorten_the_life_of_tokens() {
    let scene = Scene::new().await;
    let shorter = Presented {
        token_seconds: 60,
        ..scene.presented(code())
    };
    let issued = scene.grants.redeem(shorter).await.unwrap().unwrap();
    assert_eq!(issued.expires_at - issued.issued_at, 60);
}

#[test]
fn evidence_has_room_for_what_an_event_says() {
    let rules = (0..64).map(|number| format!("{number:0>100}")).collect();
    let many = Grant {
        rules,
        tools: RawValue::from_string(format!(
            r#"{{"read":{{"a":{{"constraint_type":"exact","value":"{}"}}}}}}"#,
            "x".repeat(3_900)
        ))
        .unwrap(),
        ..grant()
    };
    let event = many.event(Kind::Granted, "https://issuer.example", Uuid::now_v7());
    assert!((900..=1_024).contains(&event.rule.len()), "{}", event.rule.len());
    let event = serde_json::to_string(&event).unwrap();
    assert!(event.contains("xxx") && event.len() < 6_000);
}

#[tokio::test]
async fn refresh_tokens_rotate_and_a_lost_answer_costs_nothing() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    assert_eq!(scene.refresh(1).await, Ok(2));
    // The answer was lost, or two were asked for at once.
    assert_eq!(scene.refresh(1).await, Ok(2));
    assert_eq!(scene.refresh(2).await, Ok(3));
    assert_eq!(scene.refresh(1).await, Err(Refusal::Reused));
    assert_eq!(scene.refresh(3).await, Err(Refusal::Withdrawn));
    assert_eq!(scene.reasons(), ["granted", "withdrawn_after_reuse"]);
}

#[tokio::test]
async fn a_refresh_token_is_sent_again_within_a_minute_or_the_grant_ends() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    assert_eq!(scene.refresh(1).await, Ok(2));
    let again = |now| Presented {
        now,
        ..scene.presented(Credential::Refresh(1))
    };
    assert_eq!(scene.redeem(again(NOW + 10 + REPEAT_SECONDS)).await.unwrap().1, 2);
    let late = scene.redeem(again(NOW + 11 + REPEAT_SECONDS)).await;
    assert_eq!(late, Err(Refusal::Reused));
    assert_eq!(scene.refresh(2).await, Err(Refusal::Withdrawn));
}

#[tokio::test]
async fn a_refresh_token_that_was_used_twice_by_different_parties_ends_the_grant() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    assert_eq!(scene.refresh(1).await, Ok(2));
    assert_eq!(scene.refresh(2).await, Ok(3));
    assert_eq!(scene.refresh(1).await, Err(Refusal::Reused));
    assert_eq!(scene.refresh(3).await, Err(Refusal::Withdrawn));
}

#[tokio::test]
async fn a_public_clients_refresh_token_is_bound_to_its_key() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    for proved in [None, Some("key 2".to_owned())] {
        let stolen = Presented {
            proved,
            ..scene.presented(Credential::Refresh(1))
        };
        assert_eq!(scene.redeem(stolen).await, Err(Refusal::OtherKey));
    }
    assert_eq!(scene.refresh(1).await, Ok(2));
}

#[tokio::test]
async fn no_more_than_eight_tokens_of_a_grant_live_at_once() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    for number in 1..8 {
        assert_eq!(scene.refresh(number).await, Ok(number + 1));
    }
    assert_eq!(scene.refresh(8).await, Err(Refusal::TooMany));
    let later = Presented {
        now: NOW + 400,
        ..scene.presented(Credential::Refresh(8))
    };
    scene.redeem(later).await.unwrap();
}

#[tokio::test]
async fn a_token_never_outlives_its_grant() {
    let scene = Scene::new().await;
    scene.redeem(scene.presented(code())).await.unwrap();
    let late = Presented {
        now: NOW + 3_590,
        ..scene.presented(Credential::Refresh(1))
    };
    let issued = scene.grants.redeem(late.clone()).await.unwrap().unwrap();
    assert_eq!(issued.expires_at, NOW + 3_600);
    let too_late = Presented {
        now: NOW + 3_600,
        by: Credential::Refresh(2),
        ..late
    };
    assert_eq!(scene.redeem(too_late).await, Err(Refusal::Unknown));
}

#[tokio::test]
async fn only_the_person_and_the_client_can_end_a_grant() {
    let scene = Scene::new().await;
    for owner in [Owner::Person("bob".to_owned()), Owner::Client("other".to_owned())] {
        assert!(!scene.grants.withdraw(scene.id, owner, NOW).await.unwrap());
    }
    assert!(
        scene
            .grants
            .withdraw(scene.id, Owner::Person("ada".to_owned()), NOW)
            .await
            .unwrap()
    );
    assert_eq!(scene.redeem(scene.presented(code())).await, Err(Refusal::Withdrawn));
    assert_eq!(scene.reasons(), ["granted", "withdrawn_by_person"]);
}

#[tokio::test]
async fn one_person_has_a_limited_number_of_grants_which_are_forgotten_after_their_end() {
    let scene = Scene::new().await;
    for _ in 0..2 {
        assert!(scene.grants.begin(Uuid::now_v7(), grant(), 3).await.unwrap());
    }
    assert!(!scene.grants.begin(Uuid::now_v7(), grant(), 3).await.unwrap());
    let bobs = Grant {
        subject: "bob".to_owned(),
        ..grant()
    };
    assert!(scene.grants.begin(Uuid::now_v7(), bobs, 3).await.unwrap());
    assert_eq!(scene.grants.of("ada", NOW).unwrap().len(), 3);
    let owner = Owner::Person("ada".to_owned());
    assert!(scene.grants.withdraw(scene.id, owner, NOW).await.unwrap());
    assert!(
        scene.grants.begin(Uuid::now_v7(), grant(), 3).await.unwrap(),
        "an ended one does not count"
    );
    assert_eq!(scene.grants.of("ada", NOW).unwrap().len(), 4);
    assert_eq!(scene.grants.forget(NOW).await.unwrap(), 0);
    assert_eq!(
        scene.grants.forget(NOW + 3_600).await.unwrap(),
        1,
        "the one that was taken back"
    );
    assert_eq!(scene.grants.forget(NOW + 3_601).await.unwrap(), 4);
    assert!(
        ["ada", "bob"]
            .iter()
            .all(|subject| scene.grants.of(subject, NOW).unwrap().is_empty())
    );
}

#[tokio::test]
async fn of_a_persons_ended_grants_the_newest_are_kept() {
    let scene = Scene::new().await;
    let ended = |number: u64| Grant {
        granted_at: NOW - 10,
        expires_at: NOW - 1,
        tokens: u32::try_from(number).unwrap(),
        ..grant()
    };
    let first = Uuid::now_v7();
    for number in 0..MAX_ENDED as u64 {
        let id = if number == 0 { first } else { Uuid::now_v7() };
        assert!(scene.grants.begin(id, ended(number), usize::MAX).await.unwrap());
    }
    assert!(scene.grants.find(first).unwrap().is_some());
    assert!(scene.grants.begin(Uuid::now_v7(), grant(), 3).await.unwrap());
    assert!(scene.grants.find(first).unwrap().is_none(), "the oldest was forgotten");
    assert_eq!(scene.grants.of("ada", NOW).unwrap().len(), 2 + MAX_LISTED);
}

#[tokio::test]
async fn refusals_wait_for_the_ledger_up_to_a_limit_and_grants_beyond_it() {
    let scene = Scene::new().await;
    let fill = |transaction: &WriteTransaction| {
        let event = Event::about(Kind::Refused, ("https://issuer.example", "ada"), "planner", None);
        (1..events::MAX_WAITING).try_for_each(|_| events::note(transaction, &event, &Counters::default()))
    };
    scene.store.change(fill).await.unwrap();
    let refusal = || Event::about(Kind::Refused, ("https://issuer.example", "ada"), "planner", None);
    let refused = events::record(&scene.store, refusal(), &Counters::default()).await;
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    assert!(scene.grants.begin(Uuid::now_v7(), grant(), 3).await.unwrap());
    assert_eq!(events::waiting(&scene.store).unwrap(), events::MAX_WAITING + 1);
}
