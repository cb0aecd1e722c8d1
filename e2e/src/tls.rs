//! TLS with client certificates: a CA of our own, and a client that presents any certificate. Both use `openssl`, as
//! users do.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::{Failure, Reply, Request, guardian};

/// A CA whose certificates are valid for a day. Its files are removed when it is dropped.
#[derive(Debug)]
pub struct Authority {
    certificate: Certificate,
    folder: TempDir,
}

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate's PEM file.
    pub certificate: PathBuf,
    /// The private key's PEM file.
    pub key: PathBuf,
}

impl Authority {
    /// A new CA.
    ///
    /// # Errors
    /// If `openssl` is missing or fails.
    pub fn new() -> Result<Self, Failure> {
        let folder = TempDir::with_prefix("credence-tls-").map_err(Failure::of("making a folder for certificates"))?;
        guardian::own(folder.path())?;
        let certificate = Certificate::make(folder.path(), "authority", &[])?;
        Ok(Self { certificate, folder })
    }

    /// The CA's certificate, as `trusted_ca` takes it.
    pub fn certificate(&self) -> &Path {
        &self.certificate.certificate
    }

    /// Signs a certificate with these names, such as `URI:spiffe://mesh.example/agent`. `file` names
    /// its files.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn issue(&self, file: &str, names: &str) -> Result<Certificate, Failure> {
        let names = format!("subjectAltName={names}");
        let issuer = [
            "-CA",
            text(&self.certificate.certificate),
            "-CAkey",
            text(&self.certificate.key),
        ];
        let of_a_peer = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &names];
        Certificate::make(self.folder.path(), file, &[&issuer[..], &of_a_peer].concat())
    }

    /// The same, but the certificate has expired.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn issue_ended(&self, file: &str, names: &str) -> Result<Certificate, Failure> {
        let good = self.issue(file, names)?;
        let at = |name: &str| self.folder.path().join(name);
        let write = |name: &str, contents: &str| {
            fs::write(at(name), contents).map_err(Failure::of("preparing openssl to sign certificates"))
        };
        // Only `openssl ca` takes dates.
        let folder = self.folder.path().display();
        write("ca.conf", &CA.replace("FOLDER", &folder.to_string()))?;
        write("index", "")?;
        let (request, ended) = (at("ended.csr"), at("ended.pem"));
        openssl(&[
            "x509",
            "-x509toreq",
            "-copy_extensions",
            "copyall",
            "-in",
            text(&good.certificate),
            "-signkey",
            text(&good.key),
            "-out",
            text(&request),
        ])?;
        let dates = ["-startdate", "20250101000000Z", "-enddate", "20250102000000Z"];
        let files = ["-in", text(&request), "-out", text(&ended)];
        let issuer = [
            "-cert",
            text(&self.certificate.certificate),
            "-keyfile",
            text(&self.certificate.key),
        ];
        let conf = at("ca.conf");
        let how = ["ca", "-batch", "-notext", "-config", text(&conf)];
        openssl(&[&how[..], &issuer, &dates, &files].concat())?;
        Ok(Certificate {
            certificate: ended,
            key: good.key,
        })
    }
}

impl Certificate {
    /// SHA-256 of the certificate, in lower-case hexadecimal.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn digest(&self) -> Result<String, Failure> {
        let file = text(&self.certificate);
        let printed = openssl(&["x509", "-in", file, "-noout", "-fingerprint", "-sha256"])?;
        let digest = printed.trim().rsplit_once('=').map(|(_, digest)| digest);
        Ok(digest.unwrap_or_default().replace(':', "").to_lowercase())
    }

    fn make(folder: &Path, file: &str, more: &[&str]) -> Result<Self, Failure> {
        let made = Self {
            certificate: folder.join(format!("{file}.pem")),
            key: folder.join(format!("{file}.key")),
        };
        let subject = format!("/CN={file}");
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let files = ["-keyout", text(&made.key), "-out", text(&made.certificate)];
        let request = ["req", "-x509", "-days", "1", "-subj", &subject];
        openssl(&[&request[..], &key, &files, more].concat())?;
        Ok(made)
    }
}

/// Sends a request over a new TLS connection, with this client certificate if any.
///
/// # Errors
/// If there is no reply, for instance because Envoy rejects the certificate.
pub fn send(address: SocketAddr, client: Option<&Certificate>, request: &Request) -> Result<Reply, Failure> {
    let attempt = || format!("sending a request to {address} over TLS");
    let mut command = Command::new("openssl");
    // It prints Envoy's reply, and stays until Envoy closes the connection.
    command.args(["s_client", "-quiet", "-connect", &address.to_string()]);
    if let Some(Certificate { certificate, key }) = client {
        command.args(["-cert", text(certificate), "-key", text(key)]);
    }
    let begin = Instant::now();
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Failure::of(attempt()))?;
    // A rejected client may have ended; its own error message is better than a write error.
    if let Some(mut to) = running.stdin.take() {
        let _ = to.write_all(&request.clone().header("connection", "close").encode());
    }
    let ran = running.wait_with_output().map_err(Failure::of(attempt()))?;
    Reply::read(&mut &ran.stdout[..], begin).map_err(|error| {
        let said = String::from_utf8_lossy(&ran.stderr);
        Failure::new(format!("{}: {error}: {said}", attempt()))
    })
}

fn openssl(arguments: &[&str]) -> Result<String, Failure> {
    let ran = Command::new("openssl")
        .args(arguments)
        .output()
        .map_err(Failure::of("running openssl, which these tests need"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(Failure::new(format!(
            "openssl {arguments:?} failed ({}): {said}",
            ran.status
        )));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// For `openssl ca`.
const CA: &str = "\
[ca]
default_ca = here
[here]
database = FOLDER/index
new_certs_dir = FOLDER
rand_serial = yes
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
";

fn text(path: &Path) -> &str {
    // UTF-8 names in a UTF-8 folder.
    path.to_str().unwrap_or_default()
}
