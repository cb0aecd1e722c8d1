//! Tools that delegations in tests and demo grant, as `--tool` of `credence mint` takes them.

/// Any item of the catalogue.
pub const READ: &str = r#"catalog.read={"item":{"constraint_type":"wildcard"}}"#;

/// Any amount, to any account.
pub const CHARGE: &str =
    r#"payments.charge={"account":{"constraint_type":"wildcard"},"amount":{"constraint_type":"wildcard"}}"#;
