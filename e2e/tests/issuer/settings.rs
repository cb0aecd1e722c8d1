//! `credence issuer check`: an error says its line, its place in the file, and what to do.

use std::fs;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::command::Credence;

const VALID: &str = r#"url: https://consent.example
identity_provider:
  issuer: https://login.example
  client_id: credence
control_plane: {url: "https://credence.example:7070", token_file: token}
keys_passphrase_file: passphrase
clients:
  - {id: planner, name: Planner, redirect_uris: ["https://planner.example/callback"]}
scopes: {read: {catalog.read: {}}}
policy:
  - name: staff
    groups: [staff]
    tools: {catalog.read: {item: {constraint_type: wildcard}}}
    audience: [https://payments.example]
limits: {kept_days: 90}
"#;

#[test]
fn an_error_in_the_settings_has_its_line_its_place_and_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("issuer.yaml");
    let program = Artefacts::from_environment().unwrap().credence;
    let credence = Credence::new(&program, folder.path());
    let path = file.to_str().unwrap();
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        credence.run(["issuer", "check", path])
    };
    assert_eq!(check(VALID).unwrap(), format!("{path}: no errors"));
    for (old, new, line, place, cure) in [
        (
            "url: https://consent",
            "url: http://consent",
            1,
            "url",
            "write an https URL",
        ),
        (
            "https://login.example",
            "http://login.example",
            3,
            "identity_provider.issuer",
            "write an https URL",
        ),
        (
            "client_id: credence",
            "client_id: ''",
            4,
            "identity_provider.client_id",
            "empty",
        ),
        (
            "https://credence",
            "http://credence",
            5,
            "control_plane.url",
            "http is only for this machine",
        ),
        (
            "https://planner",
            "http://planner",
            8,
            "clients[0].redirect_uris",
            "https",
        ),
        (
            "constraint_type: wildcard",
            "constraint_type: any",
            13,
            "policy[0].tools",
            "constraint",
        ),
        (
            "groups: [staff]",
            "groups: []",
            12,
            "policy[0].groups",
            "write at least one name, or leave it out",
        ),
        ("groups: [staff]", "depth: 9", 12, "policy[0].depth", "write 0 to 8"),
        (
            "kept_days: 90",
            "kept_days: 0",
            15,
            "limits.kept_days",
            "write 1 to 366",
        ),
        ("kept_days: 90", "days: 90", 15, "limits", "unknown field `days`"),
    ] {
        assert!(VALID.contains(old), "{old}");
        let refused = check(&VALID.replacen(old, new, 1)).unwrap_err().to_string();
        for expected in [format!("{path}:{line}"), format!("at {place}"), cure.to_owned()] {
            assert!(refused.contains(&expected), "no {expected:?} in: {refused}");
        }
    }
}
