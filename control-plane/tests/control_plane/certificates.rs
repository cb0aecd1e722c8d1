//! A CA that signs certificates for tests, with `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use time::OffsetDateTime;
use time::macros::format_description;

/// Its files are removed when it is dropped.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    name: String,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let this = Self {
            folder,
            name: name.to_owned(),
        };
        let subject = format!("/CN={name}");
        this.openssl(
            &[
                &["req", "-x509", "-days", "1", "-subj", &subject][..],
                &NEW_KEY,
                &["-keyout", "ca.key", "-out", "ca.pem"],
            ]
            .concat(),
        );
        std::fs::write(this.folder.path().join("ca.conf"), CONFIGURATION).unwrap();
        std::fs::write(this.folder.path().join("index"), "").unwrap();
        this
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn pem(&self) -> String {
        read(&self.path())
    }

    /// Valid for a day, with these names, such as `URI:spiffe://mesh/envoy`.
    pub(crate) fn issue(&self, names: &str) -> Certificate {
        self.issue_until(names, Duration::from_secs(24 * 60 * 60))
    }

    /// A day old, expired an hour ago.
    pub(crate) fn issue_ended(&self, names: &str) -> Certificate {
        let now = OffsetDateTime::now_utc();
        self.sign(names, now - Duration::from_secs(3600))
    }

    pub(crate) fn issue_until(&self, names: &str, from_now: Duration) -> Certificate {
        self.sign(names, OffsetDateTime::now_utc() + from_now)
    }

    fn sign(&self, names: &str, ends: OffsetDateTime) -> Certificate {
        let file: String = names.chars().filter(char::is_ascii_alphanumeric).collect();
        let number = std::fs::read_dir(self.folder.path()).unwrap().count();
        let at = |end: &str| self.folder.path().join(format!("{file}{number}.{end}"));
        let (key, request, certificate) = (at("key"), at("csr"), at("pem"));
        let subject = format!("/CN=of {}", self.name);
        let names = format!("subjectAltName={names}");
        let files = ["-keyout", text(&key), "-out", text(&request)];
        self.openssl(&[&["req", "-subj", &subject, "-addext", &names][..], &NEW_KEY, &files].concat());
        let written = |time: OffsetDateTime| {
            let format = format_description!("[year][month][day][hour][minute][second]Z");
            time.format(&format).unwrap()
        };
        let begins = ends.min(OffsetDateTime::now_utc()) - Duration::from_secs(2 * 24 * 60 * 60);
        let (begin, end) = (written(begins), written(ends));
        let dates = ["-startdate", &begin, "-enddate", &end];
        let files = ["-in", text(&request), "-out", text(&certificate)];
        let authority = [
            "-batch", "-notext", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key",
        ];
        self.openssl(&[&["ca"][..], &authority, &dates, &files].concat());
        Certificate { certificate, key }
    }

    fn openssl(&self, arguments: &[&str]) {
        let ran = Command::new("openssl")
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("these tests need openssl");
        assert!(
            ran.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}

impl Certificate {
    pub(crate) fn pem(&self) -> String {
        read(&self.certificate)
    }

    pub(crate) fn key_pem(&self) -> String {
        read(&self.key)
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

const CONFIGURATION: &str = "\
[ca]
default_ca = here
[here]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
";
