//! A real control plane, `credence serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

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
    /// Who has signed the certificate of its HTTP API; nothing if that speaks plain text.
    authority: Option<PathBuf>,
    process: Process,
}

impl ControlPlane {
    /// Creates a log that nothing was ever revoked in, and serves it, with these further options of `credence serve`.
    /// What it stores and prints goes into `folder`.
    ///
    /// `authority` has signed the certificate of its HTTP API, if the options have it speak TLS.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn start(
        program: &Path,
        folder: &Path,
        options: &[String],
        authority: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let [http, grpc] = [ports::free()?, ports::free()?].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let process = launch(program, folder, http, grpc, options, &["--init", "--fresh"])?;
        let mut this = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            http,
            grpc,
            log_id: String::new(),
            options: options.to_vec(),
            authority,
            process,
        };
        this.wait_until_ready()?;
        this.log_id = waiting::until("the control plane to say its log_id", || {
            let output = this.process.output();
            Ok(output
                .lines()
                .find_map(|line| line.strip_prefix("log_id: "))
                .map(str::to_owned))
        })?;
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
    /// If it can not be killed.
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

    /// Starts it again, after [`kill`](Self::kill) or [`stop`](Self::stop), with the same folder and addresses.
    ///
    /// # Errors
    /// If it does not become ready, with its last words.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.process = launch(&self.program, &self.folder, self.http, self.grpc, &self.options, &[])?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
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
    options: &[String],
    more: &[&str],
) -> Result<Process, Failure> {
    let mut command = Command::new(program);
    command
        .arg("serve")
        .args(more)
        .args(options)
        .arg("--data")
        .arg(folder.join("control-plane"))
        .arg("--operator-token-file")
        .arg(token_file(folder))
        .args(["--http", &http.to_string(), "--grpc", &grpc.to_string()]);
    Process::start("the control plane", &mut command, &folder.join("control-plane.log"))
}

fn token_file(folder: &Path) -> PathBuf {
    folder.join("operator-token")
}
