//! Checks that a ledger is append-only: compares the published checkpoints with the final leaves. It uses none of the
//! product's code. Checkpoints are C2SP tlog-checkpoint, leaves C2SP tlog-tiles, and the tree is RFC 6962.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::{Client, Failure, Request};

type Hash = [u8; 32];

/// Asks for checkpoints until [`finish`](Self::finish), whether or not the control plane answers.
#[derive(Debug)]
pub struct Collector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// All checkpoints that the collector has seen.
#[derive(Debug)]
pub struct Collected {
    /// The root of each size.
    roots: BTreeMap<u64, Hash>,
}

#[derive(Debug)]
struct Shared {
    http: SocketAddr,
    done: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Of the key that signed the first one.
    key: Option<LogKey>,
    roots: BTreeMap<u64, Hash>,
    broken: Option<String>,
}

#[derive(Debug, Clone)]
struct LogKey {
    origin: String,
    id: [u8; 4],
    key: VerifyingKey,
}

/// The complete subtrees of the leaves so far.
#[derive(Debug, Default)]
struct Frontier {
    size: u64,
    /// Largest first.
    subtrees: Vec<Hash>,
}

// === impl Collector ===

impl Collector {
    /// Starts to ask this control plane.
    pub fn start(http: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            http,
            done: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let asking = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !asking.done.load(Ordering::Acquire) {
                // While the control plane is down, it has no checkpoint.
                let _ = asking.ask();
                thread::sleep(BETWEEN);
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Leaves that the latest checkpoint covers.
    pub fn latest_size(&self) -> u64 {
        let seen = self.shared.seen();
        seen.roots.last_key_value().map_or(0, |(size, _)| *size)
    }

    /// Asks once more, and returns what it has seen.
    ///
    /// # Errors
    /// If the control plane does not answer, or a checkpoint has no valid signature or contradicts another.
    pub fn finish(mut self) -> Result<Collected, Failure> {
        self.end();
        self.shared.ask()?;
        let seen = self.shared.seen();
        match &seen.broken {
            Some(broken) => Err(Failure::new(broken.clone())),
            None => Ok(Collected {
                roots: seen.roots.clone(),
            }),
        }
    }

    fn end(&mut self) {
        self.shared.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl Collected ===

impl Collected {
    /// How many checkpoints.
    pub fn count(&self) -> usize {
        self.roots.len()
    }

    /// Reads all leaves that the latest checkpoint covers, and compares each checkpoint with them. Returns the number
    /// of leaves.
    ///
    /// # Errors
    /// If a checkpoint's tree is not a prefix of the leaves, or the leaves cannot be read.
    pub fn check(&self, http: SocketAddr, token: &str) -> Result<u64, Failure> {
        let mut client = Client::connect(http)?;
        let size = self.roots.last_key_value().map_or(0, |(size, _)| *size);
        let mut tree = Frontier::default();
        self.check_at(&tree)?;
        for number in 0..size.div_ceil(BUNDLE) {
            let width = (size - number * BUNDLE).min(BUNDLE);
            let path = format!("/ledger/tile/entries/{}", tile_path(number, width));
            let request = Request::get(&path).header("authorization", format!("Bearer {token}"));
            let reply = client.send(&request)?;
            if reply.status != 200 {
                return Err(Failure::new(format!("{path} got {}: {}", reply.status, reply.text())));
            }
            for leaf in leaves(&reply.body).ok_or_else(|| Failure::new(format!("{path} is no bundle")))? {
                tree.push(leaf);
                self.check_at(&tree)?;
            }
            if tree.size != number * BUNDLE + width {
                return Err(Failure::new(format!("{path} has not {width} leaves")));
            }
        }
        Ok(size)
    }

    fn check_at(&self, tree: &Frontier) -> Result<(), Failure> {
        match self.roots.get(&tree.size) {
            Some(root) if *root != tree.root() => Err(Failure::new(format!(
                "the published checkpoint of {} leaves does not match the ledger's first leaves",
                tree.size
            ))),
            _ => Ok(()),
        }
    }
}

/// `x001/x234/067.p/8`, of C2SP tlog-tiles.
fn tile_path(number: u64, width: u64) -> String {
    let mut path = format!("{:03}", number % 1000);
    let mut rest = number / 1000;
    while rest > 0 {
        path = format!("x{:03}/{path}", rest % 1000);
        rest /= 1000;
    }
    if width == BUNDLE {
        path
    } else {
        format!("{path}.p/{width}")
    }
}

fn leaves(mut bundle: &[u8]) -> Option<Vec<&[u8]>> {
    let mut leaves = Vec::new();
    while let Some((length, rest)) = bundle.split_first_chunk() {
        let (leaf, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        leaves.push(leaf);
        bundle = rest;
    }
    bundle.is_empty().then_some(leaves)
}

// === impl Shared ===

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> Result<(), Failure> {
        let mut client = Client::connect(self.http)?;
        let key = match self.seen().key.clone() {
            Some(key) => key,
            None => LogKey::parse(client.send(&Request::get("/ledger/key"))?.text().trim())
                .ok_or_else(|| Failure::new("/ledger/key is no verifier key"))?,
        };
        let reply = client.send(&Request::get("/ledger/checkpoint"))?;
        if reply.status != 200 {
            return Err(Failure::new(format!("no checkpoint: {}", reply.text())));
        }
        let text = reply.text();
        let mut seen = self.seen();
        seen.key = Some(key.clone());
        match key.open(&text) {
            None => {
                seen.broken
                    .get_or_insert(format!("the log's signature is missing or invalid: {text}"));
            }
            Some((size, root)) => {
                if *seen.roots.entry(size).or_insert(root) != root {
                    seen.broken
                        .get_or_insert(format!("two trees of {size} leaves were published"));
                }
                let (latest, _) = seen.roots.last_key_value().unwrap_or((&size, &root));
                if *latest > size {
                    let shrunk = format!("{latest} leaves were published, and then {size}");
                    seen.broken.get_or_insert(shrunk);
                }
            }
        }
        Ok(())
    }
}

// === impl LogKey ===

impl LogKey {
    /// `name+id+base64`, of C2SP signed-note.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '+');
        let (origin, id, key) = (parts.next()?, parts.next()?, parts.next()?);
        let key = STANDARD.decode(key).ok()?;
        let (&[ED25519], key) = key.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            origin: origin.to_owned(),
            id: u32::from_str_radix(id, 16).ok()?.to_be_bytes(),
            key: VerifyingKey::from_bytes(key.try_into().ok()?).ok()?,
        })
    }

    /// Size and root of a checkpoint with a valid signature of the log.
    fn open(&self, note: &str) -> Option<(u64, Hash)> {
        let (text, signatures) = note.rsplit_once("\n\n")?;
        let text = format!("{text}\n");
        let is_ours = |line: &str| {
            let signature = line.strip_prefix("— ")?.strip_prefix(&self.origin)?.strip_prefix(' ')?;
            let signature = STANDARD.decode(signature).ok()?;
            let (id, signature) = signature.split_first_chunk::<4>()?;
            let signature = Signature::from_slice(signature).ok()?;
            (*id == self.id && self.key.verify_strict(text.as_bytes(), &signature).is_ok()).then_some(())
        };
        signatures.lines().find_map(is_ours)?;
        let mut lines = text.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let root = STANDARD.decode(root).ok()?.try_into().ok()?;
        (origin == self.origin).then_some((size.parse().ok()?, root))
    }
}

// === impl Frontier ===

impl Frontier {
    fn push(&mut self, leaf: &[u8]) {
        let mut hash: Hash = Sha256::new_with_prefix([0]).chain_update(leaf).finalize().into();
        let mut smaller = self.size;
        while smaller & 1 == 1 {
            // One subtree for each set bit.
            let left = self.subtrees.pop().unwrap_or_default();
            hash = node(&left, &hash);
            smaller >>= 1;
        }
        self.subtrees.push(hash);
        self.size += 1;
    }

    fn root(&self) -> Hash {
        let mut subtrees = self.subtrees.iter().rev().copied();
        match subtrees.next() {
            Some(smallest) => subtrees.fold(smallest, |right, left| node(&left, &right)),
            None => Sha256::digest([]).into(),
        }
    }
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new_with_prefix([1])
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// The kind of signature, in a verifier key.
const ED25519: u8 = 1;
/// Leaves of a whole bundle.
const BUNDLE: u64 = 256;
/// The control plane publishes a checkpoint each second.
const BETWEEN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of RFC 6962 implementations: the eight leaves of `certificate-transparency`.
    #[test]
    fn roots_are_those_of_rfc_6962() {
        let leaves = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let expected = [
            (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
            (3, "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
            (8, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
        ];
        let mut tree = Frontier::default();
        let mut roots = vec![tree.root()];
        for leaf in leaves {
            let bytes = (0..leaf.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&leaf[at..at + 2], 16).unwrap());
            tree.push(&bytes.collect::<Vec<_>>());
            roots.push(tree.root());
        }
        for (size, root) in expected {
            let found: String = roots[size].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, root, "of {size} leaves");
        }
    }

    #[test]
    fn tiles_are_named_in_groups_of_three_digits() {
        assert_eq!(tile_path(0, 256), "000");
        assert_eq!(tile_path(1_234_067, 256), "x001/x234/067");
        assert_eq!(tile_path(1_067, 8), "x001/067.p/8");
    }
}
