//! A real control plane, `credence serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::{Client, Failure, Reply, Request, ports, tls, waiting};

/// A control plane with its folder and its addresses, running or not; killed when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    program: PathBuf,
    folder: PathBuf,
    http: SocketAddr,
    grpc: SocketAddr,
    log_id: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    /// Who has signed the certificate of its HTTP API; nothing if that speaks plain text.
    authority: Option<PathBuf>,
    process: Process,
}

impl ControlPlane {
    /// Creates a log that nothing was ever revoked in, and serves it, with these further options of `credence serve`.
    /// What it stores and prints goes into `folder`.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn start(program: &Path, folder: &Path, options: &[String]) -> Result<Self, Failure> {
        Self::start_in(program, folder, options, &[], None)
    }

    /// The same with these variables in its environment. `authority` has signed the certificate of its HTTP API, if the
    /// options have it speak TLS.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in(
        program: &Path,
        folder: &Path,
        options: &[String],
        environment: &[(String, String)],
        authority: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let [http, grpc] = free_addresses()?;
        let environment = environment.to_vec();
        let process = launch(
            program,
            folder,
            http,
            grpc,
            (options, &environment),
            &["--init", "--fresh"],
        )?;
        let mut this = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            http,
            grpc,
            log_id: String::new(),
            options: options.to_vec(),
            environment,
            authority,
            process,
        };
        this.wait_until_ready()?;
        this.learn_log_id()?;
        Ok(this)
    }

    /// Where its HTTP API is.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where filters connect.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// The log that filters pin.
    pub fn log_id(&self) -> &str {
        &self.log_id
    }

    /// The file with the operator's token.
    pub fn token_file(&self) -> PathBuf {
        token_file(&self.folder)
    }

    /// The HTTP API's address as the `credence` command takes it.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.http)
    }

    /// The options with which a `credence` command reaches it.
    pub fn place(&self) -> Vec<String> {
        let mut place = vec!["--control-plane".to_owned(), self.url()];
        if let Some(authority) = &self.authority {
            place.extend(["--ca".to_owned(), authority.display().to_string()]);
        }
        place
    }

    /// Sends a request to its HTTP API.
    ///
    /// # Errors
    /// If there is no reply.
    pub fn send(&self, request: &Request) -> Result<Reply, Failure> {
        match &self.authority {
            Some(_) => tls::send(self.http, None, request),
            None => Client::connect(self.http)?.send(request),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it on the spot, as a crash would.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()
    }

    /// Stops it as planned (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// If it does not stop.
    pub fn stop(&mut self) -> Result<ExitStatus, Failure> {
        self.process.stop()
    }

    /// Has it do nothing at all, as a disk that does not answer would, until [`resume`](Self::resume).
    ///
    /// # Errors
    /// If it is gone.
    pub fn suspend(&self) -> Result<(), Failure> {
        self.process.suspend()
    }

    /// Has it go on.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resume(&self) -> Result<(), Failure> {
        self.process.resume()
    }

    /// Starts it again, after [`kill`](Self::kill) or [`stop`](Self::stop), with the same folder and addresses.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.relaunch(&[])
    }

    /// The same without waiting until it is ready.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart_and_not_wait(&mut self) -> Result<(), Failure> {
        self.launch_again(&[])
    }

    /// The same as [`restart`](Self::restart), as a new log (`--init`) in a folder that must be empty.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn restart_as_a_new_log(&mut self) -> Result<(), Failure> {
        self.relaunch(&["--init"])?;
        self.learn_log_id()
    }

    /// The same as [`restart`](Self::restart), on other addresses.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn restart_elsewhere(&mut self) -> Result<(), Failure> {
        [self.http, self.grpc] = free_addresses()?;
        self.relaunch(&[])
    }

    /// Has the next start run this program: another version.
    pub fn upgrade_to(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Whether it ends by itself within this time.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn has_ended_by(&mut self, time: Duration) -> Result<bool, Failure> {
        let begun = Instant::now();
        waiting::until("the control plane to end, or time to pass", || {
            let has_ended = self.process.ended()?.is_some();
            Ok((has_ended || begun.elapsed() > time).then_some(has_ended))
        })
    }

    /// The folder that holds its log, while it runs or not.
    pub fn data_folder(&self) -> PathBuf {
        data_folder(&self.folder)
    }

    /// The value of a metric by its full name, labels included; 0 while there is none.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn metric(&self, name: &str) -> Result<f64, Failure> {
        let page = Client::connect(self.http)?.send(&Request::get("/metrics"))?.text();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or_default())
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        self.process.output()
    }

    fn relaunch(&mut self, more: &[&str]) -> Result<(), Failure> {
        self.launch_again(more)?;
        self.wait_until_ready()
    }

    fn launch_again(&mut self, more: &[&str]) -> Result<(), Failure> {
        let settings = (&self.options[..], &self.environment[..]);
        self.process = launch(&self.program, &self.folder, self.http, self.grpc, settings, more)?;
        Ok(())
    }

    fn learn_log_id(&mut self) -> Result<(), Failure> {
        self.log_id = waiting::until("the control plane to say its log_id", || {
            let output = self.process.output();
            let mut said = output.lines().filter_map(|line| line.strip_prefix("log_id: "));
            Ok(said.next_back().map(str::to_owned))
        })?;
        Ok(())
    }

    /// Waits until it says that it can do its work.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn wait_until_ready(&mut self) -> Result<(), Failure> {
        waiting::until("the control plane to be ready", || {
            self.process.check_running()?;
            let reply = self.send(&Request::get("/readyz"));
            // Nobody may be listening yet.
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }
}

fn launch(
    program: &Path,
    folder: &Path,
    http: SocketAddr,
    grpc: SocketAddr,
    (options, environment): (&[String], &[(String, String)]),
    more: &[&str],
) -> Result<Process, Failure> {
    let mut command = Command::new(program);
    command
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .arg("serve")
        .args(more)
        .args(options)
        .arg("--data")
        .arg(data_folder(folder))
        .arg("--operator-token-file")
        .arg(token_file(folder))
        .args(["--http", &http.to_string(), "--grpc", &grpc.to_string()]);
    Process::start("the control plane", &mut command, &folder.join("control-plane.log"))
}

fn free_addresses() -> Result<[SocketAddr; 2], Failure> {
    Ok([ports::free()?, ports::free()?].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

fn data_folder(folder: &Path) -> PathBuf {
    folder.join("control-plane")
}

fn token_file(folder: &Path) -> PathBuf {
    folder.join("operator-token")
}
