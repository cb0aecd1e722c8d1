//! Moves a log between a data folder and etcd. It keeps its name, position and digest, so filters go on where they were.
//!
//! The log must end in one place before it goes on in the other: two that go on from the same position would each forget
//! what the other revokes. So the place that it leaves is marked first, and a control plane refuses a marked one. An
//! interrupted transfer is repeated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_etcd::Client;
use credence_runtime::time::unix_seconds;
use credence_storage::folder_lock::{FolderLock, FolderWatch};
use credence_storage::{FileError, at};
use tokio::runtime::Handle;

use crate::data_dir::{self, DataDir, DataDirError};
use crate::digest::Head;
use crate::log_id::LogId;
use crate::log_view::{HistoryBounds, LogView};
use crate::parts::StoreOptions;
use crate::store::beginning::Cut;
use crate::store::embedded::EmbeddedStore;
use crate::store::etcd::{self, EtcdStore};
use crate::store::{LogStore, Notes, StoreError};

/// The log where it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    pub log_id: LogId,
    /// Its last entry.
    pub seq: u64,
    /// The digest of all entries, in hexadecimal.
    pub digest: String,
}

/// A log on etcd, its replicas and its members.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    pub log: Transferred,
    /// None until a replica has started.
    pub max_staleness: Option<Duration>,
    pub max_token_lifetime: Option<Duration>,
    /// The replicas that are registered, and up to which entry the filters of each have applied the log.
    pub replicas: Vec<(String, u64)>,
    pub members: Vec<MemberStatus>,
}

/// One member of etcd.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    pub address: String,
    /// Or why it cannot be asked.
    pub state: Result<MemberState, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    pub version: String,
    pub leads: bool,
    /// On disk, and how much of it is used.
    pub bytes: u64,
    pub bytes_used: u64,
    /// What it says is wrong, such as a full quota.
    pub alarms: Vec<String>,
}

/// Why a log was not moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("the revocation log: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} has another secret than the data folder: give --secrets an empty folder", path = .0.display())]
    OtherSecret(PathBuf),
}

/// Moves the log of a locked data folder to etcd, and puts its secrets into the folder for secrets. Within a runtime, on
/// a thread that may block.
pub fn import(lock: FolderLock, to: &StoreOptions) -> Result<Transferred, TransferError> {
    let folder = DataDir::open(lock, None, unix_seconds())?;
    let address = to.address.to_string();
    folder.check_not_moved_elsewhere(&address)?;
    let store = folder.open_store()?;
    let (mut cut, log_id, notes) = whole(&store)?;
    for (name, secret) in folder.secrets() {
        let path = to.secrets.join(name);
        if !data_dir::give_secret(&path, secret).map_err(at(&path))? {
            return Err(TransferError::OtherSecret(path));
        }
    }
    folder.mark_moved(&address)?;
    let client = client(to)?;
    let creating = etcd::create_after(&client, &to.address, (&log_id, notes), &mut cut);
    Handle::current().block_on(creating)?;
    Ok(Transferred::at(cut.head, log_id))
}

/// Moves a log from etcd to a new data folder. Within a runtime, on a thread that may block.
pub fn export(from: &StoreOptions, to: &Path) -> Result<Transferred, TransferError> {
    let opening = EtcdStore::open_to_move(client(from)?, from.address.clone());
    let store = Handle::current().block_on(opening)?;
    // The same path on another machine is another folder.
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    let to_path = std::path::absolute(to).map_err(at(to))?;
    store.mark_moved(&format!("{machine}:{}", to_path.display()))?;
    let (mut cut, log_id, notes) = whole(&store)?;
    data_dir::create_with(to, &from.secrets, &log_id, |path| {
        let into = EmbeddedStore::open(path, FolderWatch::of_nothing())?;
        while into.compact(&mut cut)? {}
        into.write_notes(notes)
    })?;
    Ok(Transferred::at(cut.head, log_id))
}

/// The state of a log on etcd. Within a runtime, on a thread that may block.
pub fn status(of: &StoreOptions) -> Result<ClusterStatus, TransferError> {
    let asking = async {
        let found = etcd::look(&client(of)?, &of.address).await?;
        let mut members = Vec::new();
        for address in &of.address.members {
            let mut one = of.clone();
            one.address.members = vec![address.clone()];
            let state = match client(&one)?.status(ASK_TIMEOUT).await {
                Ok(state) => Ok(MemberState {
                    leads: state.header.is_some_and(|header| header.member_id == state.leader),
                    version: state.version,
                    bytes: state.db_size.try_into().unwrap_or(0),
                    bytes_used: state.db_size_in_use.try_into().unwrap_or(0),
                    alarms: state.errors,
                }),
                Err(error) => Err(error.to_string()),
            };
            members.push(MemberStatus {
                address: address.clone(),
                state,
            });
        }
        let settings = found.settings;
        Ok(ClusterStatus {
            log: Transferred::at(found.head, found.log_id),
            max_staleness: settings.map(|settings| Duration::from_millis(settings.max_staleness_ms)),
            max_token_lifetime: settings.map(|settings| Duration::from_secs(settings.max_token_lifetime_s)),
            replicas: found.replicas.into_iter().collect(),
            members,
        })
    };
    Handle::current().block_on(asking)
}

/// The whole log as one beginning, with its name and its notes.
fn whole(store: &dyn LogStore) -> Result<(Cut, LogId, Notes), StoreError> {
    let log_id = store.log_id();
    let mut view = LogView::new(&log_id, HistoryBounds { entries: 1, bytes: 1 });
    store.replay(&mut view)?;
    let cut = Cut::new(view.state.freeze(), view.digests, 0);
    Ok((cut, log_id, store.notes()))
}

fn client(store: &StoreOptions) -> Result<Client, StoreError> {
    let client = Client::new(&store.address, store.security.clone(), 0);
    client.map_err(|error| StoreError::Etcd(error.into()))
}

impl Transferred {
    fn at(head: Head, log_id: LogId) -> Self {
        Self {
            log_id,
            seq: head.seq,
            digest: base16ct::lower::encode_string(head.digest.as_bytes()),
        }
    }
}

const ASK_TIMEOUT: Duration = Duration::from_secs(1);
