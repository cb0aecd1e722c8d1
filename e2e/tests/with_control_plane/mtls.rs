//! Delegations bound to a client certificate, behind listeners that request one in different ways.

use std::sync::LazyLock;

use credence_e2e::tls::{self, Authority, Certificate};
use credence_e2e::{Failure, Reply, Request, Stack, StackOptions};

/// Accepts `x5t#S256`.
const BY_DIGEST: &str = "/v1/by-digest";
/// With `peer_validated: true`.
const BY_ID: &str = "/v1/by-id";

const AGENT: &str = "spiffe://mesh.example/ns/pay/sa/agent";

struct Mesh {
    stack: Stack,
    /// The agent's certificate.
    agent: Certificate,
    /// A later certificate of the same agent.
    renewed: Certificate,
    /// Another workload's.
    other: Certificate,
    /// One without a SPIFFE ID.
    nameless: Certificate,
    /// One with the agent's name, signed by the stranger.
    impostor: Certificate,
    authority: Authority,
    /// A CA that no listener trusts.
    _stranger: Authority,
}

/// Shared by all tests; it stops with the process.
fn mesh() -> &'static Mesh {
    static MESH: LazyLock<Mesh> = LazyLock::new(|| Mesh::start().unwrap());
    &MESH
}

impl Mesh {
    fn start() -> Result<Self, Failure> {
        let (authority, stranger) = (Authority::new()?, Authority::new()?);
        let server = authority.issue("server", "DNS:payments.example")?;
        let agent = format!("URI:{AGENT}");
        let options = StackOptions::quick()
            .replacing("- filters:\n", "- filters: &filters\n")
            .replacing("\n  clusters:\n", &listeners(&server, &authority))
            .replacing("rules:\n", RULES);
        Ok(Self {
            stack: Stack::start(&options)?,
            agent: authority.issue("agent", &agent)?,
            renewed: authority.issue("renewed", &agent)?,
            other: authority.issue("other", "URI:spiffe://mesh.example/ns/pay/sa/other")?,
            nameless: authority.issue("nameless", "DNS:agent.example")?,
            impostor: stranger.issue("impostor", &agent)?,
            authority,
            _stranger: stranger,
        })
    }

    /// A delegation with these further options.
    fn delegation(&self, options: &[&str]) -> String {
        let read = ["--tool", "catalog.read"];
        self.stack.mint("alice", &[&read, options].concat()).unwrap()
    }

    fn bound_to(&self, certificate: &Certificate) -> String {
        self.delegation(&["--holder-certificate", certificate.certificate.to_str().unwrap()])
    }

    fn bound_to_id(&self) -> String {
        self.delegation(&["--holder-spiffe-id", AGENT])
    }

    /// Sends a request for a path to a listener, with this certificate.
    fn ask(
        &self,
        listener: &str,
        path: &str,
        client: Option<&Certificate>,
        delegation: &str,
    ) -> Result<Reply, Failure> {
        let address = self.stack.envoy.listener(listener)?;
        tls::send(address, client, &Request::get(path).delegation(delegation))
    }

    /// The reason of the denial, or `allowed`.
    #[track_caller]
    fn answer(&self, listener: &str, path: &str, client: Option<&Certificate>, delegation: &str) -> String {
        let reply = self.ask(listener, path, client, delegation).unwrap();
        match (reply.status, reply.reason()) {
            (200, None) => "allowed".to_owned(),
            (401, Some(reason)) => reason,
            (status, _) => panic!("{status} {}", reply.text()),
        }
    }
}

/// Two more listeners with the filters of envoy-config/envoy.yaml, and then its clusters.
fn listeners(server: &Certificate, authority: &Authority) -> String {
    let listener = |name: &str, asks: &str, chain: &str| {
        format!(
            r#"
    - name: {name}
      address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
      filter_chains:
        - filters: *filters
          transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              require_client_certificate: {asks}
              common_tls_context:
                tls_certificates:
                  - certificate_chain: {{filename: {certificate}}}
                    private_key: {{filename: {key}}}
                validation_context:
                  trusted_ca: {{filename: {authority}}}
                  trust_chain_verification: {chain}
"#,
            certificate = server.certificate.display(),
            key = server.key.display(),
            authority = authority.certificate().display(),
        )
    };
    format!(
        "{}{}\n  clusters:\n",
        listener("requires", "true", "VERIFY_TRUST_CHAIN"),
        listener("accepts", "false", "ACCEPT_UNTRUSTED")
    )
}

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - {name: by-digest, match: {path: /v1/by-digest}, tool: catalog.read, proof: mtls}
                              - {name: by-id, match: {path: /v1/by-id}, tool: catalog.read, proof: mtls, peer_validated: true}
"#;

const MISSING: &str = "certificate_missing";
const MISMATCH: &str = "certificate_mismatch";

#[test]
fn the_certificate_with_the_digest_that_the_delegation_names_is_its_holders() {
    let mesh = mesh();
    let bound = mesh.bound_to(&mesh.agent);
    for path in [BY_DIGEST, BY_ID] {
        assert_eq!(mesh.answer("requires", path, Some(&mesh.agent), &bound), "allowed");
        // The same workload, with another certificate.
        assert_eq!(mesh.answer("requires", path, Some(&mesh.renewed), &bound), MISMATCH);
        assert_eq!(mesh.answer("requires", path, Some(&mesh.other), &bound), MISMATCH);
        assert_eq!(
            mesh.answer("requires", path, Some(&mesh.agent), &mesh.delegation(&[])),
            MISMATCH
        );
    }
}

#[test]
fn every_certificate_with_the_spiffe_id_that_the_delegation_names_is_its_holders() {
    let mesh = mesh();
    let bound = mesh.bound_to_id();
    for (client, answer) in [
        (&mesh.agent, "allowed"),
        (&mesh.renewed, "allowed"),
        (&mesh.other, MISMATCH),
        (&mesh.nameless, MISMATCH),
    ] {
        assert_eq!(
            mesh.answer("requires", BY_ID, Some(client), &bound),
            answer,
            "{client:?}"
        );
    }
}

#[test]
fn a_spiffe_id_alone_does_not_count_without_peer_validated() {
    let mesh = mesh();
    let bound = mesh.bound_to_id();
    assert_eq!(mesh.answer("requires", BY_DIGEST, Some(&mesh.agent), &bound), MISMATCH);
    assert_eq!(
        mesh.answer("accepts", BY_DIGEST, Some(&mesh.impostor), &bound),
        MISMATCH
    );
}

#[test]
fn where_both_are_named_both_must_match() {
    let mesh = mesh();
    let both = |certificate: &Certificate| {
        let file = certificate.certificate.to_str().unwrap();
        mesh.delegation(&["--holder-certificate", file, "--holder-spiffe-id", AGENT])
    };
    let (agent, other) = (both(&mesh.agent), both(&mesh.other));
    for path in [BY_DIGEST, BY_ID] {
        assert_eq!(mesh.answer("requires", path, Some(&mesh.agent), &agent), "allowed");
        assert_eq!(mesh.answer("requires", path, Some(&mesh.renewed), &agent), MISMATCH);
        assert_eq!(mesh.answer("requires", path, Some(&mesh.other), &other), MISMATCH);
    }
}

#[test]
fn a_listener_that_requires_a_certificate_takes_only_the_authoritys() {
    let mesh = mesh();
    let bound = mesh.bound_to_id();
    for client in [None, Some(&mesh.impostor)] {
        assert!(mesh.ask("requires", BY_ID, client, &bound).is_err());
    }
}

#[test]
fn a_listener_that_accepts_any_certificate_still_proves_its_key() {
    let mesh = mesh();
    let bound = mesh.bound_to(&mesh.impostor);
    assert_eq!(
        mesh.answer("accepts", BY_DIGEST, Some(&mesh.impostor), &bound),
        "allowed"
    );
    assert_eq!(mesh.answer("accepts", BY_DIGEST, Some(&mesh.agent), &bound), MISMATCH);
}

#[test]
fn without_a_certificate_there_is_no_holder() {
    let mesh = mesh();
    for delegation in [mesh.bound_to(&mesh.agent), mesh.bound_to_id()] {
        for path in [BY_DIGEST, BY_ID] {
            assert_eq!(mesh.answer("accepts", path, None, &delegation), MISSING);
            let plain = mesh.stack.send(&Request::get(path).delegation(&delegation)).unwrap();
            assert_eq!(plain.reason().as_deref(), Some(MISSING), "{}", plain.text());
        }
    }
}

/// docs/reference/configuration.md relies on this: the filter cannot see that there are several.
#[test]
fn envoy_tells_filters_the_first_uri_of_several() {
    let mesh = mesh();
    let bound = mesh.bound_to_id();
    let other = "spiffe://mesh.example/ns/pay/sa/other";
    for (first, second, answer) in [(AGENT, other, "allowed"), (other, AGENT, MISMATCH)] {
        let several = mesh
            .authority
            .issue("several", &format!("URI:{first},URI:{second}"))
            .unwrap();
        assert_eq!(
            mesh.answer("requires", BY_ID, Some(&several), &bound),
            answer,
            "{first} first"
        );
    }
}

#[test]
fn the_service_is_told_which_certificate_it_was() {
    let mesh = mesh();
    let reply = mesh
        .ask("requires", BY_ID, Some(&mesh.agent), &mesh.bound_to_id())
        .unwrap();
    let received = reply.received().unwrap_or_else(|| panic!("{}", reply.text()));
    assert_eq!(received.header("x-delegation-proof"), Some("mtls"));
    let digest = mesh.agent.digest().unwrap();
    assert_eq!(received.header("x-delegation-agent"), Some(digest.as_str()));
}
