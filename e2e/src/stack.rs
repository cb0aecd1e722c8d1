//! A complete stack: service, control plane, Envoy with the filter, an issuer and an agent.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::artefacts::Artefacts;
use crate::audit::Record;
use crate::command::{Credence, Key};
use crate::configuration::{self, Replacement, Values, Watching};
use crate::control_plane::{ControlPlane, Site};
use crate::envoy::{Envoy, Run, WORKERS};
use crate::grants::CHARGE;
use crate::place::Place;
use crate::upstream::Upstream;
use crate::{AUDIENCE, Client, Failure, ISSUER, Reply, Request, guardian, waiting};

/// A running stack. All of it stops when this is dropped, or when the process ends.
#[derive(Debug)]
pub struct Stack {
    /// Envoy, in front of the service.
    pub envoy: Envoy,
    /// The control plane that the filter connects to.
    pub control_plane: ControlPlane,
    /// The service.
    pub upstream: Upstream,
    /// The `credence` command.
    pub credence: Credence,
    /// The key of the filter's trust anchor.
    pub issuer: Key,
    /// An agent's key.
    pub agent: Key,
    envoy_program: PathBuf,
    envoy_run: Run,
    configuration: String,
    control_plane_port: u16,
    /// The file that Envoy watches, if any.
    watched: Option<Watched>,
    // Last: files are removed once no process uses them.
    folder: TempDir,
}

/// The options of a stack.
#[derive(Debug, Clone, Default)]
pub struct StackOptions {
    /// Changes to envoy-config/envoy.yaml.
    pub replacements: Vec<Replacement>,
    /// The log that the filter pins. Default: the control plane's.
    pub log_id: Option<String>,
    /// The port by which Envoy reaches the control plane. Default: the control plane's.
    pub control_plane_port: Option<u16>,
    /// Where the control plane serves. Default: on this machine's loopback.
    pub control_plane_site: Option<Site>,
    /// Another program for the control plane than the built one.
    pub control_plane_program: Option<PathBuf>,
    /// Further options of `credence serve`.
    pub serve_options: Vec<String>,
    /// The CA of the certificate of the control plane's HTTP API, if these options turn its TLS on.
    pub serve_authority: Option<PathBuf>,
    /// Return as soon as Envoy accepts requests, before every worker's filter can decide.
    pub unsynced: bool,
    /// Another module than the built one.
    pub filter: Option<Vec<u8>>,
    /// The number of Envoy's workers. Default: [`envoy::WORKERS`](crate::envoy::WORKERS).
    pub workers: Option<usize>,
    /// Have Envoy watch a file for this part, so that [`Stack::reconfigure`] can replace it.
    pub watching: Option<Watching>,
    /// Further environment variables of the control plane.
    pub control_plane_environment: Vec<(String, String)>,
    /// Further environment variables of Envoy.
    pub envoy_environment: Vec<(String, String)>,
}

impl StackOptions {
    /// Short limits, so that tests need not wait: the filter tolerates a silent control plane for 2 seconds and a clock
    /// skew of 1. The control plane waits no longer than that for a filter, and its drain lease is no longer when it
    /// stops.
    #[must_use]
    pub fn quick() -> Self {
        let replacements = vec![
            Replacement::once("max_staleness: 5s", "max_staleness: 2s"),
            Replacement::once("pop_clock_skew: 5s", "pop_clock_skew: 1s"),
        ];
        Self {
            replacements,
            serve_options: ["--max-staleness", "2s", "--drain-promise", "2s"]
                .map(str::to_owned)
                .to_vec(),
            ..Self::default()
        }
    }

    /// The filter tolerates a silent control plane for a minute, so that it decides while the control plane is
    /// suspended.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.serve_options.extend(["--max-staleness", "60s"].map(str::to_owned));
        self.replacing("max_staleness: 5s", "max_staleness: 1m")
    }

    /// Envoy uses the client's protocol with the service, and passes trailers on.
    #[must_use]
    pub fn in_either_protocol(self) -> Self {
        const SERVICE: &str = "    - name: service\n      connect_timeout: 1s\n";
        const OPTIONS: &str = r#"      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          use_downstream_protocol_config: {http_protocol_options: {enable_trailers: true}, http2_protocol_options: {}}
"#;
        self.replacing(SERVICE, &[SERVICE, OPTIONS].concat()).replacing(
            "                http2_protocol_options:\n",
            "                http_protocol_options: {enable_trailers: true}\n                http2_protocol_options:\n                  allow_connect: true\n",
        )
    }

    /// Adds a change to envoy-config/envoy.yaml.
    #[must_use]
    pub fn replacing(mut self, text: &str, by: &str) -> Self {
        self.replacements.push(Replacement::once(text, by));
        self
    }
}

impl Stack {
    /// Starts everything and waits until every worker can decide.
    ///
    /// # Errors
    /// If a program does not start; the error has its last output.
    pub fn start(options: &StackOptions) -> Result<Self, Failure> {
        let artefacts = Artefacts::from_environment()?;
        let folder = new_folder()?;
        let credence = Credence::new(&artefacts.credence, folder.path());
        let issuer = credence.keygen("issuer")?;
        let agent = credence.keygen("agent")?;
        let upstream = Upstream::start()?;
        let site = options.control_plane_site.clone();
        let control_plane = ControlPlane::start_at(
            site.map_or_else(|| Site::at(Place::default()), Ok)?,
            options.control_plane_program.as_ref().unwrap_or(&artefacts.credence),
            folder.path(),
            &options.serve_options,
            &options.control_plane_environment,
            options.serve_authority.clone(),
        )?;
        let filter = match &options.filter {
            None => artefacts.filter,
            Some(module) => {
                let file = folder.path().join("filter.wasm");
                fs::write(&file, module).map_err(Failure::of("writing the filter's module"))?;
                file
            }
        };
        let control_plane_port = options.control_plane_port.unwrap_or(control_plane.grpc().port());
        let values = Values {
            service_port: upstream.address().port(),
            control_plane_port,
            filter: &filter,
            log_id: options.log_id.as_deref().unwrap_or(control_plane.log_id()),
            anchor: &issuer.x,
        };
        let whole = configuration::render(&values, &options.replacements)?;
        let watched = options.watching.map(|what| Watched {
            what,
            file: folder.path().join("watched.yaml"),
            whole: whole.clone(),
        });
        let configuration = match &watched {
            None => whole,
            Some(watched) => {
                let apart = configuration::apart(&whole, watched.what, &watched.file)?;
                put(&watched.file, &apart.watched)?;
                apart.rest
            }
        };
        let run = Run {
            workers: options.workers.unwrap_or(WORKERS),
            environment: options.envoy_environment.clone(),
        };
        let envoy = Envoy::start_as(&run, &artefacts.envoy, &configuration, folder.path())?;
        let envoy_program = artefacts.envoy;
        let stack = Self {
            envoy,
            control_plane,
            upstream,
            credence,
            issuer,
            agent,
            envoy_program,
            envoy_run: run,
            configuration,
            control_plane_port,
            watched,
            folder,
        };
        if !options.unsynced {
            stack.wait_until_synced()?;
        }
        Ok(stack)
    }

    /// Starts Envoy with an invalid configuration, and returns its output.
    ///
    /// # Errors
    /// If Envoy accepts the configuration.
    pub fn refuse(replacements: &[Replacement]) -> Result<String, Failure> {
        let artefacts = Artefacts::from_environment()?;
        let folder = new_folder()?;
        let values = Values {
            service_port: 9,
            control_plane_port: 9,
            filter: &artefacts.filter,
            log_id: "0123456789abcdef0123456789abcdef",
            anchor: "yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc",
        };
        Envoy::refuse(
            &artefacts.envoy,
            &configuration::render(&values, replacements)?,
            folder.path(),
        )
    }

    /// Sends a request over a new connection.
    ///
    /// # Errors
    /// If there is no reply.
    pub fn send(&self, request: &Request) -> Result<Reply, Failure> {
        Client::connect(self.envoy.ingress())?.send(request)
    }

    /// `credence mint`: a root for `subject`, held by the agent, for the service, with these further options.
    ///
    /// # Errors
    /// If the command fails.
    pub fn mint(&self, subject: &str, options: &[&str]) -> Result<String, Failure> {
        self.mint_with(&self.issuer, subject, options)
    }

    /// The same, signed with this key instead of the issuer's.
    ///
    /// # Errors
    /// If the command fails.
    pub fn mint_with(&self, key: &Key, subject: &str, options: &[&str]) -> Result<String, Failure> {
        let common = ["mint", "--key", key.path(), "--issuer", ISSUER, "--subject", subject];
        let held = ["--holder", self.agent.path(), "--audience", AUDIENCE];
        self.credence.run(common.iter().chain(&held).chain(options))
    }

    /// `credence derive`: derives a delegation for `holder` from the agent's, with these further options.
    ///
    /// # Errors
    /// If the command fails.
    pub fn derive(&self, parent: &str, holder: &Key, options: &[&str]) -> Result<String, Failure> {
        let common = [
            "derive",
            "--parent",
            parent,
            "--key",
            self.agent.path(),
            "--holder",
            holder.path(),
        ];
        self.credence.run(common.iter().chain(options))
    }

    /// `credence prove`: a proof of `holder` for charging `amount` to `account` with this chain.
    ///
    /// # Errors
    /// If the command fails.
    pub fn prove_charge(&self, chain: &str, holder: &Key, account: &str, amount: &str) -> Result<String, Failure> {
        let account = format!("account={account}");
        let amount = format!("amount={amount}");
        self.credence.run([
            "prove",
            "--chain",
            chain,
            "--key",
            holder.path(),
            "--audience",
            AUDIENCE,
            "--tool",
            "payments.charge",
            "--arg",
            &account,
            "--arg-json",
            &amount,
        ])
    }

    /// `credence revoke` with these arguments.
    ///
    /// # Errors
    /// If the command fails.
    pub fn revoke(&self, what: &[&str]) -> Result<String, Failure> {
        let access = self.access();
        let access = access.iter().map(String::as_str);
        self.credence
            .run(["revoke"].iter().copied().chain(what.iter().copied()).chain(access))
    }

    /// The options with which a command connects to the control plane as the operator.
    fn access(&self) -> Vec<String> {
        let mut access = self.control_plane.place();
        access.extend([
            "--token-file".to_owned(),
            self.control_plane.token_file().display().to_string(),
        ]);
        access
    }

    /// `credence audit query`: all records so far, oldest first.
    ///
    /// # Errors
    /// If the command fails.
    pub fn records(&self) -> Result<Vec<Record>, Failure> {
        let access = self.access();
        let read =
            |line: &str| serde_json::from_str(line).map_err(Failure::of(format_args!("reading the record {line}")));
        let mut records: Vec<Record> = Vec::new();
        // The API returns chains only on request. Records that arrive between the two queries are left out.
        let mut newest = u64::MAX;
        for kind in [&[][..], &["--kind", "chain"]] {
            let query = ["audit", "query", "--json", "--limit", "1000000"];
            let arguments = query.into_iter().chain(kind.iter().copied());
            let printed = self.credence.run(arguments.chain(access.iter().map(String::as_str)))?;
            for line in printed.lines() {
                let record: Record = read(line)?;
                if record.index <= newest {
                    records.push(record);
                }
            }
            newest = records.iter().map(|record| record.index).max().unwrap_or_default();
        }
        records.sort_by_key(|record| record.index);
        Ok(records)
    }

    /// Waits until events, counts and reported gaps add up to the requests that Envoy has received, and returns the
    /// records. No request may be under way.
    ///
    /// # Errors
    /// If they never do.
    pub fn until_all_is_accounted_for(&self) -> Result<Vec<Record>, Failure> {
        waiting::until("every request to be accounted for", || {
            let records = self.records()?;
            let recorded: u64 = records.iter().map(Record::decisions).sum();
            Ok((recorded == self.envoy.stat("http.ingress.downstream_rq_total")?).then_some(records))
        })
    }

    /// The id of the delegations that probe whether the filter is ready.
    pub const PROBE: &str = "probe";

    /// Waits until the filter accepts proofs. After a start it denies them for a while, since it cannot know which were
    /// used.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_proofs_count(&self) -> Result<(), Failure> {
        let chain = self.mint(Self::PROBE, &["--id", Self::PROBE, "--tool", CHARGE])?;
        waiting::until("the filter to accept proofs", || {
            let proof = self.prove_charge(&chain, &self.agent, "acme", "1")?;
            let reply = self.send(
                &Request::post("/v1/accounts/acme/charges?amount=1")
                    .delegation(&chain)
                    .proof(proof),
            )?;
            match (reply.status, reply.reason().as_deref()) {
                (200, _) => Ok(Some(())),
                (401, Some("proof_predates_memory")) => Ok(None),
                (status, reason) => Err(Failure::new(format!("a good proof got {status} {reason:?}"))),
            }
        })
    }

    /// Waits until every worker's filter is synced with the revocation log.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_synced(&self) -> Result<(), Failure> {
        self.wait_for_every_worker("to be in step with the revocation log", |reply| reply.status != 503)
    }

    /// Waits until every worker's filter, and that of Envoy's main thread, follows the revocation log. Each has its own
    /// stream.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_followed(&self) -> Result<(), Failure> {
        let wanted = format!("credence_revocation_subscribers {}", self.envoy.workers() + 1);
        waiting::until("every filter to follow the revocation log", || {
            let metrics = self.control_plane.send(&Request::get("/metrics"))?.text();
            Ok(metrics.lines().any(|line| line == wanted).then_some(()))
        })
    }

    /// Waits until every worker's view of the revocation log is stale.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_stale(&self) -> Result<(), Failure> {
        self.wait_for_every_worker("to miss the control plane", |reply| reply.status == 503)
    }

    /// Asks each worker until its reply to an invalid delegation is as wanted. The filter checks whether it can decide
    /// before it reads the delegation, and such denials are only counted.
    fn wait_for_every_worker(&self, what: &str, is_as_wanted: impl Fn(&Reply) -> bool) -> Result<(), Failure> {
        let request = Request::get("/v1/catalog/probe").delegation(Self::PROBE);
        for (worker, client) in self.envoy.connection_to_every_worker()?.iter_mut().enumerate() {
            waiting::until(format_args!("worker {worker} {what}"), || {
                Ok(is_as_wanted(&client.send(&request)?).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Gives the running Envoy another configuration: the one that it started with, with these changes.
    ///
    /// # Errors
    /// If the stack was not started with `watching`.
    pub fn reconfigure(&self, changes: &[Replacement]) -> Result<(), Failure> {
        let watched = self.watched.as_ref();
        let Watched { what, file, whole } =
            watched.ok_or_else(|| Failure::new("this stack was not started with `watching`"))?;
        let changed = configuration::replace(whole, changes)?;
        put(file, &configuration::apart(&changed, *what, file)?.watched)
    }

    /// Kills Envoy and starts it again, with the same configuration and empty memory.
    ///
    /// # Errors
    /// If it does not start; the error has its last output.
    pub fn restart_envoy(&mut self) -> Result<(), Failure> {
        self.restart_envoy_unsynced()?;
        self.wait_until_synced()
    }

    /// The same, without waiting until every worker's filter can decide.
    ///
    /// # Errors
    /// If it does not start; the error has its last output.
    pub fn restart_envoy_unsynced(&mut self) -> Result<(), Failure> {
        self.envoy.kill()?;
        self.envoy = Envoy::start_as(
            &self.envoy_run,
            &self.envoy_program,
            &self.configuration,
            self.folder.path(),
        )?;
        Ok(())
    }

    /// Starts another Envoy with the same configuration, which reaches the control plane by this port. It watches the
    /// same file as the stack's own.
    ///
    /// # Errors
    /// If it does not start; the error has its last output.
    pub fn another_envoy(&self, control_plane_port: u16) -> Result<Envoy, Failure> {
        let port = |port: u16| format!("port_value: {port}}}}}");
        let changes = [Replacement::once(
            port(self.control_plane_port),
            port(control_plane_port),
        )];
        let folder = self.folder.path().join("another");
        fs::create_dir_all(&folder).map_err(Failure::of("making a folder for another Envoy"))?;
        let configuration = configuration::replace(&self.configuration, &changes)?;
        Envoy::start_as(&self.envoy_run, &self.envoy_program, &configuration, &folder)
    }

    /// The origin of the service, as its clients reach it: Envoy's.
    pub fn origin(&self) -> String {
        format!("http://{}", self.envoy.ingress())
    }

    /// The rules of the service for its agents, as `credence config describe --for-agents` prints them.
    ///
    /// # Errors
    /// If the command fails.
    pub fn agent_rules(&self) -> Result<String, Failure> {
        let file = self.folder.path().join("for-agents.yaml");
        put(&file, &self.configuration)?;
        let file = file.display().to_string();
        self.credence.run(["config", "describe", "--for-agents", &file])
    }

    /// The folder of the run's files, removed with the stack.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The file that Envoy watches.
#[derive(Debug)]
struct Watched {
    what: Watching,
    file: PathBuf,
    /// The whole configuration that Envoy started with.
    whole: String,
}

/// Replaces a watched file atomically.
fn put(file: &Path, content: &str) -> Result<(), Failure> {
    let place = || format!("writing {}", file.display());
    let new = file.with_extension("new");
    fs::write(&new, content).map_err(Failure::of(place()))?;
    fs::rename(&new, file).map_err(Failure::of(place()))
}

fn new_folder() -> Result<TempDir, Failure> {
    let folder = TempDir::with_prefix("credence-e2e-").map_err(Failure::of("making a folder for a run"))?;
    guardian::own(folder.path())?;
    Ok(folder)
}
