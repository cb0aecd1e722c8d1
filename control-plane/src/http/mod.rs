//! The HTTP API: its routes, and the code that all of them share.
//!
//! | route | permission | handled in |
//! |---|---|---|
//! | `POST /v1/revocations` | [`Permission::Revoke`] | [`revocations`] |
//! | `GET /v1/revocations/{seq}` | [`Permission::Revoke`] | [`confirmation`] |
//! | `GET /v1/revocations/stream` | [`Permission::Watch`] | [`revocation_stream`] |
//! | `GET /v1/principals/{id}`, `/v1/principals` | [`Permission::ReadPrincipals`] | [`principals`] |
//! | `GET`, `POST /v1/delegations/status` | [`Permission::Watch`] | [`status`] |
//! | `POST /v1/revocations/statements` | none | [`statements`] |
//! | `GET /v1/audit/events`, `/v1/audit/events/{index}`, `/v1/audit/stream` | [`Permission::ReadAudit`] | [`audit`] |
//! | `POST /v1/audit/erasures` | [`Permission::EraseAudit`] | [`audit`] |
//! | `GET /ledger/…` | none, or [`Permission::ReadAudit`] | [`tiles`] |
//! | `/v1/audit/sources…` | [`Permission::WriteAudit`] | [`ingest`] |
//! | `/scim/v2/…` | [`Permission::Provision`] | [`scim`] |
//! | `POST /v1/security-events` | [`Permission::Transmit`] | [`security_events`] |
//! | `GET /v1/log` | none | the log's id, which filters pin, and its last sequence number |
//! | `GET /healthz`, `/readyz`, `/metrics` | none | [`health`] |
//! | `GET /openapi.json` | none | [`openapi`] |

mod answers;
mod api;
mod audit;
mod authorization;
mod confirmation;
mod etags;
mod health;
mod ingest;
mod json;
mod openapi;
mod principals;
mod problem;
mod query;
mod rate_limits;
mod rates;
mod record;
mod revocation_stream;
mod revocations;
mod routes;
mod scim;
mod security_events;
mod sse;
mod statements;
mod status;
mod tiles;

pub(crate) use self::api::{Api, MAX_QUERIES, UNIT_BYTES};
pub(crate) use self::rates::Rates;
pub(crate) use self::routes::{probe_router, router};
pub(crate) use self::statements::SIGNATURE_PLACES;
