//! A real Envoy with the filter.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

use serde::Deserialize;

use crate::process::Process;
use crate::{Client, Failure, Reply, Request, waiting};

/// A running Envoy; killed when dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    workers: usize,
    admin: SocketAddr,
    ingress: SocketAddr,
}

/// Envoy's worker threads, each with a filter of its own. Two are enough to tell one worker's behavior from that of
/// all.
pub const WORKERS: usize = 2;

/// How an Envoy is run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The number of workers.
    pub workers: usize,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            workers: WORKERS,
            environment: Vec::new(),
        }
    }
}

impl Envoy {
    /// Starts one with this configuration and waits until it accepts requests. Its files go into `folder`.
    ///
    /// # Errors
    /// If it ends; the error has its last output.
    pub fn start(program: &Path, configuration: &str, folder: &Path) -> Result<Self, Failure> {
        Self::start_as(&Run::default(), program, configuration, folder)
    }

    /// The same with these options.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_as(run: &Run, program: &Path, configuration: &str, folder: &Path) -> Result<Self, Failure> {
        let address_file = admin_address_file(folder);
        // The file of an Envoy that ran here before.
        let _ = fs::remove_file(&address_file);
        let mut process = launch(run, program, configuration, folder)?;
        let admin: SocketAddr = waiting::until("Envoy to say where its admin page is", || {
            process.check_running()?;
            Ok(fs::read_to_string(&address_file)
                .ok()
                .and_then(|address| address.trim().parse().ok()))
        })?;
        waiting::until("Envoy to be ready", || {
            process.check_running()?;
            Ok(admin_page(admin, "/ready").ok().filter(|reply| reply.status == 200))
        })?;
        let ingress = listener_address(admin, "ingress")?;
        Ok(Self {
            process,
            workers: run.workers,
            admin,
            ingress,
        })
    }

    /// Starts one with an invalid configuration, and returns its output.
    ///
    /// # Errors
    /// If Envoy accepts the configuration.
    pub fn refuse(program: &Path, configuration: &str, folder: &Path) -> Result<String, Failure> {
        let mut process = launch(&Run::default(), program, configuration, folder)?;
        let status = waiting::until("Envoy to refuse the configuration", || process.ended())?;
        if status.success() {
            return Err(Failure::new("Envoy ended without an error"));
        }
        Ok(process.output())
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()
    }

    /// Stops its process with SIGSTOP until [`resume`](Self::resume).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn suspend(&self) -> Result<(), Failure> {
        self.process.suspend()
    }

    /// Continues it.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn resume(&self) -> Result<(), Failure> {
        self.process.resume()
    }

    /// The number of worker threads.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The address for requests.
    pub fn ingress(&self) -> SocketAddr {
        self.ingress
    }

    /// The address of the listener of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn listener(&self, name: &str) -> Result<SocketAddr, Failure> {
        listener_address(self.admin, name)
    }

    /// The address of its admin page.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// A page of its admin server.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn admin_page(&self, target: &str) -> Result<Reply, Failure> {
        admin_page(self.admin, target)
    }

    /// The value of a counter or gauge by its full name; 0 if Envoy does not have it.
    ///
    /// # Errors
    /// If the admin page does not answer.
    pub fn stat(&self, name: &str) -> Result<u64, Failure> {
        let page = self.admin_page("/stats")?.text();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
    }

    /// One connection to each worker, in the workers' order.
    ///
    /// # Errors
    /// If the kernel distributes connections too unevenly.
    pub fn connection_to_every_worker(&self) -> Result<Vec<Client>, Failure> {
        let mut connections: Vec<Option<Client>> = iter::repeat_with(|| None).take(self.workers).collect();
        // Unused connections stay open meanwhile: closing one would change the counts.
        let mut spare = Vec::new();
        waiting::until("connections to every worker", || {
            let before = self.connections_by_worker()?;
            let mut client = Client::connect(self.ingress)?;
            // Envoy has certainly counted a connection once it has answered on it.
            client.send(&Request::get("/healthz"))?;
            let after = self.connections_by_worker()?;
            let grown: Vec<usize> = (0..self.workers)
                .filter(|&worker| after.get(worker) > before.get(worker))
                .collect();
            match grown.as_slice() {
                [worker] => match connections.get_mut(*worker) {
                    Some(place @ None) => *place = Some(client),
                    _ => spare.push(client),
                },
                // Another client connected at the same time.
                _ => spare.push(client),
            }
            Ok(connections.iter().all(Option::is_some).then_some(()))
        })?;
        Ok(connections.into_iter().flatten().collect())
    }

    fn connections_by_worker(&self) -> Result<Vec<u64>, Failure> {
        (0..self.workers)
            .map(|worker| self.stat(&format!("listener.ingress.worker_{worker}.downstream_cx_total")))
            .collect()
    }
}

fn launch(run: &Run, program: &Path, configuration: &str, folder: &Path) -> Result<Process, Failure> {
    let file = folder.join("envoy.yaml");
    fs::write(&file, configuration).map_err(Failure::of(format_args!("writing {}", file.display())))?;
    let workers = run.workers.to_string();
    let mut command = Command::new(program);
    command
        .envs(run.environment.iter().map(|(name, value)| (name, value)))
        .arg("-c")
        .arg(&file)
        .args([
            "--concurrency",
            &workers,
            "--log-level",
            "warning",
            "--component-log-level",
            "wasm:info",
        ])
        // A replaced listener closes soon, and answers with `connection: close` until then.
        .args(["--drain-time-s", "2", "--drain-strategy", "immediate"])
        // Tests read the access log soon after a request.
        .args(["--file-flush-interval-msec", "100"])
        // With hot restart, Envoy would not run beside another one, and would end with the thread (not the process)
        // that started it.
        .arg("--disable-hot-restart")
        .arg("--admin-address-path")
        .arg(admin_address_file(folder));
    Process::start("Envoy", &mut command, &folder.join("envoy.log"))
}

fn admin_address_file(folder: &Path) -> PathBuf {
    folder.join("envoy-admin-address")
}

fn admin_page(admin: SocketAddr, target: &str) -> Result<Reply, Failure> {
    Client::connect(admin)?.send(&Request::get(target))
}

fn listener_address(admin: SocketAddr, name: &str) -> Result<SocketAddr, Failure> {
    #[derive(Deserialize)]
    struct Listeners {
        listener_statuses: Vec<Listener>,
    }
    #[derive(Deserialize)]
    struct Listener {
        name: String,
        local_address: Address,
    }
    #[derive(Deserialize)]
    struct Address {
        socket_address: SocketAddress,
    }
    #[derive(Deserialize)]
    struct SocketAddress {
        address: String,
        port_value: u16,
    }

    let page = admin_page(admin, "/listeners?format=json")?;
    let listeners: Listeners =
        serde_json::from_slice(&page.body).map_err(Failure::of("reading Envoy's list of listeners"))?;
    let address = listeners
        .listener_statuses
        .into_iter()
        .find(|listener| listener.name == name);
    address
        .and_then(|listener| {
            let SocketAddress { address, port_value } = listener.local_address.socket_address;
            format!("{address}:{port_value}").parse().ok()
        })
        .ok_or_else(|| Failure::new(format!("Envoy has no listener {name}")))
}
