//! A model of a disk after a power cut: synced data is there; of the rest, any blocks in any order may be.
//!
//! It promises as little as POSIX does. A file's contents are there after `fsync` of the file, and its name after
//! `fsync` of the folder. Of later writes, each block may have any of its states since. A rename is done or not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(crate) type NodeId = usize;

/// A folder, the operations on it, and marks in between.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    pub(crate) operations: Vec<Operation>,
}

/// A file or a folder.
#[derive(Debug, Clone)]
struct Node {
    /// Its path when created, for messages.
    path: PathBuf,
    /// Its contents before the first operation.
    base: Contents,
    /// Its contents as running processes see them.
    now: Now,
}

#[derive(Debug, Clone)]
enum Contents {
    File(Vec<u8>),
    Folder(BTreeMap<String, NodeId>),
}

#[derive(Debug, Clone)]
enum Now {
    File { length: u64 },
    Folder(BTreeMap<String, NodeId>),
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Write {
        node: NodeId,
        position: u64,
        data: Vec<u8>,
    },
    Resize {
        node: NodeId,
        length: u64,
    },
    /// In a folder: removes and adds these names.
    Names {
        node: NodeId,
        gone: Option<String>,
        made: Option<(String, NodeId)>,
    },
    /// Makes all operations on the file or folder before this number durable.
    Sync {
        node: NodeId,
        begun: usize,
        /// Its path at that time.
        path: String,
    },
    /// What a client was told.
    Mark(String),
}

/// Which of the unsynced operations are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survival {
    Nothing,
    Everything,
    /// Each block of this size has any of its states since the sync.
    Blocks(u64),
}

// === impl Disk ===

impl Disk {
    /// The folder as it is, all of it durable.
    pub(crate) fn of(root: &Path) -> Self {
        let mut this = Self {
            root: root.to_owned(),
            nodes: Vec::new(),
            operations: Vec::new(),
        };
        this.import(root);
        this
    }

    fn import(&mut self, path: &Path) -> NodeId {
        let id = self.nodes.len();
        let (base, now) = (Contents::File(Vec::new()), Now::File { length: 0 });
        self.nodes.push(Node {
            path: path.to_owned(),
            base,
            now,
        });
        if path.is_dir() {
            let mut entries = BTreeMap::new();
            for entry in std::fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                entries.insert(entry.file_name().into_string().unwrap(), self.import(&entry.path()));
            }
            self.nodes[id].now = Now::Folder(entries.clone());
            self.nodes[id].base = Contents::Folder(entries);
        } else {
            let bytes = std::fs::read(path).unwrap();
            self.nodes[id].now = Now::File {
                length: bytes.len() as u64,
            };
            self.nodes[id].base = Contents::File(bytes);
        }
        id
    }

    pub(crate) fn is_inside(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// The path of the file or folder when it was created, below the root.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let path = self.nodes[node].path.strip_prefix(&self.root).unwrap();
        path.display().to_string()
    }

    pub(crate) fn length(&self, node: NodeId) -> u64 {
        match &self.nodes[node].now {
            Now::File { length } => *length,
            Now::Folder(_) => 0,
        }
    }

    pub(crate) fn find(&self, path: &Path) -> Option<NodeId> {
        let below = path.strip_prefix(&self.root).unwrap();
        below.iter().try_fold(0, |node, name| match &self.nodes[node].now {
            Now::Folder(entries) => entries.get(name.to_str().unwrap()).copied(),
            Now::File { .. } => None,
        })
    }

    pub(crate) fn make_file(&mut self, path: &Path) -> NodeId {
        self.make(path, Contents::File(Vec::new()), Now::File { length: 0 })
    }

    pub(crate) fn make_folder(&mut self, path: &Path) {
        self.make(path, Contents::Folder(BTreeMap::new()), Now::Folder(BTreeMap::new()));
    }

    fn make(&mut self, path: &Path, base: Contents, now: Now) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(Node {
            path: path.to_owned(),
            base,
            now,
        });
        let (node, name) = self.place(path);
        self.push(Operation::Names {
            node,
            gone: None,
            made: Some((name, id)),
        });
        id
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        let (node, name) = self.place(path);
        self.push(Operation::Names {
            node,
            gone: Some(name),
            made: None,
        });
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        let moved = self.find(from).expect("what is renamed is there");
        let ((folder, old), (target, new)) = (self.place(from), self.place(to));
        assert_eq!(folder, target, "a rename from one folder to another is not understood");
        self.nodes[moved].path = to.to_owned();
        self.push(Operation::Names {
            node: folder,
            gone: Some(old),
            made: Some((new, moved)),
        });
    }

    fn place(&self, path: &Path) -> (NodeId, String) {
        let folder = self
            .find(path.parent().unwrap())
            .unwrap_or_else(|| panic!("{}", path.display()));
        (folder, path.file_name().unwrap().to_str().unwrap().to_owned())
    }

    pub(crate) fn push(&mut self, operation: Operation) {
        match &operation {
            Operation::Write { node, position, data } => {
                if let Now::File { length } = &mut self.nodes[*node].now {
                    *length = (*length).max(position + data.len() as u64);
                }
            }
            Operation::Resize { node, length } => self.nodes[*node].now = Now::File { length: *length },
            Operation::Names { node, gone, made } => {
                if let Now::Folder(entries) = &mut self.nodes[*node].now {
                    if let Some(name) = gone {
                        entries.remove(name);
                    }
                    entries.extend(made.clone());
                }
            }
            Operation::Sync { .. } | Operation::Mark(_) => {}
        }
        self.operations.push(operation);
    }

    /// What clients were told before the operation of this number.
    pub(crate) fn marks(&self, cut: usize) -> impl Iterator<Item = &str> {
        self.operations
            .iter()
            .take(cut)
            .filter_map(|operation| match operation {
                Operation::Mark(text) => Some(text.as_str()),
                _ => None,
            })
    }

    /// The same, without the syncs of files and folders at these places.
    pub(crate) fn without_syncs(&self, of: impl Fn(&str) -> bool) -> Self {
        let mut this = self.clone();
        for operation in &mut this.operations {
            if let Operation::Sync { begun, path, .. } = operation
                && of(path)
            {
                *begun = 0;
            }
        }
        this
    }

    /// Writes the disk's state into `target` for a power cut before the operation of this number.
    pub(crate) fn cut(&self, cut: usize, survival: Survival, random: &mut Random, target: &Path) {
        let mut synced = vec![0; self.nodes.len()];
        let mut done: Vec<Vec<(usize, &Operation)>> = vec![Vec::new(); self.nodes.len()];
        for (number, operation) in self.operations.iter().enumerate().take(cut) {
            match operation {
                Operation::Sync { node, begun, .. } => synced[*node] = synced[*node].max(*begun),
                Operation::Write { node, .. } | Operation::Resize { node, .. } | Operation::Names { node, .. } => {
                    done[*node].push((number, operation));
                }
                Operation::Mark(_) => {}
            }
        }
        let split: Vec<usize> = (0..self.nodes.len())
            .map(|node| done[node].partition_point(|(number, _)| *number < synced[node]))
            .collect();
        self.write(0, &done, &split, survival, random, target);
    }

    fn write(
        &self,
        node: NodeId,
        done: &[Vec<(usize, &Operation)>],
        split: &[usize],
        survival: Survival,
        random: &mut Random,
        target: &Path,
    ) {
        let (durable, pending) = done[node].split_at(split[node]);
        match &self.nodes[node].base {
            Contents::Folder(base) => {
                let mut entries = base.clone();
                // Most file systems keep the order of names; none must.
                let in_order = random.below(2) == 0;
                let kept = random.below(pending.len() as u64 + 1) as usize;
                for (place, (_, operation)) in durable.iter().chain(pending).enumerate() {
                    let is_kept = place < durable.len()
                        || match survival {
                            Survival::Nothing => false,
                            Survival::Everything => true,
                            Survival::Blocks(_) if in_order => place - durable.len() < kept,
                            Survival::Blocks(_) => random.below(2) == 0,
                        };
                    if is_kept && let Operation::Names { gone, made, .. } = operation {
                        if let Some(name) = gone {
                            entries.remove(name);
                        }
                        entries.extend(made.clone());
                    }
                }
                std::fs::create_dir_all(target).unwrap();
                for (name, node) in entries {
                    self.write(node, done, split, survival, random, &target.join(name));
                }
            }
            Contents::File(base) => {
                let mut bytes = base.clone();
                durable.iter().for_each(|(_, operation)| apply(operation, &mut bytes));
                match survival {
                    Survival::Nothing => {}
                    Survival::Everything => pending.iter().for_each(|(_, operation)| apply(operation, &mut bytes)),
                    Survival::Blocks(size) => tear(&mut bytes, pending, size, random),
                }
                std::fs::write(target, bytes).unwrap();
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::set_permissions(target, std::fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
    }
}

fn apply(operation: &Operation, bytes: &mut Vec<u8>) {
    match operation {
        Operation::Write { position, data, .. } => {
            let end = *position as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*position as usize..end].copy_from_slice(data);
        }
        Operation::Resize { length, .. } => bytes.resize(*length as usize, 0),
        _ => {}
    }
}

/// Gives each block, and the length, the state after some of the operations.
fn tear(bytes: &mut Vec<u8>, pending: &[(usize, &Operation)], size: u64, random: &mut Random) {
    if pending.is_empty() {
        return;
    }
    let mut lengths = vec![bytes.len()];
    let mut longest = bytes.len();
    for (_, operation) in pending {
        let mut length = *lengths.last().unwrap();
        match operation {
            Operation::Write { position, data, .. } => length = length.max(*position as usize + data.len()),
            Operation::Resize { length: new, .. } => length = *new as usize,
            _ => {}
        }
        longest = longest.max(length);
        lengths.push(length);
    }
    bytes.resize(longest, 0);
    let blocks = longest.div_ceil(size as usize);
    // How many of the operations each block has seen.
    let seen: Vec<usize> = (0..blocks)
        .map(|_| random.below(pending.len() as u64 + 1) as usize)
        .collect();
    let block = |block: usize| -> Range<usize> { block * size as usize..longest.min((block + 1) * size as usize) };
    for (place, (_, operation)) in pending.iter().enumerate() {
        let (range, data) = match operation {
            Operation::Write { position, data, .. } => {
                (*position as usize..*position as usize + data.len(), Some(data))
            }
            Operation::Resize { length, .. } => (*length as usize..longest, None),
            _ => continue,
        };
        if range.is_empty() {
            continue;
        }
        let touched = range.start / size as usize..range.end.div_ceil(size as usize).min(blocks);
        for (number, seen) in touched.clone().zip(&seen[touched]) {
            if *seen <= place {
                continue;
            }
            let within = block(number).start.max(range.start)..block(number).end.min(range.end);
            match data {
                Some(data) => {
                    let part = &data[within.start - range.start..within.end - range.start];
                    bytes[within].copy_from_slice(part);
                }
                None => bytes[within].fill(0),
            }
        }
    }
    bytes.truncate(lengths[random.below(lengths.len() as u64) as usize]);
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[test]
fn synced_data_is_always_there_and_any_part_of_the_rest_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut disk = Disk::of(&root);
    let write = |node, position, byte: u8| Operation::Write {
        node,
        position,
        data: vec![byte; 1024],
    };
    let node = disk.make_file(&root.join("file"));
    disk.push(write(node, 0, 1));
    for node in [node, 0] {
        let (begun, path) = (disk.operations.len(), disk.path(node));
        disk.push(Operation::Sync { node, begun, path });
    }
    disk.push(write(node, 512, 2));
    disk.make_file(&root.join("unsynced"));
    let all = disk.operations.len();
    let mut random = Random(1);
    let mut seen = std::collections::BTreeSet::new();
    for state in 0..200 {
        let target = folder.path().join(state.to_string());
        disk.cut(all, Survival::Blocks(512), &mut random, &target);
        let bytes = std::fs::read(target.join("file")).unwrap();
        assert!(bytes[..512].iter().all(|byte| *byte == 1), "{state}");
        seen.insert((
            bytes.get(512).copied(),
            bytes.get(1024).copied(),
            target.join("unsynced").exists(),
        ));
    }
    // The second block is old or new; the third one is missing, zeros, or there.
    for second in [1, 2] {
        for third in [None, Some(0), Some(2)] {
            for name in [false, true] {
                assert!(seen.contains(&(Some(second), third, name)), "{second} {third:?} {name}");
            }
        }
    }
    disk.cut(all, Survival::Nothing, &mut random, &folder.path().join("nothing"));
    assert_eq!(std::fs::read(folder.path().join("nothing/file")).unwrap(), [1; 1024]);
    // Before the folder is synced, the file has no name.
    disk.cut(3, Survival::Nothing, &mut random, &folder.path().join("nameless"));
    assert!(!folder.path().join("nameless/file").exists());
}
