//! No shipped alert fires in ordinary weeks. A real control plane goes through the usual events. Its metrics are
//! recorded as Prometheus would scrape them, and promtool evaluates the rules over the recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use credence_control_plane::{CertificateSettings, CertificateSubject, Config, PortTls, Role};
use credence_wire::v1;
use credence_wire::v1::report_request::Message as ReportMessage;
use serde_json::json;
use tonic::transport::{Channel, ClientTlsConfig, Identity};

use super::certificates::{Authority, Certificate};
use super::harness::{ISSUER, Place, Reporter, Server, Watcher, event, raise};
use super::provider::{create, patch, realm, set_active, settings};

const HOST: &str = "credence.test";
const ENVOY: &str = "URI:spiffe://mesh/ns/shop/sa/envoy";
/// The scrape interval of envoy-config/observability/prometheus.yml.
const INTERVAL_S: u64 = 15;
const HOUR: usize = 3600 / INTERVAL_S as usize;

#[tokio::test]
async fn in_ordinary_weeks_no_alert_fires() {
    let Some(promtool) = promtool() else { return };
    let mut mesh = Mesh::start().await;
    let mut recording = Recording::default();
    mesh.quiet(&mut recording).await;

    // Onboarding: forty users by SCIM, two of whom leave again.
    let mut users = Vec::new();
    for number in 0..40 {
        users.push(create(mesh.server(), &format!("user{number}")).await);
        mesh.tick(&mut recording).await;
    }
    for user in &users[..2] {
        patch(mesh.server(), user, set_active(false)).await.expect(200);
        mesh.tick(&mut recording).await;
    }
    mesh.server().revoke(raise("user5")).await;
    mesh.quiet(&mut recording).await;

    // A rollout: one filter after the other ends, and a new one replaces it.
    for index in 0..mesh.filters.len() {
        mesh.replace_filter(index, &mut recording).await;
    }
    mesh.quiet(&mut recording).await;

    // The certificates of the port and of the filters are renewed; the old ones expire.
    mesh.renew_certificates(&mut recording).await;
    mesh.quiet(&mut recording).await;

    // A planned restart.
    mesh.restart(&mut recording).await;
    mesh.quiet(&mut recording).await;

    // Evaluated at the end, since no filter pings meanwhile.
    let ordinary = recording.clone();

    // The same recording notices an event that is not ordinary.
    let mistyped = json!({"principal": {"issuer": ISSUER, "subject": "mistyped"}, "action": "enable"});
    assert_eq!(mesh.server().try_revoke(mistyped).await.status, 409);
    let stranger = v1::Position {
        seq: u64::MAX,
        digest: vec![7; 32],
        proof: Vec::new(),
    };
    mesh.claim(stranger).await;
    mesh.quiet(&mut recording).await;
    let said = ordinary.judge(&promtool);
    assert!(said.is_ok(), "{said:?}");
    let said = recording.judge(&promtool).unwrap_err();
    for alert in ["CredenceRevocationsRefused", "CredenceForeignClaims"] {
        assert!(said.contains(alert), "{alert}: {said}");
    }
    assert!(
        !said.contains("CredenceForeignPositions"),
        "a claim is no evidence: {said}"
    );
}

/// A control plane with mutual TLS for its filters.
struct Mesh {
    server: Option<Server>,
    place: Place,
    authority: Authority,
    files: tempfile::TempDir,
    own: Certificate,
    filters: Vec<Filter>,
}

struct Filter {
    certificate: Certificate,
    watcher: Watcher,
    reporter: Reporter,
    ticket: v1::SourceTicket,
    reported: u64,
}

impl Mesh {
    async fn start() -> Self {
        let authority = Authority::new("the mesh");
        let own = authority.issue_until(&format!("DNS:{HOST}"), MONTHS);
        let files = tempfile::tempdir().unwrap();
        let mut mesh = Self {
            server: None,
            place: Place::new(),
            authority,
            files,
            own,
            filters: Vec::new(),
        };
        mesh.install_own();
        mesh.server = Some(mesh.place.start_with(|config| mesh.configure(config)).await);
        for _ in 0..3 {
            let certificate = mesh.authority.issue_until(ENVOY, MONTHS);
            let filter = mesh.filter(certificate, None, 0).await;
            mesh.filters.push(filter);
        }
        mesh
    }

    fn configure(&self, config: &mut Config) {
        config.settings = settings(realm("userName"));
        config.settings.access.certificates = vec![CertificateSettings {
            name: "envoys".to_owned(),
            subject: CertificateSubject::Uri("spiffe://mesh/ns/shop/*".to_owned()),
            roles: vec![Role::Filter],
            issuers: None,
        }];
        config.settings.tls.grpc = Some(PortTls {
            certificate: self.files.path().join("tls.crt"),
            key: self.files.path().join("tls.key"),
            client_ca: Some(self.authority.path()),
        });
        config.log.drain_promise = Duration::from_secs(1);
    }

    fn install_own(&self) {
        for (name, contents) in [("tls.key", self.own.key_pem()), ("tls.crt", self.own.pem())] {
            std::fs::write(self.files.path().join(name), contents).unwrap();
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    async fn channel(&self, client: &Certificate) -> Channel {
        let tls = ClientTlsConfig::new()
            .ca_certificate(tonic::transport::Certificate::from_pem(self.authority.pem()))
            .domain_name(HOST)
            .identity(Identity::from_pem(client.pem(), client.key_pem()));
        let endpoint = Channel::from_shared(format!("https://{}", self.server().running.grpc_address())).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await.unwrap()
    }

    async fn filter(&self, certificate: Certificate, resume: Option<v1::SourceTicket>, reported: u64) -> Filter {
        let channel = self.channel(&certificate).await;
        let mut watcher = self.server().watch_on(channel.clone(), None).await.unwrap();
        watcher.hello(&self.server().log_id(), None).await;
        let welcome = watcher.welcome().await;
        for index in 0..welcome.snapshot.map_or(0, |snapshot| snapshot.chunks) {
            watcher.pull(index).await;
        }
        watcher.ping(1).await;
        let (reporter, welcome) = self.server().report_on(channel, None, resume).await.unwrap();
        Filter {
            certificate,
            watcher,
            reporter,
            ticket: welcome.ticket.unwrap(),
            reported,
        }
    }

    /// One interval in which filters ping and report.
    async fn tick(&mut self, recording: &mut Recording) {
        for filter in &mut self.filters {
            filter.watcher.ping(2).await;
            filter.reported += 1;
            filter.reporter.batch(filter.reported, vec![event("pay")]).await;
            assert_eq!(filter.reporter.acknowledged().await, filter.reported);
        }
        // The checkpoint of this second covers it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        recording.scrape(&self.server().get("/metrics", &[]).await.text);
    }

    /// A quiet hour: except for forecasts, no rule looks back further.
    async fn quiet(&mut self, recording: &mut Recording) {
        for _ in 0..4 {
            self.tick(recording).await;
        }
        recording.hold(HOUR);
    }

    async fn replace_filter(&mut self, index: usize, recording: &mut Recording) {
        let mut old = self.filters.remove(index);
        old.reporter.say(ReportMessage::Bye(v1::Bye {})).await;
        assert_eq!(old.reporter.refusal().await.0, tonic::Code::Ok);
        let certificate = old.certificate.clone();
        drop(old);
        self.tick(recording).await;
        let new = self.filter(certificate, None, 0).await;
        self.filters.insert(index, new);
        for _ in 0..8 {
            self.tick(recording).await;
        }
    }

    async fn renew_certificates(&mut self, recording: &mut Recording) {
        self.own = self.authority.issue_until(&format!("DNS:{HOST}"), MONTHS);
        self.install_own();
        // Each filter's certificate expires at another time, and the filter reconnects with the next one.
        for index in 0..self.filters.len() {
            let brief = self.authority.issue_until(ENVOY, Duration::from_secs(4));
            self.reconnect(index, brief).await;
            self.tick(recording).await;
            let ended = self.filters[index]
                .watcher
                .refusal_within(Duration::from_secs(20))
                .await;
            assert_eq!(ended.0, tonic::Code::PermissionDenied, "{}", ended.1);
            let next = self.authority.issue_until(ENVOY, MONTHS);
            self.reconnect(index, next).await;
            for _ in 0..12 {
                self.tick(recording).await;
            }
        }
    }

    async fn reconnect(&mut self, index: usize, certificate: Certificate) {
        let old = self.filters.remove(index);
        let new = self.filter(certificate, Some(old.ticket.clone()), old.reported).await;
        drop(old);
        self.filters.insert(index, new);
    }

    async fn restart(&mut self, recording: &mut Recording) {
        let server = self.server.take().unwrap();
        server.running.shutdown().await;
        recording.down(2);
        self.server = Some(self.place.start_with(|config| self.configure(config)).await);
        for index in 0..self.filters.len() {
            let old = self.filters.remove(index);
            let new = self.filter(old.certificate, Some(old.ticket), old.reported).await;
            self.filters.insert(index, new);
            recording.scrape(&self.server().get("/metrics", &[]).await.text);
        }
    }

    async fn claim(&self, position: v1::Position) {
        let channel = self.channel(&self.filters[0].certificate).await;
        let mut watcher = self.server().watch_on(channel, None).await.unwrap();
        watcher.hello(&self.server().log_id(), Some(position)).await;
        assert_eq!(watcher.refusal().await.0, tonic::Code::FailedPrecondition);
    }
}

/// Metrics as scraped, an interval apart.
#[derive(Clone, Default)]
struct Recording {
    samples: usize,
    series: BTreeMap<String, Vec<Option<f64>>>,
}

impl Recording {
    fn scrape(&mut self, page: &str) {
        let now = self.now();
        let wall = time::OffsetDateTime::now_utc().unix_timestamp() as f64;
        self.add("up{}", 1.0);
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            // Times count by the recording's clock.
            let value = if is_time(name) && value > 0.0 {
                value - wall + now
            } else {
                value
            };
            self.add(name, value);
        }
        self.samples += 1;
    }

    /// Repeats the last sample; the time of the last checkpoint moves on.
    fn hold(&mut self, samples: usize) {
        for (name, values) in &mut self.series {
            let last = values
                .last()
                .copied()
                .filter(|_| values.len() == self.samples)
                .flatten();
            for ahead in 1..=samples {
                let moved = (ahead as u64 * INTERVAL_S) as f64;
                let moves = name.starts_with("credence_ledger_published_time_seconds");
                values.resize(self.samples + ahead - 1, None);
                values.push(last.map(|last| if moves { last + moved } else { last }));
            }
        }
        self.samples += samples;
    }

    /// Scrapes without an answer.
    fn down(&mut self, samples: usize) {
        for _ in 0..samples {
            self.add("up{}", 0.0);
            self.samples += 1;
        }
    }

    fn add(&mut self, name: &str, value: f64) {
        let values = self.series.entry(name.to_owned()).or_default();
        values.resize(self.samples, None);
        values.push(Some(value));
    }

    fn now(&self) -> f64 {
        (self.samples as u64 * INTERVAL_S) as f64
    }

    /// Evaluates the shipped rules: the error names the alerts that fired.
    fn judge(&self, promtool: &Path) -> Result<(), String> {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy-config/observability/rules");
        let mut text = format!(
            "rule_files: [{0}/recording.yml, {0}/control-plane.yml]\nevaluation_interval: {INTERVAL_S}s\ntests:\n  - name: \
             ordinary weeks\n    interval: {INTERVAL_S}s\n    input_series:\n",
            rules.canonicalize().unwrap().display()
        );
        for (name, values) in &self.series {
            let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
            let comma = if labels == "}" { "" } else { "," };
            let values = values
                .iter()
                .map(|value| value.map_or("_".to_owned(), |value| format!("{value}")));
            let values: Vec<_> = values.collect();
            writeln!(
                text,
                "      - {{series: '{name}{{job=\"credence-control-plane\",instance=\"c\"{comma}{labels}', values: '{}'}}",
                values.join(" ")
            )
            .unwrap();
        }
        let end = self.samples as u64 * INTERVAL_S;
        write!(
            text,
            "    promql_expr_test:\n      - {{expr: 'count_over_time(ALERTS{{alertstate=\"firing\"}}[{end}s])', eval_time: \
             {end}s, exp_samples: []}}\n"
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weeks.yml");
        std::fs::write(&file, text).unwrap();
        let ran = Command::new(promtool)
            .args(["test", "rules"])
            .arg(&file)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
        if ran.status.success() { Ok(()) } else { Err(said) }
    }
}

/// Seconds since the Unix epoch.
fn is_time(name: &str) -> bool {
    [
        "credence_ledger_published_time_seconds",
        "credence_tls_certificate_expires_seconds",
    ]
    .iter()
    .any(|time| name.starts_with(time))
}

/// The path where scripts/setup-prometheus.sh puts it.
fn promtool() -> Option<PathBuf> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/prometheus/promtool");
    if !tool.is_file() {
        eprintln!("SKIPPED: promtool is not in .tools/prometheus; scripts/setup-prometheus.sh says why");
        return None;
    }
    Some(tool)
}

const MONTHS: Duration = Duration::from_secs(90 * 24 * 60 * 60);
