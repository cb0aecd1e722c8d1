//! Assigns credentials of `access` to entries of `scim` and `security_events`.

use credence_provisioning::{ScimSettings, TransmitterSettings};
use credence_runtime::settings::SettingsError;

use super::access::{AccessSettings, Credential, Role, check_name};

/// Checks both lists against the credentials.
pub(super) fn check(
    scim: &[ScimSettings],
    events: &[TransmitterSettings],
    access: &AccessSettings,
) -> Result<(), SettingsError> {
    let realms = scim
        .iter()
        .map(|realm| (&realm.name, &realm.credentials))
        .collect::<Vec<_>>();
    check_holders("scim", &realms, access, Role::Provisioner)?;
    let transmitters = events
        .iter()
        .map(|transmitter| (&transmitter.name, &transmitter.credentials))
        .collect::<Vec<_>>();
    check_holders("security_events", &transmitters, access, Role::Transmitter)
}

/// Checks that names are unique and valid, and that credentials exist, have the role, and belong to one entry.
fn check_holders(
    list: &str,
    holders: &[(&String, &Vec<String>)],
    access: &AccessSettings,
    role: Role,
) -> Result<(), SettingsError> {
    let mut names = Vec::new();
    let mut held = Vec::new();
    for (index, (name, credentials)) in holders.iter().enumerate() {
        let place = format!("{list}[{index}]");
        check_name(&place, name)?;
        if names.contains(name) {
            return Err(SettingsError::at(
                format!("{place}.name"),
                format!("another entry of {list} is named {name:?} already"),
            ));
        }
        names.push(name);
        if credentials.is_empty() {
            return Err(SettingsError::at(
                format!("{place}.credentials"),
                format!("name at least one credential of access, with the role {}", role.name()),
            ));
        }
        for credential in credentials.iter() {
            let place = format!("{place}.credentials");
            let known = access.credentials().find(|known| known.name == credential);
            let Some(Credential { roles, .. }) = known else {
                let problem = format!("access has no credential that is named {credential:?}");
                return Err(SettingsError::at(&place, problem));
            };
            if !roles.contains(&role) && !roles.contains(&Role::Admin) {
                return Err(SettingsError::at(
                    &place,
                    format!("the credential {credential:?} lacks the role {}", role.name()),
                ));
            }
            if held.contains(&credential) {
                return Err(SettingsError::at(
                    &place,
                    format!("the credential {credential:?} is for another entry of {list} already"),
                ));
            }
            held.push(credential);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use credence_provisioning::EventSubject;
    use credence_provisioning::ScimSubject;

    use crate::settings::Settings;

    fn read(identity: &str) -> Result<Settings, String> {
        let token = |name: &str, digit: &str, role: &str| {
            format!(
                r#"{{"name": "{name}", "sha256": "{}", "roles": ["{role}"]}}"#,
                digit.repeat(64)
            )
        };
        let json = format!(
            r#"{{"access": {{"tokens": [{}, {}, {}]}}, {identity}}}"#,
            token("entra", "1", "provisioner"),
            token("okta", "2", "transmitter"),
            token("both", "3", "admin"),
        );
        let settings: Settings = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    const REALM: &str = r#"{"name": "entra", "credentials": ["entra"], "issuer": "https://id"}"#;
    const TRANSMITTER: &str = r#"{"name": "okta", "credentials": ["okta"], "issuer": "https://okta",
        "audience": "https://credence", "jwks": {"url": "https://okta/keys"}, "principal_issuer": "https://id"}"#;

    #[test]
    fn what_is_left_out_has_its_default() {
        let settings = read(&format!(r#""scim": [{REALM}], "security_events": [{TRANSMITTER}]"#)).unwrap();
        assert_eq!(settings.scim[0].subject, ScimSubject::UserName);
        let transmitter = &settings.security_events[0];
        assert_eq!(
            (transmitter.subject, transmitter.max_age_s),
            (EventSubject::IssSub, 86_400)
        );
        assert_eq!(transmitter.algorithms.len(), 3);
    }

    #[test]
    fn errors_are_named() {
        let scim = |from: &str, to: &str| format!(r#""scim": [{}]"#, REALM.replace(from, to));
        let events = |from: &str, to: &str| format!(r#""security_events": [{}]"#, TRANSMITTER.replace(from, to));
        let two = |name: &str, credential: &str, issuer: &str| {
            format!(r#""scim": [{REALM}, {{"name": "{name}", "credentials": ["{credential}"], "issuer": "{issuer}"}}]"#)
        };
        read(&two("other", "both", "https://other")).unwrap();
        read(&events("https://okta/keys", "http://[::1]:8/keys")).unwrap();
        for (identity, expected) in [
            (scim(r#"["entra"]"#, "[]"), "scim[0].credentials"),
            (scim(r#"["entra"]"#, r#"["unknown"]"#), "no credential"),
            (scim(r#"["entra"]"#, r#"["okta"]"#), "lacks the role provisioner"),
            (scim("https://id", ""), "scim[0].issuer"),
            (scim(r#""name": "entra""#, r#""name": """#), "scim[0].name"),
            (two("entra", "both", "https://other"), "scim[1].name"),
            (two("other", "entra", "https://other"), "scim[1].credentials"),
            (two("other", "both", "https://id"), "scim[1].issuer"),
            (events("https://credence", ""), "security_events[0].audience"),
            (events("https://okta/keys", "http://okta/keys"), "jwks.url"),
            (events("https://okta/keys", "http://127.0.0.1@okta/keys"), "jwks.url"),
            (events("https://okta/keys", "http://localhost.okta/keys"), "jwks.url"),
            (events(r#""url""#, r#""file": "f", "url""#), "either file"),
            (events(r#""issuer""#, r#""max_age_s": 59, "issuer""#), "max_age_s"),
            (events(r#""issuer""#, r#""algorithms": [], "issuer""#), "algorithms"),
            (
                events(r#""issuer""#, r#""algorithms": ["HS256"], "issuer""#),
                "unknown variant",
            ),
        ] {
            let refused = read(&identity).unwrap_err();
            assert!(refused.contains(expected), "{identity}: {refused}");
        }
    }
}
