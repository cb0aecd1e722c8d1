//! Checks that a control plane, after a power cut, has everything that its clients were told, and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credence_control_plane::ControlPlane;
use credence_ledger::tree::{Frontier, Hash};
use credence_wire::v1::record::Subject;
use serde_json::Value;

use crate::harness::{ISSUER, Server, raise};
use crate::load;

/// What clients were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The latest epoch of each principal.
    epochs: HashMap<String, u64>,
    seq: u64,
    /// The acknowledged sequence number of each source.
    sources: HashMap<String, u64>,
    /// Published checkpoints: size and root.
    checkpoints: BTreeMap<u64, String>,
    erased: Option<Erased>,
    /// Whether an erasure was requested.
    is_erasing: bool,
}

#[derive(Debug)]
struct Erased {
    subject: String,
    /// Records below this index may become unreadable.
    below: u64,
}

// === impl Told ===

impl Told {
    pub(crate) fn of<'a>(marks: impl Iterator<Item = &'a str>) -> Self {
        let mut this = Self::default();
        for mark in marks.filter_map(load::read) {
            let number = |name: &str| mark[name].as_u64().unwrap_or_default();
            let text = |name: &str| mark[name].as_str().map(str::to_owned);
            if let Some(source) = text("source") {
                this.sources.insert(source, number("through"));
            } else if let Some(subject) = text("subject") {
                this.epochs.insert(subject, number("epoch"));
                this.seq = this.seq.max(number("seq"));
            } else if let Some(root) = text("root") {
                this.checkpoints.insert(number("size"), root);
            } else if let Some(subject) = text("erased") {
                this.erased = Some(Erased {
                    subject,
                    below: number("below"),
                });
            } else if text("erasing").is_some() {
                this.is_erasing = true;
            }
        }
        this
    }
}

/// Starts a control plane after a power cut, and checks its state. With `go_on`, it writes more, and the next start is
/// checked too.
pub(crate) fn judge(place: &Path, told: &Told, go_on: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let judged = runtime.block_on(async {
        let server = start(place).await?;
        check(&server, told).await?;
        if !go_on {
            return Ok(());
        }
        let revoked = server.revoke(raise("after the power cut")).await;
        let (mut reporter, welcome) = server.report(None).await.map_err(|error| error.to_string())?;
        let source = welcome.ticket.unwrap().source;
        let entries = (1..=300)
            .map(|sequence| load::entry(&source, sequence, "later"))
            .collect();
        reporter.batch(1, entries).await;
        let through = reporter.acknowledged().await;
        drop((reporter, server));
        let mut more = Told {
            epochs: told.epochs.clone(),
            seq: revoked["seq"].as_u64().unwrap(),
            sources: told.sources.clone(),
            checkpoints: told.checkpoints.clone(),
            erased: None,
            is_erasing: told.is_erasing,
        };
        more.sources.insert(source, through);
        more.epochs
            .insert("after the power cut".to_owned(), revoked["epoch"].as_u64().unwrap());
        check(&start(place).await?, &more).await
    });
    runtime.shutdown_background();
    judged
}

async fn start(place: &Path) -> Result<Server, String> {
    let mut config = load::config(place);
    if config.log.init.take().is_some() {
        return Err("the log is gone".to_owned());
    }
    let running = ControlPlane::start(config)
        .await
        .map_err(|error| format!("no start: {error}"))?;
    running.announce_ready();
    let server = Server::of(running);
    let ready = server.get("/readyz", &[]).await;
    match ready.status {
        200 => Ok(server),
        _ => Err(format!("not ready: {}", ready.text)),
    }
}

async fn check(server: &Server, told: &Told) -> Result<(), String> {
    check_revocations(server, told).await?;
    check_evidence(server, told).await?;
    check_checkpoints(server, told).await
}

async fn check_revocations(server: &Server, told: &Told) -> Result<(), String> {
    let (_, position, records) = server.watch_from_snapshot().await;
    if position.seq < told.seq {
        return Err(format!(
            "the log ends at {}, and {} was acknowledged",
            position.seq, told.seq
        ));
    }
    let mut epochs = HashMap::new();
    for record in &records {
        if let Some(Subject::Principal(state)) = &record.subject {
            let principal = state.principal.as_ref().unwrap();
            if principal.issuer != ISSUER {
                return Err(format!("a principal that was never revoked: {principal:?}"));
            }
            epochs.insert(principal.subject().to_owned(), state.epoch);
        }
    }
    for (subject, epoch) in &told.epochs {
        match epochs.get(subject) {
            Some(found) if found >= epoch => {}
            found => {
                return Err(format!(
                    "{subject} was acknowledged at epoch {epoch}, and is at {found:?}"
                ));
            }
        }
    }
    // At most the revocations that were under way.
    match epochs
        .keys()
        .filter(|subject| !told.epochs.contains_key(*subject))
        .count()
    {
        0 | 1 => Ok(()),
        more => Err(format!("{more} principals that no client was told about")),
    }
}

async fn check_evidence(server: &Server, told: &Told) -> Result<(), String> {
    let records = all_records(server).await;
    let first = records.first().map_or(0, |record| record["index"].as_u64().unwrap());
    let mut found: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
    for (record, index) in records.iter().zip(first..) {
        if record["index"] != index {
            return Err(format!("record {index} is missing"));
        }
        let kind = record["kind"].as_str().unwrap_or_default();
        match kind {
            "decision" => {
                let (source, sequence) = (record["source"].as_str().unwrap(), record["sequence"].as_u64().unwrap());
                if record["tool"] != load::tool(source, sequence) {
                    return Err(format!("record {index} is not what was reported: {record}"));
                }
                found.entry(source).or_default().push((sequence, index));
            }
            "erased" if told.is_erasing => {}
            "source" | "note" => {}
            _ => return Err(format!("record {index} is {record}")),
        }
        if let Some(erased) = &told.erased
            && record["principal"]["subject"] == erased.subject.as_str()
            && index < erased.below
        {
            return Err(format!("record {index} was erased, and can be read"));
        }
    }
    let held = |index: u64| records.get((index - first) as usize);
    for (source, through) in &told.sources {
        let of_source = found.get(source.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut before: Option<(u64, u64)> = None;
        for (sequence, index) in of_source {
            let expected = match before {
                None if first == 0 && !told.is_erasing => 1,
                None => *sequence,
                // Every second one is of the erased principal.
                Some((last, _)) if told.is_erasing => (*sequence).clamp(last + 1, last + 2),
                Some((last, _)) => last + 1,
            };
            if *sequence != expected {
                return Err(format!("{source}: {sequence} at {index} comes after {before:?}"));
            }
            before = Some((*sequence, *index));
        }
        let last = before.map_or(0, |(last, _)| last);
        // The last one may be among the erased ones, whose content is unknown.
        let erased_behind = before.map_or(0, |(_, index)| {
            let next = held(index + 1);
            u64::from(next.is_some_and(|record| record["kind"] == "erased"))
        });
        let is_pruned = of_source.is_empty() && first > 0;
        if last + erased_behind < *through && !is_pruned {
            return Err(format!(
                "{source}: {through} were acknowledged, {last} are there (from index {first} on)"
            ));
        }
    }
    Ok(())
}

/// Every record, oldest first.
async fn all_records(server: &Server) -> Vec<Value> {
    let mut records = Vec::new();
    let mut before = None;
    loop {
        let from = before
            .map(|before: u64| format!("&before={before}"))
            .unwrap_or_default();
        let page = server.events(&format!("?limit=1000{from}")).await;
        let last = page.last().map(|record| record["index"].as_u64().unwrap());
        records.extend(page);
        match last {
            Some(last) if last > 0 && before != Some(last) => before = Some(last),
            _ => break,
        }
    }
    records.reverse();
    records
}

/// Checks that each published checkpoint matches the tree.
async fn check_checkpoints(server: &Server, told: &Told) -> Result<(), String> {
    let Some((latest, _)) = told.checkpoints.last_key_value() else {
        return Ok(());
    };
    let note = server.get("/ledger/checkpoint", &[]).await;
    let size: u64 = note
        .text
        .lines()
        .nth(1)
        .and_then(|size| size.parse().ok())
        .unwrap_or_default();
    if size < *latest {
        return Err(format!(
            "a checkpoint of {latest} was shown, and now one of {size} ({})",
            note.text
        ));
    }
    let mut tree = Frontier::new();
    let mut first = 0;
    while first < *latest {
        let width = (size - first).min(256);
        let part = if width == 256 {
            String::new()
        } else {
            format!(".p/{width}")
        };
        let path = format!("/ledger/tile/0/{:03}{part}", first / 256);
        let hashes = server.bytes(&path).await.map_err(|error| format!("{path}: {error}"))?;
        let (hashes, _) = hashes.as_chunks::<32>();
        for hash in hashes {
            tree.push(Hash(*hash), &mut |_, _| {});
            if let Some(root) = told.checkpoints.get(&tree.size())
                && STANDARD.encode(tree.root().0) != *root
            {
                return Err(format!(
                    "a checkpoint of {} was shown, and the tree has another root",
                    tree.size()
                ));
            }
        }
        first += width;
    }
    Ok(())
}

impl Server {
    async fn bytes(&self, path: &str) -> Result<Vec<u8>, String> {
        let url = self.url(path);
        let asking = tokio::task::spawn_blocking(move || {
            let mut response = ureq::get(url).call().map_err(|error| error.to_string())?;
            response.body_mut().read_to_vec().map_err(|error| error.to_string())
        });
        asking.await.unwrap()
    }
}
