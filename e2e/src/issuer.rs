//! A real issuer, `credence issuer serve`, where people of a small identity provider sign in.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::browser::{Browser, CALLBACK, Form, Page};
use crate::command::Credence;
use crate::configuration::Replacement;
use crate::control_plane::ControlPlane;
use crate::forge::{Claims, Forger};
use crate::identity_provider::IdentityProvider;
use crate::oauth_client::{CLIENT, OauthClient};
use crate::place::Place;
use crate::process::Process;
use crate::{AUDIENCE, Client, Failure, Request, Stack, StackOptions, guardian, waiting};

/// An issuer with its folder and its addresses, running or not; killed when dropped.
#[derive(Debug)]
pub struct Issuer {
    provider: IdentityProvider,
    credence: Credence,
    listen: SocketAddr,
    admin: SocketAddr,
    /// The core that it runs on, if it may use only one.
    core: Option<usize>,
    process: Option<Process>,
    // Last: files are removed once no process uses them.
    folder: TempDir,
}

/// A grant on the page "What you have delegated".
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its part of the page.
    pub html: String,
    /// Takes it back. `None` if it has ended.
    pub withdraw: Option<Form>,
}

// === impl Issuer ===

impl Issuer {
    /// Starts its identity provider, and chooses its addresses. It does not serve yet: the control plane and the filters
    /// must know its URL first.
    ///
    /// # Errors
    /// If there is no free port or folder.
    pub fn prepare(credence: &Path) -> Result<Self, Failure> {
        let folder = TempDir::with_prefix("credence-issuer-").map_err(Failure::of("making a folder for the issuer"))?;
        guardian::own(folder.path())?;
        let place = Place::default();
        let this = Self {
            provider: IdentityProvider::start()?,
            credence: Credence::new(credence, folder.path()),
            listen: place.free_address()?,
            admin: place.free_address()?,
            core: None,
            process: None,
            folder,
        };
        let keys = format!(
            r#"issuer_keys: [{{issuer: "{}", private_addresses: [127.0.0.0/8], refresh_s: 1}}]"#,
            this.url()
        );
        write(&this.control_plane_settings(), &keys)?;
        Ok(this)
    }

    /// Has it use this core only.
    #[must_use]
    pub fn on_core(self, core: usize) -> Self {
        Self {
            core: Some(core),
            ..self
        }
    }

    /// The `iss` of its tokens.
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Its address, for people and clients.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Options of a control plane that fetches its keys.
    pub fn serve_options(&self) -> [String; 2] {
        [
            "--config".to_owned(),
            self.control_plane_settings().display().to_string(),
        ]
    }

    /// A stack whose filters trust it.
    #[must_use]
    pub fn trusted_by(&self, mut stack: StackOptions) -> StackOptions {
        const ANCHORS: &str = "                            trust_anchors:\n";
        let (url, provider) = (self.url(), self.provider.url());
        let anchor = format!(
            "                              - {{issuer: \"{url}\", keys: control_plane, asserts_subjects: true, \
             delegations: true, same_principals_as: \"{provider}\", access_tokens: {{}}}}\n"
        );
        stack.serve_options.extend(self.serve_options());
        stack
            .replacements
            .push(Replacement::once(ANCHORS, [ANCHORS, &anchor].concat()));
        stack
    }

    /// Makes its keys, and serves beside this control plane. `more` are further settings (YAML).
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn serve(&mut self, control_plane: &ControlPlane, more: &str) -> Result<(), Failure> {
        write(&self.file("passphrase"), "correct horse battery staple")?;
        write(&self.settings(), &self.settings_for(control_plane, more))?;
        self.run(&["keys", "create"], &[])?;
        self.restart()
    }

    fn settings_for(&self, control_plane: &ControlPlane, more: &str) -> String {
        let (url, provider) = (self.url(), self.provider.url());
        let (token, passphrase) = (control_plane.token_file(), self.file("passphrase"));
        let control_plane = control_plane.url();
        let (token, passphrase) = (token.display(), passphrase.display());
        format!(
            r#"url: {url}
identity_provider: {{issuer: "{provider}", client_id: credence}}
control_plane: {{url: "{control_plane}", token_file: "{token}"}}
keys_passphrase_file: "{passphrase}"
clients:
  - {{id: {CLIENT}, name: Planner, redirect_uris: ["{CALLBACK}"]}}
tools:
  catalog.read: {{title: read the catalog, arguments: {{item: the item}}}}
  payments.charge: {{title: charge an account, arguments: {{account: the account, amount: the amount in euros}}}}
policy:
  - name: staff
    groups: [staff]
    tools:
      catalog.read: {{item: {{constraint_type: wildcard}}}}
      payments.charge: {{account: {{constraint_type: wildcard}}, amount: {{constraint_type: range, min: 0, max: 1000}}}}
    audience: [{AUDIENCE}]
    depth: 1
{more}"#
        )
    }

    /// Serves again, after [`kill`](Self::kill), with the same folder and addresses.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.restart_and_not_wait()?;
        waiting::until("the issuer to be ready", || {
            if let Some(process) = &mut self.process {
                process.check_running()?;
            }
            let reply = self.operator_page("/readyz");
            // It may not be listening yet.
            Ok(reply.ok().filter(|(status, _)| *status == 200).map(|_| ()))
        })
    }

    /// The same, but does not wait until it is ready.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart_and_not_wait(&mut self) -> Result<(), Failure> {
        self.process = Some(self.launch(self.listen, self.admin, &self.data_dir())?);
        Ok(())
    }

    /// Starts another issuer with the same settings, on other ports, in this data folder.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn another(&self, data: &Path) -> Result<Process, Failure> {
        let place = Place::default();
        self.launch(place.free_address()?, place.free_address()?, data)
    }

    fn launch(&self, listen: SocketAddr, admin: SocketAddr, data: &Path) -> Result<Process, Failure> {
        let program = self.credence.program();
        let mut command = match self.core {
            None => std::process::Command::new(program),
            Some(core) => {
                let mut command = std::process::Command::new("taskset");
                command.args(["--cpu-list", &core.to_string()]).arg(program);
                command
            }
        };
        command.args(["issuer", "serve"]).args(self.place_of(data));
        command.args(["--listen", &listen.to_string(), "--admin", &admin.to_string()]);
        Process::start(
            "the issuer",
            &mut command,
            &self.file(&format!("issuer-{}.log", listen.port())),
        )
    }

    /// Kills it with SIGKILL, as a crash would.
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

    /// `credence issuer` with these words, its settings and data folder, and these options.
    ///
    /// # Errors
    /// If the command fails.
    pub fn run(&self, words: &[&str], options: &[&str]) -> Result<String, Failure> {
        let place = self.place_of(&self.data_dir());
        let place = place.iter().map(String::as_str);
        let words = ["issuer"].iter().chain(words).copied();
        self.credence.run(words.chain(place).chain(options.iter().copied()))
    }

    /// A page of the operator's port: the status and the text.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn operator_page(&self, target: &str) -> Result<(u16, String), Failure> {
        let reply = Client::connect(self.admin)?.send(&Request::get(target))?;
        Ok((reply.status, reply.text()))
    }

    /// Waits until every worker of this stack knows its keys.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_trusted(&self, stack: &Stack) -> Result<(), Failure> {
        let stranger = Forger::from_seed([7; 32]);
        let forged = stranger.token(&Claims::root(&self.url(), Stack::PROBE, &stranger, "{}")?)?;
        let request = Request::get("/v1/catalog/probe").delegation(forged);
        for client in &mut stack.envoy.connection_to_every_worker()? {
            waiting::until("a worker to get the issuer's keys", || {
                let reason = client.send(&request)?.reason();
                Ok((reason.as_deref() != Some("keys_unavailable")).then_some(()))
            })?;
        }
        Ok(())
    }

    /// A new browser of this person.
    pub fn browser(&self, person: &str) -> Browser {
        Browser::of(person, &self.provider.url())
    }

    /// The agent with this key.
    ///
    /// # Errors
    /// Never: its URL can be read.
    pub fn client(&self, key: Forger) -> Result<OauthClient, Failure> {
        OauthClient::of(&self.url(), key)
    }

    /// What the person has granted, newest first.
    ///
    /// # Errors
    /// If the page cannot be read.
    pub fn grants(&self, browser: &mut Browser) -> Result<Vec<Listed>, Failure> {
        let page = browser.open(&format!("{}/", self.url()))?;
        Listed::on(&page)
    }

    /// The folder of its grants and keys.
    pub fn data_dir(&self) -> PathBuf {
        self.file("data")
    }

    /// The file with its settings.
    pub fn settings(&self) -> PathBuf {
        self.file("issuer.yaml")
    }

    fn control_plane_settings(&self) -> PathBuf {
        self.file("control-plane.yaml")
    }

    fn place_of(&self, data: &Path) -> [String; 4] {
        let settings = self.settings();
        [
            "--config".to_owned(),
            settings.display().to_string(),
            "--data".to_owned(),
            data.display().to_string(),
        ]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

// === impl Listed ===

impl Listed {
    /// The grants on a page.
    ///
    /// # Errors
    /// If it is another page.
    pub fn on(page: &Page) -> Result<Vec<Self>, Failure> {
        if !page.html.contains("<h1>What you have delegated</h1>") {
            let Page { url, status, html } = page;
            return Err(Failure::new(format!("{url} ({status:?}) does not list grants: {html}")));
        }
        let sections = page.html.split("<section>").skip(1);
        let sections = sections.map(|section| section.split("</section>").next().unwrap_or_default());
        let listed = sections.map(|section| Self {
            html: section.to_owned(),
            withdraw: page.form_in(section, "/withdraw"),
        });
        Ok(listed.collect())
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(Failure::of(format_args!("writing {}", file.display())))
}
