//! An etcd that lets in only clients with a certificate, and then only users.

use std::fs;
use std::sync::PoisonError;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::command::Credence;
use credence_e2e::control_plane::{ControlPlane, Site};
use credence_e2e::etcd::Etcd;
use credence_e2e::operator::Operator;
use credence_e2e::place::Place;
use credence_e2e::tls::Authority;

use super::ALONE;

#[test]
fn a_replica_shows_etcd_its_certificate_and_logs_in() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new().unwrap();
    let client = authority.issue("replica", "DNS:replica").unwrap();
    let ca = folder.path().join("ca.pem");
    fs::copy(authority.certificate(), &ca).unwrap();
    let Some(mut etcd) = Etcd::start_secured(folder.path(), authority, ("credence", "open sesame")).unwrap() else {
        eprintln!("SKIPPED: etcd is not built here, because there is no Go that is new enough");
        return;
    };
    let secrets = folder.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    for name in ["audit-source-key", "filter-cache-secret"] {
        fs::write(secrets.join(name), [7; 32]).unwrap();
    }
    let password = folder.path().join("password");
    fs::write(&password, "open sesame\n").unwrap();
    let place = [
        ("--store", etcd.address()),
        ("--store-ca", ca.display().to_string()),
        ("--store-cert", client.certificate.display().to_string()),
        ("--store-key", client.key.display().to_string()),
        ("--store-user", "credence".to_owned()),
        ("--store-password-file", password.display().to_string()),
    ];
    let place: Vec<_> = place
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
    let options = [&place[..], &["--secrets".to_owned(), secrets.display().to_string()]].concat();
    let program = Artefacts::from_environment().unwrap().credence;
    let start = |options: &[String], folder: &std::path::Path| {
        fs::create_dir(folder).unwrap();
        let site = Site::at(Place::default()).unwrap();
        ControlPlane::start_at(site, &program, folder, options, &[], None)
    };

    let replica = start(&options, &folder.path().join("replica")).unwrap();
    let mut operator = Operator::of(&replica).unwrap();
    assert_eq!(operator.raise("alice").unwrap().seq, 1);
    // Another member knows no token of this one.
    let leader = etcd.leader().unwrap();
    etcd.restart(leader).unwrap();
    assert_eq!(operator.raise("bob").unwrap().seq, 2);
    let credence = Credence::new(&program, folder.path());
    let status = credence.run(
        ["cluster", "status"]
            .into_iter()
            .chain(place.iter().map(String::as_str)),
    );
    assert!(status.unwrap().contains("seq: 2\n"));

    fs::write(&password, "wrong\n").unwrap();
    let refused = start(&options, &folder.path().join("refused")).unwrap_err().to_string();
    assert!(refused.contains("invalid user ID or password"), "{refused}");
}
