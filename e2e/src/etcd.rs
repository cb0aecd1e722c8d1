//! A real etcd cluster of three members.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::{Client, Failure, Request, ports, waiting};

/// Three members on this machine, each with its own folder.
#[derive(Debug)]
pub struct Etcd {
    programs: PathBuf,
    folder: PathBuf,
    /// The ports for clients and for the other members.
    ports: Vec<(u16, u16)>,
    members: Vec<Process>,
    /// How often it was restored; each time into new folders.
    restores: usize,
}

impl Etcd {
    /// Starts the members, with data and output in `folder`. `None` if etcd was not built, because there is no Go.
    ///
    /// # Errors
    /// If a member does not become healthy.
    pub fn start(folder: &Path) -> Result<Option<Self>, Failure> {
        let programs = std::env::var_os("CREDENCE_ETCD")
            .ok_or_else(|| Failure::new("CREDENCE_ETCD is not set: run `make test`"))?;
        let programs = PathBuf::from(programs);
        if !programs.join("etcd").is_file() {
            return Ok(None);
        }
        let ports = (0..MEMBERS).map(|_| Ok((ports::free()?, ports::free()?)));
        let mut etcd = Self {
            programs,
            folder: folder.to_owned(),
            ports: ports.collect::<Result<_, Failure>>()?,
            members: Vec::new(),
            restores: 0,
        };
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
        let members: Vec<_> = self
            .ports
            .iter()
            .map(|(client, _)| format!("127.0.0.1:{client}"))
            .collect();
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

    /// Starts a member again that was killed or stopped.
    ///
    /// # Errors
    /// If it does not become healthy.
    pub fn restart(&mut self, member: usize) -> Result<(), Failure> {
        self.members[member] = self.launch(member)?;
        self.wait_until_healthy(member)
    }

    /// Takes a snapshot, as `etcdctl snapshot save` does.
    ///
    /// # Errors
    /// If that fails.
    pub fn save_snapshot(&self) -> Result<PathBuf, Failure> {
        let file = self.folder.join("snapshot.db");
        let (client, _) = self.ports[0];
        let mut command = Command::new(self.programs.join("etcdctl"));
        command
            .args(["--endpoints", &url(client), "snapshot", "save"])
            .arg(&file);
        run(&mut command)?;
        Ok(file)
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
                .args(["--initial-advertise-peer-urls", &url(self.ports[member].1)])
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

    fn wait_until_all_healthy(&mut self) -> Result<(), Failure> {
        self.members().try_for_each(|member| self.wait_until_healthy(member))
    }

    /// Waits until a member knows a leader.
    fn wait_until_healthy(&mut self, member: usize) -> Result<(), Failure> {
        let (client, _) = self.ports[member];
        waiting::until(format_args!("member {member} of etcd to be healthy"), || {
            self.members[member].check_running()?;
            let address = ([127, 0, 0, 1], client).into();
            let reply = Client::connect(address).and_then(|mut client| client.send(&Request::get("/health")));
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }

    fn launch(&self, member: usize) -> Result<Process, Failure> {
        let (client, peer) = self.ports[member];
        let name = name(member);
        let mut command = Command::new(self.programs.join("etcd"));
        command
            .args(["--name", &name, "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.data(member))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls"])
            .arg(url(client))
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls"])
            .arg(url(peer))
            .args(["--initial-cluster", &self.all()]);
        Process::start("etcd", &mut command, &self.folder.join(format!("{name}.log")))
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.join(format!("{}-{}", name(member), self.restores))
    }

    /// The members, as each must know them.
    fn all(&self) -> String {
        let all = self.ports.iter().enumerate();
        let all: Vec<_> = all
            .map(|(member, (_, peer))| format!("{}={}", name(member), url(*peer)))
            .collect();
        all.join(",")
    }
}

fn name(member: usize) -> String {
    format!("member{member}")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(Failure::of("running a program of etcd"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{command:?} failed: {said}")))
}

const MEMBERS: usize = 3;
