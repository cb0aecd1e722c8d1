//! Three replicas on three members of etcd, and Envoys that may follow any of them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::artefacts::Artefacts;
use crate::control_plane::{ControlPlane, Replica, Site};
use crate::envoy::Envoy;
use crate::etcd::{Etcd, MEMBERS};
use crate::false_clock::FalseClock;
use crate::network::Network;
use crate::operator::Operator;
use crate::place::Place;
use crate::small_disk::SmallDisk;
use crate::stack::{Stack, StackOptions};
use crate::{Failure, waiting};

/// Everything, running.
#[derive(Debug)]
pub struct Cluster {
    /// Its control plane is the first replica.
    pub stack: Stack,
    /// An Envoy beside the stack's.
    pub second_envoy: Option<Envoy>,
    /// The members.
    pub etcd: Etcd,
    /// The paths, if the programs have places of their own.
    pub network: Option<Network>,
    /// The wall clock of [`MISLED`], if the programs have places of their own.
    pub clock: Option<FalseClock>,
    others: Vec<ControlPlane>,
    small_disk: Option<SmallDisk>,
    places: Vec<Place>,
    _folder: TempDir,
}

/// How a cluster is run.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Each replica and each member is a node of a network, the wall clock of [`MISLED`] can jump, and the disks of
    /// [`CRAMPED`] and of the last member can be filled.
    pub has_faults: bool,
    /// Two Envoys, not one.
    pub has_second_envoy: bool,
    /// Another program for the replicas than the built one.
    pub program: Option<PathBuf>,
    /// Further options of the replicas.
    pub serve_options: Vec<String>,
}

impl Cluster {
    /// Starts everything, and waits until the first Envoy's filters decide. `None` without etcd, which needs Go.
    ///
    /// # Errors
    /// If a program does not start.
    pub fn start(options: &ClusterOptions) -> Result<Option<Self>, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
        let folder_of = |name: &str| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).map_err(Failure::of(format_args!("making {}", folder.display())))?;
            Ok::<_, Failure>(folder)
        };
        let mut network = options.has_faults.then(|| Network::start(folder.path())).transpose()?;
        let mut places = |count: usize| {
            let place = |_| network.as_mut().map_or_else(|| Ok(Place::default()), Network::add);
            (0..count).map(place).collect::<Result<Vec<_>, Failure>>()
        };
        let (members, places) = (places(MEMBERS)?, places(REPLICAS)?);
        let disk = options.has_faults.then_some(ETCD_DISK_MIB);
        let Some(etcd) = Etcd::start_at(&folder_of("etcd")?, members, disk)? else {
            eprintln!("SKIPPED: etcd is not built here, because there is no Go that is new enough");
            return Ok(None);
        };
        let secrets = folder_of("secrets")?;
        for name in ["audit-source-key", "filter-cache-secret"] {
            fs::write(secrets.join(name), [7; 32]).map_err(Failure::of("writing a secret"))?;
        }
        let store = ["--store", &etcd.address(), "--secrets", &secrets.display().to_string()].map(str::to_owned);
        let serve_options = [&store[..], &options.serve_options].concat();
        let sites: Vec<_> = places.iter().cloned().map(Site::at).collect::<Result<_, _>>()?;
        let program = match &options.program {
            Some(program) => program.clone(),
            None => Artefacts::from_environment()?.credence,
        };
        let stack = Stack::start(&reaching(
            StackOptions {
                serve_options: serve_options.clone(),
                control_plane_site: sites.first().cloned(),
                control_plane_program: Some(program.clone()),
                unsynced: true,
                ..StackOptions::default()
            },
            &sites,
        ))?;
        let clock_folder = folder_of("clock")?;
        let clock = options
            .has_faults
            .then(|| FalseClock::right(&clock_folder))
            .transpose()?;
        let (mut others, mut small_disk) = (Vec::new(), None);
        for (nth, site) in sites.into_iter().enumerate().skip(1) {
            let folder = folder_of(&format!("replica{nth}"))?;
            let mut program = program.clone();
            if options.has_faults && nth == CRAMPED {
                let data = folder_of(&format!("replica{nth}/control-plane"))?;
                small_disk = SmallDisk::over(&data, REPLICA_DISK_MIB, &folder)?;
                if let Some(disk) = &small_disk {
                    program = disk.program(&program)?;
                }
            }
            let environment = match &clock {
                Some(clock) if nth == MISLED => clock.environment(),
                _ => Vec::new(),
            };
            let replica = Replica {
                program: &program,
                folder: &folder,
                options: &serve_options,
                environment: &environment,
                site,
            };
            others.push(ControlPlane::join(replica, &stack.control_plane)?);
        }
        stack.wait_until_synced()?;
        let port = stack.control_plane.grpc().port();
        let second_envoy = options
            .has_second_envoy
            .then(|| stack.another_envoy(port))
            .transpose()?;
        Ok(Some(Self {
            stack,
            second_envoy,
            etcd,
            network,
            clock,
            others,
            small_disk,
            places,
            _folder: folder,
        }))
    }

    /// A replica by its number.
    ///
    /// # Panics
    /// If there is none.
    pub fn replica(&mut self, nth: usize) -> &mut ControlPlane {
        match nth.checked_sub(1) {
            None => &mut self.stack.control_plane,
            Some(other) => &mut self.others[other],
        }
    }

    /// Where a replica runs.
    ///
    /// # Panics
    /// If there is none.
    pub fn place(&self, replica: usize) -> &Place {
        &self.places[replica]
    }

    /// The disk of [`CRAMPED`]'s data, if it is a small one.
    pub fn small_disk(&self) -> Option<&SmallDisk> {
        self.small_disk.as_ref()
    }

    /// `credence audit` with this subcommand and these options, over the ledgers of all replicas.
    ///
    /// # Errors
    /// If the command fails.
    pub fn audit(&mut self, options: &[&str]) -> Result<String, Failure> {
        let token_file = self.stack.control_plane.token_file().display().to_string();
        let urls: Vec<_> = (0..REPLICAS).map(|nth| self.replica(nth).url()).collect();
        let places = urls.iter().enumerate().flat_map(|(nth, url)| {
            let option = if nth == 0 { "--control-plane" } else { "--also" };
            [option, url.as_str()]
        });
        let arguments = ["audit"].into_iter().chain(options.iter().copied()).chain(places);
        self.stack.credence.run(arguments.chain(["--token-file", &token_file]))
    }

    /// Waits until all members and replicas are there again.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_whole(&mut self) -> Result<(), Failure> {
        self.etcd.wait_until_all_healthy()?;
        for nth in 0..REPLICAS {
            let replica = self.replica(nth);
            let mut last = None;
            let what = format_args!("replica {nth} to have a quorum");
            let whole = waiting::until_at_most(LONG_RECOVERY, what, || {
                // A look-up of a principal needs one.
                let operator = Operator::of(replica)?;
                let known = operator.patient_for(A_SECOND).epoch_of("nobody");
                Ok(known.map_err(|failure| last = Some(failure)).ok())
            });
            whole.map_err(|failure| match last {
                Some(last) => Failure::new(format!("{failure}; its last answer: {last}")),
                None => failure,
            })?;
        }
        Ok(())
    }
}

/// Envoy's cluster of the control plane has all these addresses.
fn reaching(options: StackOptions, sites: &[Site]) -> StackOptions {
    const ENDPOINT: &str = "              - endpoint:\n                  address: {socket_address: {address: 127.0.0.1, port_value: 7071}}\n";
    let at = |site: &Site| ENDPOINT.replace("127.0.0.1", &site.place.address().to_string());
    let first = sites.iter().take(1).map(at);
    let others = sites.iter().skip(1);
    let others = others.map(|site| at(site).replace("7071", &site.grpc.port().to_string()));
    let all: String = first.chain(others).collect();
    options.replacing(ENDPOINT, &all)
}

/// As many as members, though they need not be.
pub const REPLICAS: usize = 3;
/// The replica whose wall clock can jump.
pub const MISLED: usize = 1;
/// The replica whose disk can be filled.
pub const CRAMPED: usize = 2;
/// For two files of etcd's log, 64 MiB each, and its data.
const ETCD_DISK_MIB: u32 = 256;
const REPLICA_DISK_MIB: u32 = 96;
const A_SECOND: Duration = Duration::from_secs(1);
/// After a fault, on a busy machine with a slow disk.
const LONG_RECOVERY: Duration = Duration::from_secs(60);
