//! A real etcd cluster of three members.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::process::Process;
use crate::small_disk::SmallDisk;
use crate::tls::Authority;
use crate::{Client, Failure, Request, waiting};

/// Three members, each with its own folder.
#[derive(Debug)]
pub struct Etcd {
    programs: PathBuf,
    folder: PathBuf,
    sites: Vec<Site>,
    members: Vec<Process>,
    /// How often it was restored; each time into new folders.
    restores: usize,
    /// If clients must show a certificate of this authority.
    authority: Option<Authority>,
}

/// Where a member serves.
#[derive(Debug)]
struct Site {
    place: Place,
    /// Its addresses for clients, for the other members, and for its metrics.
    client: SocketAddr,
    peer: SocketAddr,
    metrics: SocketAddr,
    /// The disk of its data, if it is a small one.
    disk: Option<SmallDisk>,
}

impl Etcd {
    /// Starts the members, with data and output in `folder`. `None` if etcd was not built, because there is no Go.
    ///
    /// # Errors
    /// If a member does not become healthy.
    pub fn start(folder: &Path) -> Result<Option<Self>, Failure> {
        Self::start_at(folder, vec![Place::default(); MEMBERS], None)
    }

    /// The same with TLS, for clients with a certificate of this authority. With `user`, they must also log in: the name
    /// and the password of a user who may read and write `/credence/`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_secured(
        folder: &Path,
        authority: Authority,
        (user, password): (&str, &str),
    ) -> Result<Option<Self>, Failure> {
        let Some(etcd) = Self::start_with(folder, vec![Place::default(); MEMBERS], None, Some(authority))? else {
            return Ok(None);
        };
        let role = ["role", "add", "writer"];
        let permission = [
            "role",
            "grant-permission",
            "writer",
            "--prefix=true",
            "readwrite",
            "/credence/",
        ];
        let named = format!("{user}:{password}");
        let commands: [&[&str]; 7] = [
            &["user", "add", "root:root"],
            &["user", "grant-role", "root", "root"],
            &role,
            &permission,
            &["user", "add", &named],
            &["user", "grant-role", user, "writer"],
            &["auth", "enable"],
        ];
        for command in commands {
            run(etcd.etcdctl()?.args(command))?;
        }
        Ok(Some(etcd))
    }

    /// The same with a member at each of these places. The data of the last is on a disk of so many MiB, if the system
    /// allows it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(folder: &Path, places: Vec<Place>, disk_mib: Option<u32>) -> Result<Option<Self>, Failure> {
        Self::start_with(folder, places, disk_mib, None)
    }

    fn start_with(
        folder: &Path,
        places: Vec<Place>,
        disk_mib: Option<u32>,
        authority: Option<Authority>,
    ) -> Result<Option<Self>, Failure> {
        let programs = std::env::var_os("CREDENCE_ETCD")
            .ok_or_else(|| Failure::new("CREDENCE_ETCD is not set: run `make test`"))?;
        let programs = PathBuf::from(programs);
        if !programs.join("etcd").is_file() {
            return Ok(None);
        }
        let site = |place: Place| {
            Ok(Site {
                client: place.free_address()?,
                peer: place.free_address()?,
                metrics: place.free_address()?,
                place,
                disk: None,
            })
        };
        let mut etcd = Self {
            programs,
            folder: folder.to_owned(),
            sites: places.into_iter().map(site).collect::<Result<_, Failure>>()?,
            members: Vec::new(),
            restores: 0,
            authority,
        };
        if let Some(mib) = disk_mib {
            let last = MEMBERS - 1;
            let data = etcd.data(last);
            fs::create_dir(&data).map_err(Failure::of("making a folder for etcd"))?;
            etcd.sites[last].disk = SmallDisk::over(&data, mib, folder)?;
        }
        for member in 0..MEMBERS {
            let process = etcd.launch(member)?;
            etcd.members.push(process);
        }
        etcd.wait_until_all_healthy()?;
        Ok(Some(etcd))
    }

    /// The store's address, as `credence serve` takes it.
    #[must_use]
    pub fn address(&self) -> String {
        let members: Vec<_> = self.sites.iter().map(|site| site.client.to_string()).collect();
        format!("etcd://{}", members.join(","))
    }

    /// The members' numbers.
    pub fn members(&self) -> std::ops::Range<usize> {
        0..MEMBERS
    }

    /// A member's process.
    pub fn member(&mut self, member: usize) -> &mut Process {
        &mut self.members[member]
    }

    /// What a member's data take on its disk.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn bytes_on_disk(&self, member: usize) -> Result<u64, Failure> {
        bytes_in(&self.data(member)).map_err(Failure::of("reading a folder of etcd"))
    }

    /// Where a member runs.
    pub fn place(&self, member: usize) -> &Place {
        &self.sites[member].place
    }

    /// The disk of the last member's data, if it is a small one.
    pub fn small_disk(&self) -> Option<&SmallDisk> {
        self.sites.last().and_then(|site| site.disk.as_ref())
    }

    /// The member that leads, as it says itself.
    ///
    /// # Errors
    /// If none does.
    pub fn leader(&self) -> Result<usize, Failure> {
        waiting::until("a leader of etcd", || {
            let leads = |member: &usize| {
                let page = Client::connect(self.sites[*member].metrics)
                    .and_then(|mut client| client.send(&Request::get("/metrics")));
                page.is_ok_and(|page| page.text().lines().any(|line| line == "etcd_server_is_leader 1"))
            };
            Ok(self.members().find(leads))
        })
    }

    /// Starts a member again that was killed or stopped.
    ///
    /// # Errors
    /// If it does not become healthy.
    pub fn restart(&mut self, member: usize) -> Result<(), Failure> {
        self.restart_and_not_wait(member)?;
        self.wait_until_healthy(member)
    }

    /// The same, but does not wait.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart_and_not_wait(&mut self, member: usize) -> Result<(), Failure> {
        self.members[member] = self.launch(member)?;
        Ok(())
    }

    /// Takes a snapshot, as `etcdctl snapshot save` does.
    ///
    /// # Errors
    /// If that fails.
    pub fn save_snapshot(&self) -> Result<PathBuf, Failure> {
        let file = self.folder.join("snapshot.db");
        run(self.etcdctl()?.args(["snapshot", "save"]).arg(&file))?;
        Ok(file)
    }

    /// etcdctl, for the first member.
    fn etcdctl(&self) -> Result<Command, Failure> {
        let mut command = Command::new(self.programs.join("etcdctl"));
        command.args(["--endpoints", &self.client_url(0)]);
        if let Some(authority) = &self.authority {
            let client = authority.issue("etcdctl", "DNS:etcdctl")?;
            command.arg("--cacert").arg(authority.certificate());
            command
                .arg("--cert")
                .arg(&client.certificate)
                .arg("--key")
                .arg(&client.key);
        }
        Ok(command)
    }

    fn client_url(&self, member: usize) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.sites[member].client)
    }

    /// Kills all members, and starts them with the snapshot's data, as after `etcdutl snapshot restore`: with the same
    /// ids and, if `bumped`, with revisions beyond any that were given out.
    ///
    /// # Errors
    /// If that fails.
    pub fn restore(&mut self, snapshot: &Path, bumped: bool) -> Result<(), Failure> {
        for member in &mut self.members {
            member.kill()?;
        }
        self.restores += 1;
        for member in self.members() {
            let mut command = Command::new(self.programs.join("etcdutl"));
            command
                .args(["snapshot", "restore"])
                .arg(snapshot)
                .args(["--name", &name(member), "--initial-cluster", &self.all()])
                .args(["--initial-advertise-peer-urls", &url(self.sites[member].peer)])
                .arg("--data-dir")
                .arg(self.data(member));
            if bumped {
                command.args(["--bump-revision", "1000000", "--mark-compacted"]);
            }
            run(&mut command)?;
        }
        for member in self.members() {
            self.members[member] = self.launch(member)?;
        }
        self.wait_until_all_healthy()
    }

    /// Waits until every member knows a leader.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_all_healthy(&mut self) -> Result<(), Failure> {
        self.members().try_for_each(|member| self.wait_until_healthy(member))
    }

    /// Waits until a member knows a leader.
    fn wait_until_healthy(&mut self, member: usize) -> Result<(), Failure> {
        let address = self.sites[member].metrics;
        waiting::until(format_args!("member {member} of etcd to be healthy"), || {
            self.members[member].check_running()?;
            let reply = Client::connect(address).and_then(|mut client| client.send(&Request::get("/health")));
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }

    fn launch(&self, member: usize) -> Result<Process, Failure> {
        let Site {
            place,
            peer,
            metrics,
            disk,
            ..
        } = &self.sites[member];
        let client = self.client_url(member);
        let name = name(member);
        let program = self.programs.join("etcd");
        let program = match disk {
            Some(disk) => disk.program(&program)?,
            None => program,
        };
        let mut command = place.command(&program);
        command
            .args(["--name", &name, "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.data(member))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-metrics-urls", &url(*metrics)])
            .args(["--listen-peer-urls", &url(*peer), "--initial-advertise-peer-urls"])
            .arg(url(*peer))
            .args(["--initial-cluster", &self.all()]);
        if let Some(authority) = &self.authority {
            let server = authority.issue(&name, "IP:127.0.0.1")?;
            command.arg("--cert-file").arg(&server.certificate);
            command.arg("--key-file").arg(&server.key);
            command.args(["--client-cert-auth", "--trusted-ca-file"]);
            command.arg(authority.certificate());
        }
        Process::start("etcd", &mut command, &self.folder.join(format!("{name}.log")))
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.join(format!("{}-{}", name(member), self.restores))
    }

    /// The members, as each must know them.
    fn all(&self) -> String {
        let all = self.sites.iter().enumerate();
        let all: Vec<_> = all
            .map(|(member, site)| format!("{}={}", name(member), url(site.peer)))
            .collect();
        all.join(",")
    }
}

fn bytes_in(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_in(&entry.path())?,
            // Blocks, since parts of a file may never have been written.
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}

fn name(member: usize) -> String {
    format!("member{member}")
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(Failure::of("running a program of etcd"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{command:?} failed: {said}")))
}

/// The fewest that survive the loss of one.
pub const MEMBERS: usize = 3;
