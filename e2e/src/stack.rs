//! Everything together: service, control plane, Envoy with the filter, an issuer and an agent.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::artefacts::Artefacts;
use crate::audit::Record;
use crate::command::{Credence, Key};
use crate::configuration::{self, Replacement, Values, Watching};
use crate::control_plane::ControlPlane;
use crate::envoy::{Envoy, Run, WORKERS};
use crate::grants::CHARGE;
use crate::upstream::Upstream;
use crate::{AUDIENCE, Client, Failure, ISSUER, Reply, Request, guardian, waiting};

/// A running stack. Everything in it ends when it is dropped, or when the process does.
#[derive(Debug)]
pub struct Stack {
    /// Envoy, in front of the service.
    pub envoy: Envoy,
    /// What the filter follows and reports to.
    pub control_plane: ControlPlane,
    /// The service.
    pub upstream: Upstream,
    /// The `credence` command.
    pub credence: Credence,
    /// The key that the filter believes.
    pub issuer: Key,
    /// An agent's key.
    pub agent: Key,
    envoy_program: PathBuf,
    envoy_run: Run,
    configuration: String,
    control_plane_port: u16,
    /// What Envoy watches a file for.
    watched: Option<Watched>,
    // Last: files are removed once nobody uses them.
    folder: TempDir,
}

/// What may be different from stack to stack.
#[derive(Debug, Clone, Default)]
pub struct StackOptions {
    /// Changes to envoy-config/envoy.yaml.
    pub replacements: Vec<Replacement>,
    /// The log that the filter pins; that of the control plane if not given.
    pub log_id: Option<String>,
    /// The port by which Envoy reaches the control plane; the control plane's own if not given.
    pub control_plane_port: Option<u16>,
    /// Further options of `credence serve`.
    pub serve_options: Vec<String>,
    /// Who has signed the certificate of the control plane's HTTP API, if these options have it speak TLS.
    pub serve_authority: Option<PathBuf>,
    /// Return as soon as Envoy takes requests, without waiting until every worker's filter can decide.
    pub unsynced: bool,
    /// A module in place of the one that was built.
    pub filter: Option<Vec<u8>>,
    /// How many workers Envoy has; [`envoy::WORKERS`](crate::envoy::WORKERS) if not given.
    pub workers: Option<usize>,
    /// Have Envoy watch a file for this, so that [`Stack::reconfigure`] can replace it.
    pub watching: Option<Watching>,
    /// Further environment variables of the control plane.
    pub control_plane_environment: Vec<(String, String)>,
    /// Further environment variables of Envoy.
    pub envoy_environment: Vec<(String, String)>,
}

impl StackOptions {
    /// Makes the filter forgive a silent control plane for 2 seconds only, and agents' clocks for 1, so that nobody
    /// waits for longer; nor does the control plane wait for longer for a filter, or promise more when it stops.
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

    /// Makes the filter forgive a silent control plane for a minute: requests are decided while it is suspended.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.serve_options.extend(["--max-staleness", "60s"].map(str::to_owned));
        self.replacing("max_staleness: 5s", "max_staleness: 1m")
    }

    /// Has Envoy speak to the service in the protocol in which the client speaks to Envoy, and pass on trailers.
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

    /// With one more change to envoy-config/envoy.yaml.
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
    /// If something does not start, with its last words.
    pub fn start(options: &StackOptions) -> Result<Self, Failure> {
        let artefacts = Artefacts::from_environment()?;
        let folder = new_folder()?;
        let credence = Credence::new(&artefacts.credence, folder.path());
        let issuer = credence.keygen("issuer")?;
        let agent = credence.keygen("agent")?;
        let upstream = Upstream::start()?;
        let control_plane = ControlPlane::start_in(
            &artefacts.credence,
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

    /// Starts Envoy with a configuration that it should refuse, and returns what it says.
    ///
    /// # Errors
    /// If it runs all the same.
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

    /// `credence mint`: a root for `subject`, held by the agent, meant for the service, with these further options.
    ///
    /// # Errors
    /// If the command fails.
    pub fn mint(&self, subject: &str, options: &[&str]) -> Result<String, Failure> {
        self.mint_with(&self.issuer, subject, options)
    }

    /// The same, signed with a key that need not be the issuer's.
    ///
    /// # Errors
    /// If the command fails.
    pub fn mint_with(&self, key: &Key, subject: &str, options: &[&str]) -> Result<String, Failure> {
        let common = ["mint", "--key", key.path(), "--issuer", ISSUER, "--subject", subject];
        let held = ["--holder", self.agent.path(), "--audience", AUDIENCE];
        self.credence.run(common.iter().chain(&held).chain(options))
    }

    /// `credence derive`: hands the agent's delegation on to `holder`, with these further options.
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

    /// `credence prove`: `holder` proves the use of the chain for charging `amount` to `account`.
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

    /// The options with which a command reaches the control plane as the operator who may do everything.
    fn access(&self) -> Vec<String> {
        let mut access = self.control_plane.place();
        access.extend([
            "--token-file".to_owned(),
            self.control_plane.token_file().display().to_string(),
        ]);
        access
    }

    /// `credence audit query`: everything recorded so far, oldest first.
    ///
    /// # Errors
    /// If the command fails.
    pub fn records(&self) -> Result<Vec<Record>, Failure> {
        let access = self.access();
        let read =
            |line: &str| serde_json::from_str(line).map_err(Failure::of(format_args!("reading the record {line}")));
        let mut records: Vec<Record> = Vec::new();
        // Chains are shown to who asks for them. What is recorded between the two questions is left out of both.
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

    /// Waits until events, counts and what is named as missing add up to the requests that Envoy has had, and returns the
    /// records. None may be on its way.
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

    /// The id of the delegations by which it is found out how far the filter is.
    pub const PROBE: &str = "probe";

    /// Waits until the filter accepts proofs: for a while after its start it cannot know which were used before.
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

    /// Waits until every worker's filter is in step with the revocation log.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_synced(&self) -> Result<(), Failure> {
        self.wait_for_every_worker("to be in step with the revocation log", |reply| reply.status != 503)
    }

    /// Waits until the filter of every worker, and that of Envoy's main thread, follows the revocation log: each has a
    /// stream of its own.
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

    /// Waits until every worker's filter no longer trusts its view of the revocation log.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_stale(&self) -> Result<(), Failure> {
        self.wait_for_every_worker("to miss the control plane", |reply| reply.status == 503)
    }

    /// Asks each worker until its reply to a delegation that is none is as wanted. Whether the filter can decide at
    /// all comes before the delegation, and none of this is recorded one by one.
    fn wait_for_every_worker(&self, what: &str, is_as_wanted: impl Fn(&Reply) -> bool) -> Result<(), Failure> {
        let request = Request::get("/v1/catalog/probe").delegation(Self::PROBE);
        for (worker, client) in self.envoy.connection_to_every_worker()?.iter_mut().enumerate() {
            waiting::until(format_args!("worker {worker} {what}"), || {
                Ok(is_as_wanted(&client.send(&request)?).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Has Envoy take over another configuration while it runs: what it started with, with these changes.
    ///
    /// # Errors
    /// If the stack was not started for that.
    pub fn reconfigure(&self, changes: &[Replacement]) -> Result<(), Failure> {
        let watched = self.watched.as_ref();
        let Watched { what, file, whole } =
            watched.ok_or_else(|| Failure::new("this stack was not started with `watching`"))?;
        let changed = configuration::replace(whole, changes)?;
        put(file, &configuration::apart(&changed, *what, file)?.watched)
    }

    /// Kills Envoy and starts it anew, with the same configuration and an empty memory.
    ///
    /// # Errors
    /// If it does not start, with its last words.
    pub fn restart_envoy(&mut self) -> Result<(), Failure> {
        self.restart_envoy_unsynced()?;
        self.wait_until_synced()
    }

    /// The same without waiting until every worker's filter can decide.
    ///
    /// # Errors
    /// If it does not start, with its last words.
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

    /// Starts another Envoy with the same configuration, which reaches the control plane by this port. It watches the same
    /// file, if the stack's own watches one.
    ///
    /// # Errors
    /// If it does not start, with its last words.
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

    /// The folder for the run's files, which goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The file that Envoy watches.
#[derive(Debug)]
struct Watched {
    what: Watching,
    file: PathBuf,
    /// All of what Envoy was started with, in one.
    whole: String,
}

/// Puts a file where somebody watches for it: whole, or not at all.
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
