//! A revocation record in JSON, the same in every answer.
//!
//! One member besides `seq` names the subject. Its fields are the whole present state of that subject, so that a later
//! record of the same subject replaces an earlier one:
//!
//! ```json
//! {"seq": 7, "principal": {"issuer": "…", "subject": "alice", "epoch": 9, "disabled": false, "disabled_by": [], "raised_at": 1800000000}}
//! {"seq": 8, "key": {"thumbprint": "…"}}
//! {"seq": 9, "issuer": {"issuer": "…", "issued_up_to": 1800000000}}
//! {"seq": 10, "delegation": {"issuer": "…", "subject": "alice", "id": "…", "revoked_at": 1800000000}}
//! {"seq": 10, "delegation": {"issuer": "…", "subject": "alice", "id": "…", "under": ["…"], "revoked_at": 1800000000}}
//! {"seq": 11, "log": {"issued_up_to": 1800000000}}
//! {"seq": 12, "keys": {"issuer": "…", "thumbprints": ["…"], "missing": ["…"], "fetched_at": 1800000000, "trusted_until": 1800086400}}
//! ```
//!
//! `seq` is the entry of the log to which the state belongs: the record's own entry, or the snapshot's. `subject` is
//! absent for a principal that signs for itself. `under` has the ids of the tokens above the delegation, root first.
//! Without it, the id counts wherever it occurs in a chain of the principal. Times are seconds since the Unix epoch.

use credence_delegation::{IssuerKeys, UnixTime};
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use serde::Serialize;

use credence_revocation::Source;
use credence_runtime::caller::Caller;

/// Serializes a record.
#[derive(Debug, Serialize)]
pub(crate) struct RecordView<'a> {
    seq: u64,
    #[serde(flatten)]
    subject: SubjectView<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum SubjectView<'a> {
    Principal {
        #[serde(flatten)]
        name: NameView<'a>,
        epoch: u64,
        disabled: bool,
        disabled_by: Vec<&'static str>,
        raised_at: i64,
    },
    Key {
        thumbprint: &'a str,
    },
    Issuer {
        issuer: &'a str,
        issued_up_to: i64,
    },
    Delegation {
        #[serde(flatten)]
        name: NameView<'a>,
        id: &'a str,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        under: &'a [String],
        revoked_at: i64,
    },
    Log {
        issued_up_to: i64,
    },
    /// The fetched keys of an issuer, and those of them that the last fetch was without.
    Keys {
        issuer: &'a str,
        thumbprints: Vec<String>,
        missing: Vec<String>,
        fetched_at: i64,
        trusted_until: i64,
    },
}

#[derive(Debug, Serialize)]
struct NameView<'a> {
    issuer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
}

// === impl RecordView ===

impl<'a> RecordView<'a> {
    /// The record as of entry `seq`. None if this version does not know its subject.
    pub(crate) fn new(seq: u64, record: &'a v1::Record) -> Option<Self> {
        let subject = match record.subject.as_ref()? {
            Subject::Principal(state) => SubjectView::Principal {
                name: NameView::of(state.principal.as_ref()?),
                epoch: state.epoch,
                disabled: state.disabled,
                disabled_by: Source::disablers(state.disabled_by),
                raised_at: state.raised_at,
            },
            Subject::Key(key) => SubjectView::Key {
                thumbprint: &key.thumbprint,
            },
            Subject::IssuerFloor(floor) => SubjectView::Issuer {
                issuer: &floor.issuer,
                issued_up_to: floor.issued_up_to,
            },
            Subject::Delegation(delegation) => SubjectView::Delegation {
                name: NameView::of(delegation.principal.as_ref()?),
                id: &delegation.id,
                under: &delegation.under,
                revoked_at: delegation.revoked_at,
            },
            Subject::LogFloor(floor) => SubjectView::Log {
                issued_up_to: floor.issued_up_to,
            },
            Subject::IssuerKeys(keys) => SubjectView::Keys {
                issuer: &keys.issuer,
                thumbprints: keys.keys.iter().map(thumbprint).collect(),
                missing: keys
                    .keys
                    .iter()
                    .filter(|key| key.missing_since != 0)
                    .map(thumbprint)
                    .collect(),
                fetched_at: keys.fetched_at,
                trusted_until: keys.trusted_until,
            },
        };
        Some(Self { seq, subject })
    }
}

/// Whether the caller may see the record. A caller that is bound to issuers sees their principals, delegations and
/// not-before times, and records that may concern every issuer: keys and the log's own not-before time.
pub(crate) fn concerns(record: &v1::Record, caller: &Caller) -> bool {
    let issuer = match &record.subject {
        Some(Subject::Principal(state)) => state.principal.as_ref().map(|principal| &principal.issuer),
        Some(Subject::Delegation(delegation)) => delegation.principal.as_ref().map(|principal| &principal.issuer),
        Some(Subject::IssuerFloor(floor)) => Some(&floor.issuer),
        Some(Subject::IssuerKeys(keys)) => Some(&keys.issuer),
        Some(Subject::Key(_) | Subject::LogFloor(_)) | None => None,
    };
    issuer.is_none_or(|issuer| caller.covers(issuer))
}

/// The RFC 7638 thumbprint; empty for a key that this version cannot read.
fn thumbprint(key: &v1::IssuerKey) -> String {
    let keys = IssuerKeys::read([(key.jwk.as_str(), "")], UnixTime(0));
    let first = keys.keys().first();
    first
        .map(|known| known.key.thumbprint().to_string())
        .unwrap_or_default()
}

// === impl NameView ===

impl<'a> NameView<'a> {
    fn of(principal: &'a v1::Principal) -> Self {
        Self {
            issuer: &principal.issuer,
            subject: principal.subject.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_subject_has_its_member() {
        let principal = || {
            Some(v1::Principal {
                issuer: "https://id".to_owned(),
                subject: Some("alice".to_owned()),
            })
        };
        for (subject, expected) in [
            (
                Subject::Principal(v1::PrincipalState {
                    principal: principal(),
                    epoch: 9,
                    disabled: true,
                    raised_at: 5,
                    disabled_by: 1 | 8,
                }),
                r#"{"seq":7,"principal":{"issuer":"https://id","subject":"alice","epoch":9,"disabled":true,"disabled_by":["operator","security_event"],"raised_at":5}}"#,
            ),
            (
                Subject::Key(v1::RevokedKey {
                    thumbprint: "t".to_owned(),
                }),
                r#"{"seq":7,"key":{"thumbprint":"t"}}"#,
            ),
            (
                Subject::IssuerFloor(v1::IssuerFloor {
                    issuer: "https://id".to_owned(),
                    issued_up_to: 6,
                }),
                r#"{"seq":7,"issuer":{"issuer":"https://id","issued_up_to":6}}"#,
            ),
            (
                Subject::Delegation(v1::RevokedDelegation {
                    principal: principal(),
                    id: "a\nb".to_owned(),
                    revoked_at: 8,
                    under: Vec::new(),
                }),
                r#"{"seq":7,"delegation":{"issuer":"https://id","subject":"alice","id":"a\nb","revoked_at":8}}"#,
            ),
            (
                Subject::Delegation(v1::RevokedDelegation {
                    principal: principal(),
                    id: "leaf".to_owned(),
                    revoked_at: 8,
                    under: vec!["root".to_owned(), "mid".to_owned()],
                }),
                r#"{"seq":7,"delegation":{"issuer":"https://id","subject":"alice","id":"leaf","under":["root","mid"],"revoked_at":8}}"#,
            ),
            (
                Subject::LogFloor(v1::LogFloor { issued_up_to: 4 }),
                r#"{"seq":7,"log":{"issued_up_to":4}}"#,
            ),
        ] {
            let record = v1::Record { subject: Some(subject) };
            let view = RecordView::new(7, &record).unwrap();
            assert_eq!(serde_json::to_string(&view).unwrap(), expected);
        }
        assert!(RecordView::new(7, &v1::Record { subject: None }).is_none());
    }
}
