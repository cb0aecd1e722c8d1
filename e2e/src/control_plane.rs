//! A real control plane, `credence serve`.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::process::Process;
use crate::{Client, Failure, Reply, Request, tls, waiting};

/// A control plane with its folder and its addresses, running or not; killed when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    program: PathBuf,
    folder: PathBuf,
    site: Site,
    log_id: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    /// The CA of its HTTP API's certificate; `None` if the API has no TLS.
    authority: Option<PathBuf>,
    process: Process,
}

/// Where a control plane serves.
#[derive(Debug, Clone)]
pub struct Site {
    /// Where it runs.
    pub place: Place,
    /// Of its HTTP API.
    pub http: SocketAddr,
    /// For filters.
    pub grpc: SocketAddr,
}

/// A further replica of a log on etcd.
#[derive(Debug)]
pub struct Replica<'a> {
    /// The `credence` program.
    pub program: &'a Path,
    /// The folder of its data and output.
    pub folder: &'a Path,
    /// Options of `credence serve`.
    pub options: &'a [String],
    /// Further environment variables.
    pub environment: &'a [(String, String)],
    /// Where it serves.
    pub site: Site,
}

impl Site {
    /// Free addresses there.
    ///
    /// # Errors
    /// If there are none.
    pub fn at(place: Place) -> Result<Self, Failure> {
        Ok(Self {
            http: place.free_address()?,
            grpc: place.free_address()?,
            place,
        })
    }
}

impl ControlPlane {
    /// Creates a log without revocations and serves it, with these further options of `credence serve`. Data and output
    /// go into `folder`.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn start(program: &Path, folder: &Path, options: &[String]) -> Result<Self, Failure> {
        Self::start_in(program, folder, options, &[], None)
    }

    /// The same with these environment variables. `authority` is the CA of its HTTP API's certificate, if the options
    /// turn TLS on.
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
        let site = Site::at(Place::default())?;
        Self::start_at(site, program, folder, options, environment, authority)
    }

    /// The same there.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(
        site: Site,
        program: &Path,
        folder: &Path,
        options: &[String],
        environment: &[(String, String)],
        authority: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let environment = environment.to_vec();
        let process = launch(program, folder, &site, (options, &environment), &["--init", "--fresh"])?;
        let mut this = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            site,
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

    /// Another replica of a log on etcd, which the options name, with the operator's token of the first.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn join(replica: Replica<'_>, first: &Self) -> Result<Self, Failure> {
        let token_file = token_file(replica.folder);
        std::fs::copy(first.token_file(), token_file).map_err(Failure::of("copying the operator's token"))?;
        Self::start_replica(replica, &first.log_id)
    }

    /// A replica of the log of this name, with an operator's token that is in its folder.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_replica(replica: Replica<'_>, log_id: &str) -> Result<Self, Failure> {
        let Replica {
            program,
            folder,
            options,
            environment,
            site,
        } = replica;
        let process = launch(program, folder, &site, (options, environment), &[])?;
        let mut this = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            site,
            log_id: log_id.to_owned(),
            options: options.to_vec(),
            environment: environment.to_vec(),
            authority: None,
            process,
        };
        this.wait_until_ready()?;
        Ok(this)
    }

    /// The address of its HTTP API.
    pub fn http(&self) -> SocketAddr {
        self.site.http
    }

    /// The address that filters connect to.
    pub fn grpc(&self) -> SocketAddr {
        self.site.grpc
    }

    /// The id of the log that filters pin.
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
        format!("{scheme}://{}", self.site.http)
    }

    /// The options with which a `credence` command connects to it.
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
            Some(_) => tls::send(self.site.http, None, request),
            None => Client::connect(self.site.http)?.send(request),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it with SIGKILL, as a crash would.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()
    }

    /// Stops it with SIGTERM and waits until it ends.
    ///
    /// # Errors
    /// If it does not stop.
    pub fn stop(&mut self) -> Result<ExitStatus, Failure> {
        self.process.stop()
    }

    /// Stops its process with SIGSTOP until [`resume`](Self::resume), as if its disk did not answer.
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

    /// Declares that its log was restored from a backup, and serves it under the new name.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn restart_restored(&mut self) -> Result<(), Failure> {
        let named = self.log_id.clone();
        self.relaunch(&["--restored", &named])?;
        self.learn_log_id()
    }

    /// Starts it again, after [`kill`](Self::kill) or [`stop`](Self::stop), with the same folder and addresses.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.relaunch(&[])
    }

    /// The same, but does not wait until it is ready.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart_and_not_wait(&mut self) -> Result<(), Failure> {
        self.launch_again(&[])
    }

    /// The same as [`restart`](Self::restart), as a new log (`--init`) in a folder that must be empty.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn restart_as_a_new_log(&mut self) -> Result<(), Failure> {
        self.relaunch(&["--init"])?;
        self.learn_log_id()
    }

    /// The same as [`restart`](Self::restart), on other addresses.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn restart_elsewhere(&mut self) -> Result<(), Failure> {
        self.site = Site::at(self.site.place.clone())?;
        self.relaunch(&[])
    }

    /// Sets the further options for the next start.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
    }

    /// Sets the program for the next start, such as another version.
    pub fn upgrade_to(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// If the process status cannot be read.
    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.process.ended()?.is_some())
    }

    /// Whether it ends by itself within this time.
    ///
    /// # Errors
    /// If the process status cannot be read.
    pub fn has_ended_by(&mut self, time: Duration) -> Result<bool, Failure> {
        let begun = Instant::now();
        waiting::until("the control plane to end, or time to pass", || {
            let has_ended = self.process.ended()?.is_some();
            Ok((has_ended || begun.elapsed() > time).then_some(has_ended))
        })
    }

    /// The folder of its log.
    pub fn data_dir(&self) -> PathBuf {
        data_dir(&self.folder)
    }

    /// The value of a metric by its full name, labels included; 0 if it does not exist.
    ///
    /// # Errors
    /// If the control plane does not answer.
    pub fn metric(&self, name: &str) -> Result<f64, Failure> {
        let page = Client::connect(self.site.http)?.send(&Request::get("/metrics"))?.text();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or_default())
    }

    /// Its output.
    pub fn log(&self) -> String {
        self.process.output()
    }

    fn relaunch(&mut self, more: &[&str]) -> Result<(), Failure> {
        self.launch_again(more)?;
        self.wait_until_ready()
    }

    fn launch_again(&mut self, more: &[&str]) -> Result<(), Failure> {
        let settings = (&self.options[..], &self.environment[..]);
        self.process = launch(&self.program, &self.folder, &self.site, settings, more)?;
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

    /// Waits until it reports that it is ready.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn wait_until_ready(&mut self) -> Result<(), Failure> {
        waiting::until("the control plane to be ready", || {
            self.process.check_running()?;
            let reply = self.send(&Request::get("/readyz"));
            // It may not be listening yet.
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }
}

fn launch(
    program: &Path,
    folder: &Path,
    site: &Site,
    (options, environment): (&[String], &[(String, String)]),
    more: &[&str],
) -> Result<Process, Failure> {
    let mut command = site.place.command(program);
    command
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .arg("serve")
        .args(more)
        .args(options)
        .arg("--data")
        .arg(data_dir(folder))
        .arg("--operator-token-file")
        .arg(token_file(folder))
        .args(["--http", &site.http.to_string(), "--grpc", &site.grpc.to_string()]);
    Process::start("the control plane", &mut command, &folder.join("control-plane.log"))
}

fn data_dir(folder: &Path) -> PathBuf {
    folder.join("control-plane")
}

fn token_file(folder: &Path) -> PathBuf {
    folder.join("operator-token")
}

/// Copies a data folder, with the control plane's file modes: only their owner can read them.
///
/// # Errors
/// Something cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}
