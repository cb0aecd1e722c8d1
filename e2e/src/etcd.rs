//! A real etcd cluster of three members.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::{Client, Failure, Request, ports, waiting};

/// Three members on this machine, each with its own folder.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    /// The ports for clients and for the other members.
    ports: Vec<(u16, u16)>,
    members: Vec<Process>,
}

impl Etcd {
    /// Starts the members, with data and output in `folder`. `None` if etcd was not built, because there is no Go.
    ///
    /// # Errors
    /// If a member does not become healthy.
    pub fn start(folder: &Path) -> Result<Option<Self>, Failure> {
        let programs = std::env::var_os("CREDENCE_ETCD")
            .ok_or_else(|| Failure::new("CREDENCE_ETCD is not set: run `make test`"))?;
        let program = Path::new(&programs).join("etcd");
        if !program.is_file() {
            return Ok(None);
        }
        let ports = (0..MEMBERS).map(|_| Ok((ports::free()?, ports::free()?)));
        let mut etcd = Self {
            program,
            folder: folder.to_owned(),
            ports: ports.collect::<Result<_, Failure>>()?,
            members: Vec::new(),
        };
        for member in 0..MEMBERS {
            let process = etcd.launch(member)?;
            etcd.members.push(process);
        }
        for member in 0..MEMBERS {
            etcd.wait_until_healthy(member)?;
        }
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

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
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

    /// Waits until a member knows a leader.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_healthy(&mut self, member: usize) -> Result<(), Failure> {
        let (client, _) = self.ports[member];
        waiting::until(format_args!("member {member} of etcd to be healthy"), || {
            self.members[member].check_running()?;
            let address = ([127, 0, 0, 1], client).into();
            let reply = Client::connect(address).and_then(|mut client| client.send(&Request::get("/health")));
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }

    fn launch(&self, member: usize) -> Result<Process, Failure> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = self.ports[member];
        let all = self.ports.iter().enumerate();
        let all: Vec<_> = all
            .map(|(nth, (_, peer))| format!("member{nth}={}", url(*peer)))
            .collect();
        let name = format!("member{member}");
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &name, "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.folder.join(&name))
            .args([
                "--listen-client-urls",
                &url(client),
                "--advertise-client-urls",
                &url(client),
            ])
            .args([
                "--listen-peer-urls",
                &url(peer),
                "--initial-advertise-peer-urls",
                &url(peer),
            ])
            .args(["--initial-cluster", &all.join(",")]);
        Process::start("etcd", &mut command, &self.folder.join(format!("{name}.log")))
    }
}

const MEMBERS: usize = 3;
