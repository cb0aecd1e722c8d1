//! Parses the conditions of a query string.

use credence_ledger::{Filter, RecordKind};
use credence_wire::v1;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::problem::Problem;
use super::super::query;
use credence_runtime::caller::Caller;

/// A parsed query string.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) filter: Filter,
    /// The other parameters, for the route to read: names and values.
    pub(super) rest: Vec<(String, String)>,
}

// === impl Asked ===

impl Asked {
    /// Parses the conditions. Each may occur once.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (name, value) in query::members(text)? {
            let filter = &mut asked.filter;
            match name.as_str() {
                "principal_issuer" => query::once(&mut filter.principal_issuer, &name, value)?,
                "principal_subject" => query::once(&mut filter.principal_subject, &name, value)?,
                "agent" => query::once(&mut filter.agent, &name, value)?,
                "delegation_id" => query::once(&mut filter.delegation_id, &name, value)?,
                "tool" => query::once(&mut filter.tool, &name, value)?,
                "reason" => query::once(&mut filter.reason, &name, value)?,
                "rule" => query::once(&mut filter.rule, &name, value)?,
                "trace_id" => query::once(&mut filter.trace_id, &name, value)?,
                "decision" => query::once(&mut filter.decision, &name, decision(&value)?)?,
                "kind" => query::once(&mut filter.kind, &name, kind(&value)?)?,
                "chain_digest" => query::once(&mut filter.chain_digest, &name, digest(&value)?)?,
                "from" => query::once(&mut filter.from_unix_nano, &name, instant(&name, &value)?)?,
                "until" => query::once(&mut filter.until_unix_nano, &name, instant(&name, &value)?)?,
                _ => asked.rest.push((name, value)),
            }
        }
        Ok(asked)
    }

    /// Whether there are no conditions.
    pub(super) fn is_empty(&self) -> bool {
        self.filter == Filter::default() && self.rest.is_empty()
    }

    /// A query for another issuer's principals is refused, instead of finding nothing.
    pub(super) fn check_scope(&self, caller: &Caller) -> Result<(), Problem> {
        let issuer = self.filter.principal_issuer.as_deref();
        match issuer.is_none_or(|issuer| caller.covers(issuer)) {
            true => Ok(()),
            false => Err(Problem::out_of_scope(
                caller,
                ", and may not read about this one's principals",
            )),
        }
    }
}

fn kind(value: &str) -> Result<RecordKind, Problem> {
    let kind = KINDS.into_iter().find(|(name, _)| *name == value);
    kind.map(|(_, kind)| kind)
        .ok_or_else(|| Problem::bad_request(format!("kind is one of {}", KINDS.map(|(name, _)| name).join(", "))))
}

fn decision(value: &str) -> Result<v1::Decision, Problem> {
    match value {
        "allow" => Ok(v1::Decision::Allow),
        "deny" => Ok(v1::Decision::Deny),
        _ => Err(Problem::bad_request("decision is allow or deny")),
    }
}

fn digest(value: &str) -> Result<[u8; 32], Problem> {
    let mut digest = [0; 32];
    match base16ct::mixed::decode(value, &mut digest) {
        Ok(bytes) if bytes.len() == 32 => Ok(digest),
        _ => Err(Problem::bad_request(
            "chain_digest is 64 hexadecimal digits, as decisions name it",
        )),
    }
}

/// Nanoseconds since the Unix epoch. Instants beyond the range are before or after everything recorded.
fn instant(name: &str, value: &str) -> Result<u64, Problem> {
    let instant = OffsetDateTime::parse(value, &Rfc3339).map_err(|_| {
        Problem::bad_request(format!(
            "{name} is an instant in RFC 3339, such as 2027-01-15T08:00:00Z (write + as %2B)"
        ))
    })?;
    let nanoseconds = instant.unix_timestamp_nanos().max(0);
    Ok(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// The names in queries and answers.
const KINDS: [(&str, RecordKind); 9] = [
    ("decision", RecordKind::Decision),
    ("aggregate", RecordKind::Aggregate),
    ("gap", RecordKind::Gap),
    ("chain", RecordKind::Chain),
    ("source", RecordKind::Source),
    ("note", RecordKind::Note),
    ("erased", RecordKind::Erased),
    ("unknown", RecordKind::Unknown),
    ("unreadable", RecordKind::Unreadable),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_is_read() {
        let text = "principal_issuer=i&principal_subject=s&agent=a&delegation_id=d&tool=t&decision=deny&reason=r&rule=u\
                    &trace_id=c&kind=aggregate&from=1970-01-01T00:00:01.000000002Z&until=1970-01-01T01:00:02%2B01:00&limit=3";
        let asked = Asked::read(Some(text)).unwrap();
        let some = |text: &str| Some(text.to_owned());
        let expected = Filter {
            principal_issuer: some("i"),
            principal_subject: some("s"),
            delegation_id: some("d"),
            tool: some("t"),
            decision: Some(v1::Decision::Deny),
            agent: some("a"),
            reason: some("r"),
            rule: some("u"),
            trace_id: some("c"),
            chain_digest: None,
            kind: Some(RecordKind::Aggregate),
            from_unix_nano: Some(1_000_000_002),
            until_unix_nano: Some(2_000_000_000),
        };
        assert_eq!(asked.filter, expected);
        assert_eq!(asked.rest, [("limit".to_owned(), "3".to_owned())]);
        let chain = Asked::read(Some(&format!("chain_digest={}", "aB".repeat(32)))).unwrap();
        assert_eq!(chain.filter.chain_digest, Some([0xab; 32]));
    }

    #[test]
    fn an_instant_beyond_what_can_be_recorded_is_before_or_after_everything() {
        let asked = Asked::read(Some("from=1969-12-31T23:59:59Z&until=2555-01-01T00:00:00Z")).unwrap();
        let Filter {
            from_unix_nano,
            until_unix_nano,
            ..
        } = asked.filter;
        assert_eq!((from_unix_nano, until_unix_nano), (Some(0), Some(u64::MAX)));
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for text in [
            "decision=maybe",
            "decision=",
            "kind=Decision",
            "from=yesterday",
            "from=2027-01-15",
            "chain_digest=ab",
            "tool=a&tool=b",
            "tool=%ff",
        ] {
            assert!(Asked::read(Some(text)).is_err(), "{text}");
        }
    }
}
