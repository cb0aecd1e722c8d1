//! Flips a bit of the data folder while no control plane runs. The next start must refuse the folder and name the file,
//! or answer every question as without the flip, also after further writes and another start. It may answer that it
//! does not know (a 5xx, or a history marked incomplete), but never anything else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use credence_control_plane::Config;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use serde_json::{Value, json};

use super::compaction::compactions;
use super::harness::{ISSUER, Place, Server, delegation, event, raise};
use super::provider::{create, patch, realm, scim, set_active, settings};
use super::security_events::{SESSION_REVOKED, Signer, claims, publish, push, transmitter};

/// A control plane's answers, by question.
type Answers = BTreeMap<String, Answer>;

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Is(Value),
    /// A 5xx: it does not know.
    Unknown,
    /// Newest first: complete, or marked incomplete.
    History {
        entries: Vec<Value>,
        is_complete: bool,
    },
}

/// A folder with data of every kind, as a process left it.
struct World {
    place: Place,
    signer: Signer,
    /// A processed security event.
    taken: String,
    ticket: v1::SourceTicket,
    users: Vec<String>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    expected: Answers,
}

/// How the process ended that wrote the folder.
#[derive(Debug, Clone, Copy)]
enum End {
    Stopped,
    Killed,
}

/// The result of a start on a changed folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// With this message, which names a file.
    Refused(String),
    AnsweredAsBefore,
}

impl World {
    async fn begin(end: End, compacted: bool) -> Self {
        let (place, signer) = (Place::new(), Signer::new());
        publish(&place, &signer);
        let settings = config(&place);
        let server = place
            .start_with(|config| {
                settings(config);
                if compacted {
                    config.log.compact_above_bytes = 256;
                }
            })
            .await;
        for subject in ["alice", "bob", "alice", "many"] {
            server.revoke(raise(subject)).await;
        }
        server
            .revoke(json!({"principal": {"issuer": ISSUER, "subject": "bob"}, "action": "disable", "reason": "left"}))
            .await;
        server.revoke(json!({"key": {"thumbprint": KEY}})).await;
        server
            .revoke(json!({"issuer": {"issuer": "https://old.example.com", "issued_up_to": 1_700_000_000}}))
            .await;
        server.revoke(delegation("stolen")).await;
        let mut users = Vec::new();
        for user in ["carol", "dave"] {
            users.push(create(&server, user).await);
        }
        patch(&server, &users[0], set_active(false)).await.expect(200);
        let taken = signer.token(&claims("taken", SESSION_REVOKED));
        push(&server, &taken).await.expect(202);
        let (mut reporter, welcome) = server.report(None).await.unwrap();
        reporter.batch(1, vec![event("read"), event("write")]).await;
        reporter.acknowledged().await;
        if compacted {
            let begun = Instant::now();
            while compactions(&server).await == 0.0 {
                assert!(begun.elapsed() < Duration::from_secs(30), "it is not compacted");
                server.revoke(raise("many")).await;
            }
        }
        let mut world = Self {
            place,
            signer,
            taken,
            ticket: welcome.ticket.unwrap(),
            users,
            files: BTreeMap::new(),
            expected: Answers::new(),
        };
        world.expected = world.answers(&server).await;
        match end {
            End::Stopped => server.running.shutdown().await,
            End::Killed => {
                // Until the log is sealed, and the index of histories is durable.
                tokio::time::sleep(Duration::from_secs(3)).await;
                world.files = read_all(&world.place.path(""));
                drop(server);
            }
        }
        if matches!(end, End::Stopped) {
            world.files = read_all(&world.place.path(""));
        }
        world.restore();
        let unchanged = world.try_folder().await;
        assert_eq!(unchanged, Ok(Verdict::AnsweredAsBefore), "without a flip");
        world.restore();
        world
    }

    fn restore(&self) {
        let folder = self.place.path("");
        for path in read_all(&folder).keys().filter(|path| !self.files.contains_key(*path)) {
            std::fs::remove_file(folder.join(path)).unwrap();
        }
        for (path, bytes) in &self.files {
            self.write(path, bytes);
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) {
        let path = self.place.path("").join(path);
        if std::fs::read(&path).ok().as_deref() != Some(bytes) {
            // Replaces the file: a dropped process may still write to the old one.
            let _ = std::fs::remove_file(&path);
            std::fs::write(path, bytes).unwrap();
        }
    }

    /// Flips a bit, and restores all files afterwards.
    async fn judge_flip(&self, path: &Path, bit: usize) -> Result<Verdict, String> {
        let mut bytes = self.files[path].clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.write(path, &bytes);
        let verdict = self.try_folder().await;
        self.restore();
        verdict.map_err(|wrong| format!("{}, bit {bit}: {wrong}", path.display()))
    }

    /// Starts on the folder as it is, asks, writes, starts once more and asks again.
    async fn try_folder(&self) -> Result<Verdict, String> {
        for round in ["at once", "after further writes and a restart"] {
            let server = match self.place.try_start(config(&self.place)).await {
                Ok(server) => server,
                Err(error) => return names_a_file(&error.to_string()),
            };
            judge(&self.expected, &self.answers(&server).await).map_err(|wrong| format!("{round}: {wrong}"))?;
            let later = server.try_revoke(raise("later")).await;
            if !later.is_committed() {
                return Err(format!("{round}: {}", later.text));
            }
            let user = json!({"userName": format!("user {round}"), "active": true});
            scim(&server, "POST", "/Users", Some(user)).await;
            let mut event = claims(round, SESSION_REVOKED);
            event["sub_id"]["sub"] = "later".into();
            push(&server, &self.signer.token(&event)).await;
            server.running.shutdown().await;
        }
        Ok(Verdict::AnsweredAsBefore)
    }

    async fn answers(&self, server: &Server) -> Answers {
        let mut answers = Answers::new();
        let mut add = |question: &str, answer: Answer| {
            answers.insert(question.to_owned(), answer);
        };
        let mut watcher = server.watch(None).await;
        let welcome = watcher.welcome().await;
        add("announced lifetime", Answer::Is(welcome.max_token_lifetime_s.into()));
        let mut records = Vec::new();
        for index in 0..welcome.snapshot.unwrap().chunks {
            records.extend(watcher.pull(index).await.records);
        }
        let mut snapshot: Vec<_> = records
            .iter()
            .filter(|record| is_known(record))
            .map(|r| format!("{r:?}"))
            .collect();
        snapshot.sort();
        add("snapshot", Answer::Is(json!(snapshot)));
        let log = server.get_with("/v1/log", &[]).await;
        add("log_id", answer_of(log.status, || log.json()["log_id"].clone()));
        for (subject, more) in [
            ("alice", format!("&key={KEY}")),
            ("alice", "&id=stolen".to_owned()),
            ("alice", "&id=another".to_owned()),
            ("bob", String::new()),
            ("carol", String::new()),
            ("dave", String::new()),
        ] {
            let path = format!(
                "/v1/delegations/status?issuer={ISSUER}&subject={subject}&epoch=0&issued_at=1900000000&id=x{more}"
            );
            let status = server.get_with(&path.replace("&id=x&id", "&id"), &[]).await;
            add(
                &path,
                answer_of(status.status, || {
                    json!([status.json()["status"], status.json()["reason"]])
                }),
            );
        }
        for subject in ["alice", "bob", "carol", "dave", "unknown"] {
            let path = format!("/v1/principals?issuer={ISSUER}&subject={subject}");
            let answer = server.get_with(&path, &[]).await;
            if answer.status >= 500 {
                add(&path, Answer::Unknown);
                continue;
            }
            let body = answer.json();
            // The replayed event is about alice: if it were accepted, alice would be raised again.
            add(
                &format!("{path}, in force"),
                Answer::Is(json!([body["epoch"], body["disabled_by"], body["seq"]])),
            );
            let entries = body["history"].as_array().unwrap().clone();
            let is_complete = body["history_complete_from"].is_null();
            add(&path, Answer::History { entries, is_complete });
        }
        for (index, user) in ["carol", "dave"].into_iter().enumerate() {
            let id = &self.users[index];
            for path in [
                format!("/Users/{id}"),
                format!("/Users?filter=userName%20eq%20%22{user}%22"),
                format!("/Users?filter=externalId%20eq%20%22ext-{user}%22"),
            ] {
                let found = scim(server, "GET", &path, None).await;
                add(&path, answer_of(found.status, || found.json()));
            }
        }
        for tool in ["read", "write"] {
            let path = format!("/v1/audit/events?tool={tool}");
            let found = server.get_with(&path, &[]).await;
            add(&path, answer_of(found.status, || found.json()["events"].clone()));
        }
        // A ticket is valid only with its own source key.
        let resumed = match server.report(Some(self.ticket.clone())).await {
            Ok((_, welcome)) => Answer::Is(welcome.acknowledged.into()),
            Err(status) if status.code() == tonic::Code::Unavailable => Answer::Unknown,
            Err(status) => Answer::Is(status.code().to_string().into()),
        };
        add("evidence acknowledged so far", resumed);
        let before = server.get_with("/v1/log", &[]).await.json()["seq"].clone();
        let replayed = push(server, &self.taken).await;
        let after = server.get_with("/v1/log", &[]).await.json()["seq"].clone();
        add(
            "a replayed event is carried out again",
            Answer::Is(json!(before != after)),
        );
        add(
            "a replayed event",
            answer_of(replayed.status, || replayed.status.into()),
        );
        answers
    }
}

/// Leaves out records written after the answers to compare with.
fn is_known(record: &v1::Record) -> bool {
    match &record.subject {
        Some(Subject::Principal(state)) => {
            let principal = state.principal.as_ref().unwrap();
            // The events of `try_folder` are about alice.
            !matches!(principal.subject.as_deref(), Some("later" | "alice"))
                && !principal
                    .subject
                    .as_deref()
                    .is_some_and(|subject| subject.starts_with("user "))
        }
        _ => true,
    }
}

fn config(place: &Place) -> impl Fn(&mut Config) + use<> {
    let mut parts = transmitter(place, json!({"max_age_s": 604_800}));
    parts
        .as_object_mut()
        .unwrap()
        .extend(realm("userName").as_object().unwrap().clone());
    let settings = settings(parts);
    move |config| config.settings = settings.clone()
}

fn answer_of(status: u16, body: impl FnOnce() -> Value) -> Answer {
    match status {
        500.. => Answer::Unknown,
        200..300 => Answer::Is(body()),
        other => Answer::Is(json!({ "status": other })),
    }
}

/// Whether every answer is as expected.
fn judge(expected: &Answers, found: &Answers) -> Result<(), String> {
    for (question, expected) in expected {
        let found = found.get(question).unwrap_or(&Answer::Unknown);
        let is_right = match (expected, found) {
            (_, Answer::Unknown) => true,
            (
                Answer::History { entries, .. },
                Answer::History {
                    entries: found,
                    is_complete,
                },
            ) => match is_complete {
                true => entries == found,
                false => found.iter().all(|entry| entries.contains(entry)),
            },
            (expected, found) => expected == found,
        };
        if !is_right {
            return Err(format!("{question}: {found:?} instead of {expected:?}"));
        }
    }
    Ok(())
}

fn names_a_file(refusal: &str) -> Result<Verdict, String> {
    let names = ["log/", "identity/", "ledger/", "otlp/"]
        .iter()
        .any(|folder| refusal.contains(folder));
    match names {
        true => Ok(Verdict::Refused(refusal.to_owned())),
        false => Err(format!("the refusal names no file: {refusal}")),
    }
}

/// Every file below the folder, by its relative path. The lock's contents do not matter.
fn read_all(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "lock") {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The most bits to flip in each file.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// In a small file that decides the state: those in `log/`.
    of_state: usize,
    /// In every other small file.
    of_small: usize,
    /// In the nonempty parts of a large file.
    of_large: usize,
}

impl Sample {
    fn bits(self, path: &Path, bytes: &[u8], random: &mut Random) -> Vec<usize> {
        if bytes.len() > SMALL {
            let parts = bytes.chunks(PART).enumerate();
            let filled: Vec<_> = parts.filter(|(_, part)| part.iter().any(|byte| *byte != 0)).collect();
            if filled.is_empty() {
                return vec![random.below(bytes.len() * 8)];
            }
            return (0..self.of_large)
                .map(|_| {
                    let (part, bytes) = filled[random.below(filled.len())];
                    part * PART * 8 + random.below(bytes.len() * 8)
                })
                .collect();
        }
        let count = match path.starts_with("log") {
            true => self.of_state,
            false => self.of_small,
        };
        let all = bytes.len() * 8;
        match count < all {
            true => (0..count).map(|_| random.below(all)).collect(),
            false => (0..all).collect(),
        }
    }
}

/// Returns how many starts were refused and how many were not.
async fn flip(world: &World, sample: Sample) -> (usize, usize) {
    let mut random = Random(0x5EED);
    let (mut refused, mut answered) = (0, 0);
    let mut wrong = Vec::new();
    for (path, bytes) in &world.files {
        for bit in sample.bits(path, bytes, &mut random) {
            match world.judge_flip(path, bit).await {
                Ok(Verdict::Refused(_)) => refused += 1,
                Ok(Verdict::AnsweredAsBefore) => answered += 1,
                Err(error) => wrong.push(error),
            }
        }
    }
    let tried = refused + answered + wrong.len();
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    (refused, answered)
}

/// The size in bytes up to which a file is small.
const SMALL: usize = 512;
const PART: usize = 512;

/// Xorshift: the same bits in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_refused_or_changes_no_answer() {
    let world = World::begin(End::Stopped, false).await;
    let sample = Sample {
        of_state: 20,
        of_small: 1,
        of_large: 1,
    };
    let (refused, answered) = flip(&world, sample).await;
    assert!(
        refused > 0 && answered > 0,
        "{refused} refused, {answered} answered as before"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make soak runs it"]
async fn every_bit_of_the_small_files_and_many_of_the_large_ones_are_refused_or_change_no_answer() {
    for (end, compacted) in [
        (End::Stopped, false),
        (End::Killed, false),
        (End::Stopped, true),
        (End::Killed, true),
    ] {
        let world = World::begin(end, compacted).await;
        let sample = Sample {
            of_state: usize::MAX,
            of_small: 40,
            of_large: 60,
        };
        let (refused, answered) = flip(&world, sample).await;
        #[allow(clippy::print_stdout, reason = "the test prints its counts")]
        {
            println!("{end:?}, compacted {compacted}: {refused} refused, {answered} answered as before");
        }
        assert!(refused > 0 && answered > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_judge_of_flipped_bits_notices_every_kind_of_wrong_answer() {
    let world = World::begin(End::Stopped, false).await;
    // Damage that no checksum detects: the clock is years ahead, so revocations are forgotten.
    let ahead = world.place.clock() + 3 * 365 * 86_400;
    world.place.set_clock(ahead);
    let wrong = world.try_folder().await.unwrap_err();
    assert!(wrong.contains("snapshot"), "{wrong}");

    for (question, expected) in &world.expected {
        let mut planted = world.expected.clone();
        let other = match expected {
            Answer::History { entries, .. } if !entries.is_empty() => Answer::History {
                entries: entries[1..].to_vec(),
                is_complete: true,
            },
            Answer::History { .. } => Answer::History {
                entries: vec![json!({"seq": 1})],
                is_complete: false,
            },
            _ => Answer::Is(json!("something else")),
        };
        planted.insert(question.clone(), other);
        assert!(judge(&world.expected, &planted).is_err(), "{question}");
        planted.insert(question.clone(), Answer::Unknown);
        assert_eq!(judge(&world.expected, &planted), Ok(()), "{question}");
    }
}

const KEY: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
