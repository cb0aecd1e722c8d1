//! TLS and client certificates on both ports, and changes of their files.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use credence_control_plane::{CertificateSettings, CertificateSubject, PortTls, Role};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, ClientTlsConfig, Identity};

use super::certificates::{Authority, Certificate};
use super::harness::{Place, Server, raise};
use super::stream::Stream;

const HOST: &str = "credence.test";
const ENVOY: &str = "URI:spiffe://mesh/ns/shop/sa/envoy";
const OTHER_ENVOY: &str = "URI:spiffe://mesh/ns/shop/sa/other";
const OPERATOR: &str = "URI:spiffe://mesh/ns/ops/sa/operator";

/// A control plane with mutual TLS on both ports, from files in their own folder.
struct Secured {
    server: Server,
    place: Place,
    files: tempfile::TempDir,
    authority: Authority,
}

impl Secured {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut credence_control_plane::Config)) -> Self {
        let authority = Authority::new("authority");
        let files = tempfile::tempdir().unwrap();
        let own = authority.issue(&format!("DNS:{HOST}"));
        let at = |name: &str| files.path().join(name);
        std::fs::write(at("tls.crt"), own.pem()).unwrap();
        std::fs::write(at("tls.key"), own.key_pem()).unwrap();
        std::fs::write(at("ca.crt"), authority.pem()).unwrap();
        let place = Place::new();
        let port = PortTls {
            certificate: at("tls.crt"),
            key: at("tls.key"),
            client_ca: Some(at("ca.crt")),
        };
        let server = place
            .start_with(|config| {
                config.settings.tls.http = Some(port.clone());
                config.settings.tls.grpc = Some(port);
                config.settings.access.certificates = vec![
                    known("envoys", "spiffe://mesh/ns/shop/*", Role::Filter),
                    known("operator by certificate", &OPERATOR[4..], Role::Revoker),
                ];
                change(config);
            })
            .await;
        Self {
            server,
            place,
            files,
            authority,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Replaces a file atomically.
    fn replace(&self, name: &str, contents: &str) {
        let new = self.file("new");
        std::fs::write(&new, contents).unwrap();
        std::fs::rename(new, self.file(name)).unwrap();
    }

    async fn channel(&self, client: Option<&Certificate>) -> Result<Channel, tonic::transport::Error> {
        self.channel_trusting(&self.authority, client).await
    }

    async fn channel_trusting(
        &self,
        authority: &Authority,
        client: Option<&Certificate>,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(tonic::transport::Certificate::from_pem(authority.pem()))
            .domain_name(HOST);
        if let Some(client) = client {
            tls = tls.identity(Identity::from_pem(client.pem(), client.key_pem()));
        }
        let address = self.server.running.grpc_address();
        Channel::from_shared(format!("https://{address}"))
            .unwrap()
            .tls_config(tls)
            .unwrap()
            .connect()
            .await
    }

    /// Whether a client with this certificate can follow the log: its stream gets a welcome.
    async fn follows(&self, client: Option<&Certificate>) -> bool {
        self.follows_trusting(&self.authority, client).await
    }

    async fn follows_trusting(&self, authority: &Authority, client: Option<&Certificate>) -> bool {
        let Ok(channel) = self.channel_trusting(authority, client).await else {
            return false;
        };
        let Ok(mut watcher) = self.server.watch_on(channel, None).await else {
            return false;
        };
        watcher.hello(&self.server.log_id(), None).await;
        watcher.next().await.is_ok()
    }

    /// The status and the text of an answer of the HTTP API.
    async fn ask(&self, request: ureq::http::Request<String>, client: Option<&Certificate>) -> (u16, String) {
        use ureq::tls::{Certificate as Der, ClientCert, PrivateKey, RootCerts, TlsConfig};
        let authority = Der::from_pem(self.authority.pem().as_bytes()).unwrap();
        let mut tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[authority]));
        if let Some(client) = client {
            let certificate = Der::from_pem(client.pem().as_bytes()).unwrap();
            let key = PrivateKey::from_pem(client.key_pem().as_bytes()).unwrap();
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&[certificate], key)));
        }
        let (tls, address) = (tls.build(), self.server.running.http_address());
        let asked = tokio::task::spawn_blocking(move || {
            let config = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .tls_config(tls);
            let resolver = Here(address);
            let connector = ureq::unversioned::transport::DefaultConnector::default();
            let agent = ureq::Agent::with_parts(config.build(), connector, resolver);
            let mut response = agent.run(request).unwrap();
            let text = response.body_mut().read_to_string().unwrap();
            (response.status().as_u16(), text)
        });
        asked.await.unwrap()
    }

    async fn revoke(&self, client: Option<&Certificate>) -> (u16, String) {
        let request = ureq::http::Request::post(format!("https://{HOST}/v1/revocations"))
            .header("content-type", "application/json");
        self.ask(request.body(raise("alice").to_string()).unwrap(), client)
            .await
    }

    /// Follows the revocations over HTTPS, authenticated only by the certificate.
    async fn event_stream(&self, client: &Certificate) -> Stream {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate(&self.authority.pem())).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate(&client.pem())],
                PrivateKeyDer::from_pem_slice(client.key_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let stream = TcpStream::connect(self.server.running.http_address()).await.unwrap();
        let stream = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls))
            .connect(HOST.try_into().unwrap(), stream)
            .await
            .unwrap();
        let (status, stream) = Stream::open_on(Box::new(stream), "?from=now", "").await;
        assert_eq!(status, "HTTP/1.0 200 OK");
        stream
    }

    async fn metrics(&self) -> String {
        let request = ureq::http::Request::get(format!("https://{HOST}/metrics"));
        self.ask(request.body(String::new()).unwrap(), None).await.1
    }

    /// Waits until a metric has the value.
    async fn wait_for(&self, line: &str) {
        let begin = Instant::now();
        loop {
            let metrics = self.metrics().await;
            if metrics.lines().any(|found| found == line) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "no {line} in {metrics}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Resolves every host to the address of the test's control plane.
#[derive(Debug)]
struct Here(std::net::SocketAddr);

impl ureq::unversioned::resolver::Resolver for Here {
    fn resolve(
        &self,
        _: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: ureq::unversioned::transport::NextTimeout,
    ) -> Result<ureq::unversioned::resolver::ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn known(name: &str, uri: &str, role: Role) -> CertificateSettings {
    CertificateSettings {
        name: name.to_owned(),
        subject: CertificateSubject::Uri(uri.to_owned()),
        roles: vec![role],
        issuers: None,
    }
}

#[tokio::test]
async fn a_certificate_does_what_its_role_may_and_nothing_else() {
    let secured = Secured::start().await;
    let (envoy, operator) = (secured.authority.issue(ENVOY), secured.authority.issue(OPERATOR));
    assert!(secured.follows(Some(&envoy)).await);
    let (status, text) = secured.revoke(Some(&envoy)).await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("admin, revoker"), "{text}");
    assert_eq!(secured.revoke(None).await.0, 401);
    assert_eq!(secured.revoke(Some(&operator)).await.0, 200);

    let channel = secured.channel(Some(&operator)).await.unwrap();
    let refused = secured.server.report_on(channel, None, None).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let stranger = secured.authority.issue("URI:spiffe://mesh/ns/elsewhere/sa/x");
    assert!(!secured.follows(Some(&stranger)).await);
}

#[tokio::test]
async fn a_client_without_a_valid_certificate_is_refused_and_counted_by_reason() {
    let secured = Secured::start().await;
    let other = Authority::new("other");
    let (foreign, ended) = (other.issue(ENVOY), secured.authority.issue_ended(ENVOY));
    for (client, reason) in [
        (None, "no_certificate"),
        (Some(&foreign), "unknown_authority"),
        (Some(&ended), "expired_certificate"),
    ] {
        assert!(!secured.follows(client).await, "{reason}");
        secured
            .wait_for(&format!(
                "credence_tls_handshake_failures_total{{port=\"grpc\",reason=\"{reason}\"}} 1"
            ))
            .await;
    }
    let plain = secured.server.try_channel().await;
    if let Ok(channel) = plain {
        let watched = secured.server.watch_on(channel, None).await;
        assert!(watched.is_err());
    }
    secured
        .wait_for("credence_tls_handshake_failures_total{port=\"grpc\",reason=\"not_tls\"} 1")
        .await;
}

#[tokio::test]
async fn a_peer_that_stalls_its_handshake_delays_no_other_and_is_closed() {
    let limit = Duration::from_secs(1);
    let secured = Secured::start_with(|config| config.timeouts.hello = limit).await;
    let begin = Instant::now();
    let mut stalled = TcpStream::connect(secured.server.running.grpc_address()).await.unwrap();
    // The start of a ClientHello.
    stalled.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    assert!(secured.follows(Some(&secured.authority.issue(ENVOY))).await);
    assert!(begin.elapsed() < limit, "the others had to wait");
    assert_eq!(stalled.read(&mut [0; 64]).await.unwrap_or(0), 0);
    assert!(begin.elapsed() < 3 * limit);
    secured
        .wait_for("credence_tls_handshake_failures_total{port=\"grpc\",reason=\"timeout\"} 1")
        .await;
}

#[tokio::test]
async fn new_files_are_in_force_for_new_connections_and_old_ones_go_on() {
    let secured = Secured::start().await;
    let envoy = secured.authority.issue(ENVOY);
    let channel = secured.channel(Some(&envoy)).await.unwrap();
    let mut watcher = secured.server.watch_on(channel, None).await.unwrap();
    watcher.hello(&secured.server.log_id(), None).await;
    watcher.welcome().await;

    let successor = Authority::new("successor");
    let own = successor.issue(&format!("DNS:{HOST}"));
    secured.replace("tls.key", &own.key_pem());
    secured.replace("tls.crt", &own.pem());
    let begin = Instant::now();
    while !secured.follows_trusting(&successor, Some(&envoy)).await {
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        !secured.follows(Some(&envoy)).await,
        "the old certificate is still shown"
    );
    watcher.ping(1).await;
}

#[tokio::test]
async fn files_are_followed_through_the_links_that_kubernetes_swaps() {
    use std::os::unix::fs::symlink;
    let authority = Authority::new("authority");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |version: &str, own: &Certificate| {
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("tls.crt"), own.pem()).unwrap();
        std::fs::write(at(version).join("tls.key"), own.key_pem()).unwrap();
    };
    write("..1", &authority.issue(&format!("DNS:{HOST}")));
    symlink("..1", at("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), at(name)).unwrap();
    }
    let secured = Secured::start_with(|config| {
        let grpc = config.settings.tls.grpc.as_mut().unwrap();
        (grpc.certificate, grpc.key) = (at("tls.crt"), at("tls.key"));
    })
    .await;
    let successor = Authority::new("successor");
    write("..2", &successor.issue(&format!("DNS:{HOST}")));
    symlink("..2", at("..new")).unwrap();
    std::fs::rename(at("..new"), at("..data")).unwrap();
    secured
        .wait_for("credence_tls_reloads_total{port=\"grpc\",outcome=\"success\"} 1")
        .await;
    let envoy = secured.authority.issue(ENVOY);
    assert!(secured.follows_trusting(&successor, Some(&envoy)).await);
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_old_ones_in_force_and_are_reported() {
    let secured = Secured::start().await;
    let envoy = secured.authority.issue(ENVOY);
    let (old, key) = (
        std::fs::read_to_string(secured.file("tls.crt")).unwrap(),
        std::fs::read_to_string(secured.file("tls.key")).unwrap(),
    );
    let other = secured.authority.issue(&format!("DNS:{HOST}"));
    for (name, broken, mended) in [
        ("tls.crt", "nonsense".to_owned(), &old),
        // Of another certificate.
        ("tls.key", other.key_pem(), &key),
    ] {
        secured.replace(name, &broken);
        for port in ["http", "grpc"] {
            secured
                .wait_for(&format!("credence_tls_files_current{{port=\"{port}\"}} 0"))
                .await;
        }
        assert!(secured.follows(Some(&envoy)).await);
        secured.replace(name, mended);
        secured.wait_for("credence_tls_files_current{port=\"grpc\"} 1").await;
        secured.wait_for("credence_tls_files_current{port=\"http\"} 1").await;
    }
    std::fs::remove_file(secured.file("ca.crt")).unwrap();
    secured.wait_for("credence_tls_files_current{port=\"grpc\"} 0").await;
    assert!(secured.follows(Some(&envoy)).await);
}

#[tokio::test]
async fn a_new_client_ca_is_trusted_and_connections_under_the_old_one_end() {
    let secured = Secured::start().await;
    let successor = Authority::new("successor");
    let (old, new) = (secured.authority.issue(ENVOY), successor.issue(ENVOY));
    let channel = secured.channel(Some(&old)).await.unwrap();
    let mut watcher = secured.server.watch_on(channel.clone(), None).await.unwrap();
    watcher.hello(&secured.server.log_id(), None).await;
    watcher.welcome().await;

    // While both CAs are trusted, all clients keep working.
    secured.replace("ca.crt", &format!("{}{}", secured.authority.pem(), successor.pem()));
    secured
        .wait_for("credence_tls_reloads_total{port=\"grpc\",outcome=\"success\"} 1")
        .await;
    assert!(secured.follows(Some(&new)).await);
    watcher.ping(1).await;

    secured.replace("ca.crt", &successor.pem());
    let (code, message) = watcher.refusal().await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("client_ca"), "{message}");
    assert!(
        secured.server.watch_on(channel, None).await.is_err(),
        "the same connection opens another stream"
    );
    assert!(!secured.follows(Some(&old)).await);
    assert!(secured.follows(Some(&new)).await);
}

#[tokio::test]
async fn an_event_stream_ends_with_the_authority_of_the_certificate_that_opened_it() {
    let secured = Secured::start().await;
    let successor = Authority::new("successor");
    let (old, new) = (secured.authority.issue(OPERATOR), successor.issue(OPERATOR));
    secured.replace("ca.crt", &format!("{}{}", secured.authority.pem(), successor.pem()));
    secured
        .wait_for("credence_tls_reloads_total{port=\"http\",outcome=\"success\"} 1")
        .await;
    let mut ending = secured.event_stream(&old).await;
    let mut staying = secured.event_stream(&new).await;
    ending.named("alive").await;

    secured.replace("ca.crt", &successor.pem());
    assert!(ending.ends_without_a_record().await);
    secured
        .wait_for("credence_http_streams_ended_total{outcome=\"withdrawn\"} 1")
        .await;
    assert_eq!(secured.revoke(Some(&new)).await.0, 200);
    staying.named("record").await;
}

#[tokio::test]
async fn an_expired_certificate_ends_its_streams() {
    let secured = Secured::start().await;
    let brief = secured.authority.issue_until(ENVOY, Duration::from_secs(3));
    let channel = secured.channel(Some(&brief)).await.unwrap();
    let mut watcher = secured.server.watch_on(channel, None).await.unwrap();
    watcher.hello(&secured.server.log_id(), None).await;
    watcher.welcome().await;
    let (code, message) = watcher.refusal().await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("has expired"), "{message}");
}

#[tokio::test]
async fn an_audit_source_is_the_peers_that_began_it() {
    let secured = Secured::start().await;
    let (envoy, other) = (secured.authority.issue(ENVOY), secured.authority.issue(OTHER_ENVOY));
    let channel = secured.channel(Some(&envoy)).await.unwrap();
    let (reporter, welcome) = secured.server.report_on(channel, None, None).await.unwrap();
    let ticket = welcome.ticket.unwrap();
    drop(reporter);

    let channel = secured.channel(Some(&other)).await.unwrap();
    let stolen = secured.server.report_on(channel, None, Some(ticket.clone())).await;
    assert_eq!(stolen.err().unwrap().code(), Code::Unauthenticated);
    // A new certificate of the same workload continues the source.
    let renewed = secured.authority.issue(ENVOY);
    let channel = secured.channel(Some(&renewed)).await.unwrap();
    let (_, again) = secured
        .server
        .report_on(channel, None, Some(ticket.clone()))
        .await
        .unwrap();
    assert_eq!(again.ticket.unwrap().source, ticket.source);
}

#[tokio::test]
async fn the_end_of_the_certificate_is_a_metric() {
    let secured = Secured::start().await;
    let metrics = secured.metrics().await;
    let expires: i64 = metrics
        .lines()
        .find_map(|line| line.strip_prefix("credence_tls_certificate_expires_seconds{port=\"grpc\"} "))
        .unwrap()
        .parse()
        .unwrap();
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    assert!((now + 86_000..now + 86_500).contains(&expires), "{expires}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_start() {
    let authority = Authority::new("authority");
    let own = authority.issue(&format!("DNS:{HOST}"));
    let other = authority.issue("DNS:other");
    let port = |certificate: PathBuf, key: PathBuf| PortTls {
        certificate,
        key,
        client_ca: None,
    };
    for (port, expected) in [
        (
            port("/nowhere".into(), own.key.clone()),
            "tls.http.certificate: the file /nowhere",
        ),
        (port(own.key.clone(), own.key.clone()), "holds no certificate"),
        (
            port(own.certificate.clone(), own.certificate.clone()),
            "holds no private key",
        ),
        (
            port(own.certificate.clone(), other.key.clone()),
            "is not the key of the certificate",
        ),
    ] {
        let place = Place::new();
        let refused = place.try_start(|config| config.settings.tls.http = Some(port)).await;
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_reload_applies_all_files_and_certificates_or_none() {
    let secured = Secured::start().await;
    let envoy = secured.authority.issue(ENVOY);
    let mut settings = secured.place.config().settings;
    let port = PortTls {
        certificate: secured.file("tls.crt"),
        key: secured.file("tls.key"),
        client_ca: Some(secured.file("ca.crt")),
    };
    settings.tls.http = Some(port.clone());
    settings.tls.grpc = Some(port);
    settings.access.certificates = vec![known("others", &OTHER_ENVOY[4..], Role::Filter)];
    let mut broken = settings.clone();
    broken.tls.grpc.as_mut().unwrap().key = secured.file("nowhere");
    secured.server.running.reload(broken).await.unwrap_err();
    assert!(secured.follows(Some(&envoy)).await);
    let mut switched = settings.clone();
    switched.tls.http = None;
    let refused = secured.server.running.reload(switched).await.unwrap_err();
    assert!(refused.to_string().contains("restart"), "{refused}");

    secured.server.running.reload(settings).await.unwrap();
    assert!(!secured.follows(Some(&envoy)).await);
    assert!(secured.follows(Some(&secured.authority.issue(OTHER_ENVOY))).await);
}

/// The files are checked every two seconds, and an invalid change counts once it was seen twice.
const PATIENCE: Duration = Duration::from_secs(15);
