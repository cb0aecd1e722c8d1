//! A real `credence proxy`, between an agent and the service behind Envoy.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::oauth_client::CLIENT;
use crate::process::Process;
use crate::{AUDIENCE, Client, Failure, Reply, Request, Stack, guardian, waiting};

/// A proxy with its folder; killed when dropped.
#[derive(Debug)]
pub struct AgentProxy {
    program: PathBuf,
    process: Option<Process>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// Where each client connects, by its `listen` in the settings.
    addresses: Vec<(String, Option<SocketAddr>)>,
    starts: u32,
    // Last: files are removed once no process uses them.
    folder: TempDir,
}

// === impl AgentProxy ===

impl AgentProxy {
    /// A folder for its files. It does not run yet.
    ///
    /// # Errors
    /// If there is no folder.
    pub fn prepare(stack: &Stack) -> Result<Self, Failure> {
        let folder = TempDir::with_prefix("credence-proxy-").map_err(Failure::of("making a folder for the proxy"))?;
        guardian::own(folder.path())?;
        Ok(Self {
            program: stack.credence.program().to_owned(),
            process: None,
            environment: Vec::new(),
            addresses: Vec::new(),
            starts: 0,
            folder,
        })
    }

    /// Starts it with a delegation of the stack's agent, and this client (the settings below `name`), for the service
    /// behind Envoy.
    ///
    /// # Errors
    /// If it does not become ready; the error has its output.
    pub fn start(stack: &Stack, delegation: &str, client: &str) -> Result<Self, Failure> {
        let mut proxy = Self::prepare(stack)?;
        let settings = proxy.settings_for(stack, delegation, client)?;
        proxy.serve(&settings)?;
        Ok(proxy)
    }

    /// Settings for a delegation of the stack's agent.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn settings_for(&self, stack: &Stack, delegation: &str, client: &str) -> Result<String, Failure> {
        self.write("delegation", delegation)?;
        let (service, delegation) = (self.service(stack)?, self.file("delegation").display().to_string());
        let key = stack.agent.path();
        Ok(format!(
            r#"services:
  - {service}
credentials:
  - {{name: main, key: {{file: "{key}"}}, file: "{delegation}"}}
clients:
  - {{name: agent, {client}}}
"#
        ))
    }

    /// Settings for what a person grants to the client `planner` of the issuer at this URL: to charge the account acme, 100 at most.
    /// `more` are further settings of the credential's issuer.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn settings_with_issuer(&self, stack: &Stack, url: &str, more: &str) -> Result<String, Failure> {
        let (service, origin, key) = (self.service(stack)?, stack.origin(), stack.agent.path());
        Ok(format!(
            r#"services:
  - {service}
credentials:
  - name: main
    key: {{file: "{key}"}}
    issuer:
      url: {url}
      client_id: {CLIENT}
      audience: [{AUDIENCE}]
      tools:
        payments.charge:
          account: {{constraint_type: exact, value: acme}}
          amount: {{constraint_type: range, min: 0, max: 100}}
{more}
clients:
  - {{name: agent, listen: "127.0.0.1:0", service: "{origin}"}}
"#
        ))
    }

    /// The page where a person grants what the proxy asks for, as it tells the agent that sends this request.
    ///
    /// # Errors
    /// If it never does.
    pub fn consent_page(&self, request: &Request) -> Result<String, Failure> {
        let reply = waiting::until("the proxy to ask for consent", || {
            let reply = self.send(request.clone())?;
            Ok(reply.text().contains("open http://").then_some(reply))
        })?;
        let text = reply.text();
        let page = text.split("open ").nth(1).and_then(|rest| rest.split(' ').next());
        match (reply.status, reply.reason().as_deref(), page) {
            (401, Some("no_delegation"), Some(page)) => Ok(page.to_owned()),
            (status, reason, _) => Err(Failure::new(format!("{status} {reason:?}: {text}"))),
        }
    }

    /// An entry of `services` for the service behind Envoy, with the rules that its filter has.
    ///
    /// # Errors
    /// If the rules cannot be made.
    pub fn service(&self, stack: &Stack) -> Result<String, Failure> {
        self.write("rules.json", &stack.agent_rules()?)?;
        let (origin, rules) = (stack.origin(), self.file("rules.json").display().to_string());
        Ok(format!(
            r#"{{url: "{origin}", audience: [{AUDIENCE}], rules: "{rules}"}}"#
        ))
    }

    /// Starts it with these settings, and waits until it serves.
    ///
    /// # Errors
    /// If it does not; the error has its output.
    pub fn serve(&mut self, settings: &str) -> Result<(), Failure> {
        self.write("proxy.yaml", settings)?;
        self.restart()
    }

    /// Starts it again with the same files.
    ///
    /// # Errors
    /// See [`serve`](Self::serve).
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.starts += 1;
        let log = self.file(&format!("log-{}", self.starts));
        let mut command = Command::new(&self.program);
        command.arg("proxy").arg("--config").arg(self.file("proxy.yaml"));
        command.args(["--admin", "127.0.0.1:0", "--log", "debug"]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start("the proxy", &mut command, &log)?;
        self.addresses = waiting::until("the proxy to serve", || {
            let output = process.output();
            if !output.lines().any(|line| line.starts_with("admin ")) {
                process.check_running()?;
                return Ok(None);
            }
            let lines = output.lines().filter_map(|line| {
                let (listen, address) = line.split_once(' ').unwrap_or((line, ""));
                (listen.starts_with("127.") || listen.starts_with("unix:") || listen == "admin")
                    .then(|| (listen.to_owned(), address.parse().ok()))
            });
            Ok(Some(lines.collect()))
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Its process id, if it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Where the first client connects over TCP.
    ///
    /// # Errors
    /// If none does.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        let mut clients = self.addresses.iter().filter(|(listen, _)| listen != "admin");
        let address = clients.find_map(|(_, address)| *address);
        address.ok_or_else(|| Failure::new("no client connects over TCP"))
    }

    /// Where the client with this `listen` connects.
    ///
    /// # Errors
    /// If it does not connect over TCP.
    pub fn address_of(&self, listen: &str) -> Result<SocketAddr, Failure> {
        let client = self.addresses.iter().find(|(own, _)| own == listen);
        let address = client.and_then(|(_, address)| *address);
        address.ok_or_else(|| Failure::new(format!("no client connects to {listen}")))
    }

    /// Its operator's port.
    ///
    /// # Errors
    /// If it has none.
    pub fn admin(&self) -> Result<SocketAddr, Failure> {
        let admin = self.addresses.iter().find(|(listen, _)| listen == "admin");
        let address = admin.and_then(|(_, address)| *address);
        address.ok_or_else(|| Failure::new("the proxy has no operator's port"))
    }

    /// Sends a request of an agent, whose `Host` is the proxy's unless it has one.
    ///
    /// # Errors
    /// If there is no reply.
    pub fn send(&self, request: Request) -> Result<Reply, Failure> {
        let address = self.address()?;
        Client::connect(address)?.send(&request.without("host").header("host", address.to_string()))
    }

    /// All that it has printed since it last started.
    pub fn output(&self) -> String {
        self.process.as_ref().map(Process::output).unwrap_or_default()
    }

    /// A file of its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only this user can read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: &str) -> Result<(), Failure> {
        write_secret(&self.file(name), contents)
    }
}

fn write_secret(file: &Path, contents: &str) -> Result<(), Failure> {
    // At once, as a mounted secret changes.
    let new = file.with_extension("new");
    let written = fs::write(&new, contents)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o600)))
        .and_then(|()| fs::rename(&new, file));
    written.map_err(Failure::of(format_args!("writing {}", file.display())))
}
