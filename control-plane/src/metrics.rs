//! All metrics, collected from all parts.

use std::sync::Arc;

use credence_evidence::OtlpMetrics;
use credence_runtime::client_limits::ShareMetrics;
use credence_runtime::metrics::{Counters, Group};
use credence_server::TlsMetrics;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Every metric, and the registry that `/metrics` encodes. No label holds a value that a client chose, so there are few
/// series.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) revocation: Arc<credence_revocation::Metrics>,
    pub(crate) evidence: Arc<credence_evidence::Metrics>,
    pub(crate) otlp: Arc<OtlpMetrics>,
    pub(crate) provisioning: Arc<credence_provisioning::Metrics>,
    pub(crate) issuer_keys: Arc<credence_issuer_keys::Metrics>,
    pub(crate) shares: ShareMetrics,
    pub(crate) tls: TlsMetrics,
    pub(crate) configuration_reloads: Counters<1>,
    pub(crate) grpc_refusals: Counters<1>,
    pub(crate) http_requests: Counters<2>,
    pub(crate) rate_limited: Counters<1>,
    pub(crate) http_subscribers: Gauge,
    pub(crate) http_streams_ended: Counters<1>,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("credence");
        let all = &mut registry;
        let revocation = Arc::new(credence_revocation::Metrics::new(all));
        let evidence = Arc::new(credence_evidence::Metrics::new(all));
        let otlp = Arc::new(OtlpMetrics::new(all));
        let issuer_keys = Arc::new(credence_issuer_keys::Metrics::new(all));
        let provisioning = Arc::new(credence_provisioning::Metrics::new(all));
        let (shares, tls) = (ShareMetrics::new(all), TlsMetrics::new(all));
        let mut group = Group::without_prefix(all);
        Self {
            grpc_refusals: group.add("grpc_refusals", "Streams refused for their credential, by code"),
            http_requests: group.add("http_requests", "Requests, by route, status"),
            rate_limited: group.add("http_rate_limited", "429 answers, by exceeded rate (by)"),
            http_subscribers: group.add("http_subscribers", "Open streams over HTTP"),
            http_streams_ended: group.add("http_streams_ended", "Ended streams over HTTP, by outcome"),
            configuration_reloads: Group::new(all, "configuration").add("reloads", "Reloads, by outcome"),
            registry,
            revocation,
            evidence,
            otlp,
            provisioning,
            issuer_keys,
            shares,
            tls,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use credence_runtime::client_limits::SharedLimit;
    use credence_runtime::metrics::{Gauges, labels};

    /// Creates one series of each metric with labels. Without a series, a metric is not shown.
    fn count_one<const N: usize>(counters: &Counters<N>) {
        counters.get_or_create(&labels([("label", "value"); N])).inc();
    }

    fn set_one(gauges: &Gauges<1>) {
        gauges.get_or_create(&labels([("label", "value")])).set(1);
    }

    fn shown() -> String {
        let metrics = Metrics::new();
        let (revocation, evidence) = (&metrics.revocation, &metrics.evidence);
        let (provisioning, tls) = (&metrics.provisioning, &metrics.tls);
        count_one(&revocation.watch_ended);
        count_one(&revocation.revocations);
        for counters in [
            &evidence.report_ended,
            &evidence.chains_verified,
            &evidence.allows_checked,
        ] {
            count_one(counters);
        }
        count_one(&evidence.ledger_witness_requests);
        set_one(&evidence.ledger_witnessed);
        set_one(&provisioning.scim_users);
        count_one(&metrics.issuer_keys.fetches);
        set_one(&metrics.issuer_keys.keys);
        set_one(&metrics.issuer_keys.trusted_until);
        for counters in [
            &provisioning.scim_changes,
            &provisioning.security_events,
            &provisioning.jwks_reads,
        ] {
            count_one(counters);
        }
        for counters in [
            &metrics.grpc_refusals,
            &metrics.rate_limited,
            &metrics.http_streams_ended,
        ] {
            count_one(counters);
        }
        count_one(&metrics.http_requests);
        for counters in [&tls.withdrawn, &metrics.configuration_reloads] {
            count_one(counters);
        }
        for counters in [&tls.reloads, &tls.handshake_failures] {
            count_one(counters);
        }
        set_one(&tls.certificate_expires);
        set_one(&tls.files_current);
        metrics.shares.announce(SharedLimit::Calls, 1);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics.registry).unwrap();
        text
    }
    #[test]
    fn the_guide_has_every_metric_with_its_kind_and_no_other() {
        let text = shown();
        let shown: BTreeSet<(String, String)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| {
                let suffix = if kind == "counter" { "_total" } else { "" };
                (format!("{name}{suffix}"), kind.to_owned())
            })
            .collect();
        let guide = include_str!("../../docs/reference/metrics.md");
        let (_, guide) = guide.split_once("\n## Control plane\n").unwrap();
        let guide = guide.split("\n## ").next().unwrap();
        let documented: BTreeSet<(String, String)> = guide
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `credence_")?.split('|').map(str::trim);
                let name = cells.next()?.strip_suffix('`')?;
                Some((format!("credence_{name}"), cells.next()?.to_owned()))
            })
            .collect();
        assert_eq!(shown, documented);
    }
}
