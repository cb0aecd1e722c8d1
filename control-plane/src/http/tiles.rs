//! `/ledger/…`: the ledger for standard transparency log tools (C2SP tlog-tiles).
//!
//! | route | contents |
//! |---|---|
//! | `GET /ledger/checkpoint` | the latest checkpoint, with the cosignatures received so far |
//! | `GET /ledger/checkpoint/witnessed` | of recent checkpoints, the one with the most cosignatures |
//! | `GET /ledger/key` | the key that verifies them (a vkey of C2SP signed-note) |
//! | `GET /ledger/tile/<L>/<N>[.p/<W>]` | hashes |
//! | `GET /ledger/tile/entries/<N>[.p/<W>]` | leaves, sealed |
//! | `GET /ledger/proof/{index}` | a proof of a leaf, with the leaf (C2SP tlog-proof) |
//!
//! Only data covered by a published checkpoint is served, so that every tile can be verified.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::continuation::LogTree;
use credence_ledger::proof::{check_hashes, inclusion, verify_inclusion};
use credence_ledger::tiles::{Tile, TileContent};
use credence_ledger::tlog_proof::TlogProof;
use credence_ledger::tree::leaf_hash;

use super::api::Api;
use super::problem::Problem;
use credence_evidence::Publisher;
use credence_evidence::TileAccess;
use credence_runtime::client_limits::Client;

/// The routes.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/ledger/checkpoint", get(checkpoint))
        .route("/ledger/checkpoint/witnessed", get(witnessed))
        .route("/ledger/key", get(key))
        .route("/ledger/tile/{*tile}", get(tile))
        .route("/ledger/proof/{index}", get(proof))
}

async fn checkpoint(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let latest = latest(&api.publisher)?;
    Ok(text(latest.note().to_owned(), "no-cache"))
}

async fn witnessed(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let witnessed = api.publisher.witnessed().map_or_else(|| latest(&api.publisher), Ok)?;
    Ok(text(witnessed.note().to_owned(), "no-cache"))
}

async fn key(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    match api.publisher.verifier_key() {
        Some(key) => Ok(text(format!("{key}\n"), "no-cache")),
        None => Err(nothing_to_show(&api.publisher)),
    }
}

async fn tile(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    Path(path): Path<String>,
) -> Result<Response, Problem> {
    let tile: Tile = path.parse().map_err(|error| Problem::bad_request(format!("{error}")))?;
    // These requests share the limit of concurrent queries.
    let _turn = api.query_turns.take(&client, 1).await;
    let publisher = Arc::clone(&api.publisher);
    let contents = blocking(move || read(&publisher, &tile)).await?;
    let sharing = match api.tiles {
        TileAccess::Public => "public",
        TileAccess::Private => "private",
    };
    // A tile never changes, but a partial one is soon useless.
    let age = if tile.is_whole() { WHOLE_AGE_S } else { PARTIAL_AGE_S };
    let cache = format!("{sharing}, max-age={age}, immutable");
    Ok(answer(contents, "application/octet-stream", &cache))
}

async fn proof(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    Path(index): Path<String>,
) -> Result<Response, Problem> {
    let index: u64 = index.parse().map_err(|_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "the path ends with a record's index: a decimal number",
        )
    })?;
    let _turn = api.query_turns.take(&client, 1).await;
    let publisher = Arc::clone(&api.publisher);
    let proof = blocking(move || prove(&publisher, index)).await?;
    Ok(text(proof.to_string(), "no-cache"))
}

/// The contents of the tile, if all of it is published and held.
fn read<T: LogTree>(publisher: &Publisher<T>, tile: &Tile) -> Result<Vec<u8>, Problem> {
    let latest = latest(publisher)?;
    let Checkpoint { size, root, .. } = latest.checkpoint();
    if !tile.is_in(*size) {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("the latest checkpoint has {size} entries and does not cover this tile"),
        ));
    }
    let count = usize::from(tile.width);
    let tree = publisher.tree();
    match tile.content {
        TileContent::Hashes { level } => {
            let hashes = tree
                .read(level, tile.first(), count)
                .map_err(Problem::unreadable_ledger)?;
            // Caches keep it for a year, so damaged hashes must not be served.
            check_hashes((level, tile.first(), &hashes), (*size, root), tree).map_err(Problem::unreadable_ledger)?;
            Ok(hashes.iter().flat_map(|hash| hash.0).collect())
        }
        TileContent::Entries => bundle(tree, tile.first(), count),
    }
}

fn prove<T: LogTree>(publisher: &Publisher<T>, index: u64) -> Result<TlogProof, Problem> {
    // A checkpoint with cosignatures is preferred, if it covers the entry.
    let checkpoint = publisher
        .witnessed()
        .filter(|witnessed| index < witnessed.checkpoint().size)
        .map_or_else(|| latest(publisher), Ok)?;
    let size = checkpoint.checkpoint().size;
    if index >= size {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "the latest checkpoint has {size} entries and does not cover entry {index}; one is published each \
                 second"
            ),
        ));
    }
    let tree = publisher.tree();
    let bundle = bundle(tree, index, 1)?;
    let inclusion = inclusion(index, size, tree).map_err(Problem::unreadable_ledger)?;
    let leaf = bundle.get(2..).unwrap_or_default();
    let root = &checkpoint.checkpoint().root;
    verify_inclusion(&leaf_hash(leaf), index, size, root, &inclusion).map_err(Problem::unreadable_ledger)?;
    Ok(TlogProof {
        extra: Some(leaf.to_vec()),
        index,
        inclusion,
        checkpoint: checkpoint.note().to_owned(),
    })
}

fn bundle<T: LogTree>(tree: &T, first: u64, count: usize) -> Result<Vec<u8>, Problem> {
    let held = tree.first();
    if first < held {
        return Err(Problem::new(
            StatusCode::GONE,
            format!(
                "entries below {held} are no longer held: their retention is over. Their hashes are kept, so that \
                 their proofs stay valid"
            ),
        ));
    }
    match tree.bundle(first, count) {
        // It may have been pruned meanwhile.
        Err(_) if first < tree.first() => bundle(tree, first, count),
        other => other.map_err(Problem::unreadable_ledger),
    }
}

fn latest<T: LogTree>(publisher: &Publisher<T>) -> Result<Arc<SignedCheckpoint>, Problem> {
    publisher.latest().ok_or_else(|| nothing_to_show(publisher))
}

fn nothing_to_show<T: LogTree>(publisher: &Publisher<T>) -> Problem {
    let why = publisher
        .fault()
        .unwrap_or_else(|| "none could be written yet".to_owned());
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the ledger has no checkpoint to show: {why}"),
    )
}

async fn blocking<R: Send + 'static>(work: impl FnOnce() -> Result<R, Problem> + Send + 'static) -> Result<R, Problem> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Problem::unreadable_ledger)?
}

fn text(contents: String, cache: &str) -> Response {
    answer(contents.into_bytes(), "text/plain; charset=utf-8", cache)
}

fn answer(contents: Vec<u8>, kind: &'static str, cache: &str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)], contents).into_response()
}

/// A year: HTTP caches treat it as forever.
const WHOLE_AGE_S: u32 = 31_536_000;
const PARTIAL_AGE_S: u32 = 3_600;

#[cfg(test)]
mod tests {
    use credence_ledger::log_identity::{LedgerIdentity, Naming};

    use credence_storage::folder_lock::FolderWatch;

    use super::*;
    use crate::memory_tree::MemoryTree;
    use crate::metrics::Metrics;

    /// A published tree of this size, which has grown since.
    async fn published(folder: &std::path::Path, size: u64) -> Arc<Publisher<MemoryTree>> {
        let naming = Naming {
            origin: None,
            log_id: "ab12",
        };
        let identity = LedgerIdentity::open(folder, &naming).unwrap();
        let publisher = Publisher::open(
            identity,
            MemoryTree::of(0..size),
            FolderWatch::of_nothing(),
            Metrics::new().evidence,
        );
        let publisher = Arc::new(publisher);
        Arc::clone(&publisher).publish().await;
        publisher.tree().grow(size..size + 1000);
        publisher
    }

    fn tile(publisher: &Publisher<MemoryTree>, path: &str) -> Result<Vec<u8>, StatusCode> {
        read(publisher, &path.parse().unwrap()).map_err(|problem| problem.into_response().status())
    }

    #[tokio::test]
    async fn only_what_the_checkpoint_covers_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = published(folder.path(), 600).await;
        for (path, bytes) in [
            ("0/000", Some(8192)),
            ("0/001", Some(8192)),
            ("0/002.p/88", Some(88 * 32)),
            ("0/002.p/3", Some(96)),
            ("0/001.p/255", Some(255 * 32)),
            ("0/002.p/89", None),
            ("0/002", None),
            ("1/000.p/2", Some(64)),
            ("1/000.p/3", None),
            ("2/000.p/1", None),
            ("entries/000", Some(2560)),
            ("entries/002.p/88", Some(880)),
            ("entries/002.p/89", None),
        ] {
            let served = tile(&publisher, path).map(|contents| contents.len());
            assert_eq!(served, bytes.ok_or(StatusCode::NOT_FOUND), "{path}");
        }
        let leaves = tile(&publisher, "entries/000").unwrap();
        let hashes = tile(&publisher, "0/000").unwrap();
        for (entry, hash) in leaves.chunks(10).zip(hashes.chunks(32)) {
            assert_eq!(entry[..2], [0, 8]);
            assert_eq!(leaf_hash(&entry[2..]).0, hash);
        }
    }

    #[tokio::test]
    async fn pruned_entries_are_gone_and_their_hashes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = published(folder.path(), 600).await;
        publisher.tree().prune(512);
        assert_eq!(tile(&publisher, "entries/001"), Err(StatusCode::GONE));
        assert!(tile(&publisher, "entries/002.p/1").is_ok());
        assert!(tile(&publisher, "0/000").is_ok());
        let refused = prove(&publisher, 511).unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::GONE);
    }

    #[tokio::test]
    async fn hashes_that_are_not_those_of_the_checkpoint_are_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = published(folder.path(), 600).await;
        publisher.tree().damage();
        for path in ["0/000", "0/000.p/1", "1/000.p/2"] {
            assert_eq!(tile(&publisher, path), Err(StatusCode::INTERNAL_SERVER_ERROR), "{path}");
        }
        let refused = prove(&publisher, 1).unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[tokio::test]
    async fn every_entry_that_is_published_can_be_proven() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = published(folder.path(), 600).await;
        for index in [0, 1, 255, 256, 598, 599] {
            let proof = prove(&publisher, index).unwrap();
            let checkpoint = proof.verify(&publisher.verifier_key().unwrap()).unwrap();
            assert_eq!((checkpoint.size, proof.index), (600, index));
            assert_eq!(proof.extra, Some(index.to_be_bytes().to_vec()));
        }
        assert_eq!(
            prove(&publisher, 600).unwrap_err().into_response().status(),
            StatusCode::NOT_FOUND
        );
    }

    #[tokio::test]
    async fn without_a_checkpoint_nothing_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let naming = Naming {
            origin: None,
            log_id: "ab12",
        };
        let identity = LedgerIdentity::open(folder.path(), &naming).unwrap();
        let publisher = Publisher::open(
            identity,
            MemoryTree::of(0..600),
            FolderWatch::of_nothing(),
            Metrics::new().evidence,
        );
        assert_eq!(tile(&publisher, "0/000"), Err(StatusCode::SERVICE_UNAVAILABLE));
    }
}
