//! The names that envoy-config/envoy.yaml gives to the service and to the issuer.

/// The service's name, as envoy-config/envoy.yaml has it.
pub const AUDIENCE: &str = "https://payments.example";

/// The issuer that the filter believes, as envoy-config/envoy.yaml has it.
pub const ISSUER: &str = "https://id.example.com";
