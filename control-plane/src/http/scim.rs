//! `/scim/v2`: SCIM 2.0 for users. docs/operate/identity-providers.md describes it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use credence_delegation::json::{Json, Object};
use serde::Deserialize;

use super::api::Api;
use super::problem::{Answer, Detail, Problem};
use super::{etags, json};
use credence_provisioning::scim::{
    Filter, IfMatch, Members, Projection, Provisioning, Query as UserQuery, Realm, Refused, ScimError, User, discovery,
};
use credence_runtime::caller::Caller;

/// Every route below `/scim/v2`.
pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/scim/v2/Users", get(list).post(create))
        .route("/scim/v2/Users/.search", post(search))
        .route("/scim/v2/.search", post(search))
        .route(
            "/scim/v2/Users/{id}",
            get(read).put(change).patch(change).delete(delete),
        )
        .route("/scim/v2/Groups", get(no_groups).post(not_here))
        .route(
            "/scim/v2/Groups/{id}",
            get(not_here).put(not_here).patch(not_here).delete(not_here),
        )
        .route(
            "/scim/v2/Me",
            get(not_here)
                .post(not_here)
                .put(not_here)
                .patch(not_here)
                .delete(not_here),
        )
        .route("/scim/v2/Bulk", post(not_here))
        .route("/scim/v2/ServiceProviderConfig", get(service_provider_config))
        .route("/scim/v2/ResourceTypes", get(resource_types))
        .route("/scim/v2/ResourceTypes/{id}", get(resource_type))
        .route("/scim/v2/Schemas", get(schemas))
        .route("/scim/v2/Schemas/{id}", get(schema))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Converts every error of these paths to SCIM's form.
pub(super) async fn errors_as_scim(request: Request, next: Next) -> Response {
    let is_scim = request.uri().path().starts_with("/scim/");
    let mut response = next.run(request).await;
    if !is_scim {
        return response;
    }
    if let Some(Detail(detail)) = response.extensions_mut().remove::<Detail>() {
        let (mut parts, _) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.insert(header::CONTENT_TYPE, SCIM_JSON);
        let body = ScimError::new(parts.status, detail).body();
        return Response::from_parts(parts, body.into());
    }
    response
}

/// The realm of the credential, and the state of SCIM.
struct Session {
    provisioning: Arc<Provisioning>,
    realm: Arc<Realm>,
}

// === impl Session ===

impl Session {
    async fn find(&self, users: UserQuery, projection: &Projection) -> Result<Response, Answer> {
        let start = users.start;
        let found = self.provisioning.search(&self.realm, users).await?;
        let shown = found.users.into_iter().map(|user| projection.apply(user)).collect();
        Ok(list_response(found.total, start, shown))
    }
}

impl FromRequestParts<Arc<Api>> for Session {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Answer> {
        let caller = Extension::<Arc<Caller>>::from_request_parts(parts, api).await;
        let Extension(caller) = caller.map_err(Answer::new)?;
        let provisioning = api.provisioning.as_ref().ok_or_else(|| {
            let detail = "no realm is configured; see scim in the configuration file";
            ScimError::new(StatusCode::FORBIDDEN, detail)
        })?;
        Ok(Self {
            realm: Arc::clone(provisioning.realm_of(&caller)?),
            provisioning: Arc::clone(provisioning),
        })
    }
}

/// The parameters in the query of a list, or of a single user.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListQuery {
    filter: Option<String>,
    start_index: Option<String>,
    count: Option<String>,
    attributes: Option<String>,
    excluded_attributes: Option<String>,
}

// === impl ListQuery ===

impl ListQuery {
    fn projection(&self) -> Result<Projection, ScimError> {
        Projection::parse(self.attributes.as_deref(), self.excluded_attributes.as_deref())
    }

    fn users(&self) -> Result<UserQuery, ScimError> {
        let number = |name, text: &Option<String>| {
            text.as_deref()
                .map(|text| integer(name, text.trim().parse().ok()))
                .transpose()
        };
        user_query(
            self.filter.as_deref(),
            number("startIndex", &self.start_index)?,
            number("count", &self.count)?,
        )
    }
}

type ListParameters = Result<Query<ListQuery>, QueryRejection>;
type Identifier = Result<Path<String>, PathRejection>;

async fn list(session: Session, query: ListParameters) -> Result<Response, Answer> {
    let query = parameters(query)?;
    session.find(query.users()?, &query.projection()?).await
}

async fn search(session: Session, headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Response, Answer> {
    let body = received(&headers, body)?;
    let json = parse(&body)?;
    let request = object(&json)?;
    let projection = Projection::parse(names(request, "attributes")?, names(request, "excludedAttributes")?)?;
    let number = |name: &'static str| {
        let json = request.member(name).filter(|json| **json != Json::Null);
        json.map(|json| integer(name, json.as_integer())).transpose()
    };
    let filter = match request.member("filter") {
        None | Some(Json::Null) => None,
        Some(filter) => Some(
            filter
                .as_str()
                .ok_or_else(|| ScimError::bad("invalidFilter", "filter must be a string"))?,
        ),
    };
    let users = user_query(filter, number("startIndex")?, number("count")?)?;
    session.find(users, &projection).await
}

async fn create(
    session: Session,
    query: ListParameters,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Answer> {
    let projection = parameters(query)?.projection()?;
    let body = received(&headers, body)?;
    let json = parse(&body)?;
    let user = session.provisioning.create(&session.realm, object(&json)?).await?;
    Ok(one(StatusCode::CREATED, &user, &projection))
}

async fn read(session: Session, id: Identifier, query: ListParameters, headers: HeaderMap) -> Result<Response, Answer> {
    let id = identifier(id)?;
    let projection = parameters(query)?.projection()?;
    let user = session.provisioning.user(&session.realm, &id).await?;
    if etags::names(&headers, header::IF_NONE_MATCH, &user.etag()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, user.etag())]).into_response());
    }
    Ok(one(StatusCode::OK, &user, &projection))
}

/// PUT and PATCH.
async fn change(
    method: Method,
    session: Session,
    id: Identifier,
    query: ListParameters,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Answer> {
    let id = identifier(id)?;
    let projection = parameters(query)?.projection()?;
    let body = received(&headers, body)?;
    let json = parse(&body)?;
    let if_match = IfMatch(etags::tags(&headers, header::IF_MATCH));
    let (realm, changes) = (&session.realm, object(&json)?);
    let user = match method {
        Method::PATCH => session.provisioning.patch(realm, &id, &if_match, changes).await?,
        _ => session.provisioning.replace(realm, &id, &if_match, changes).await?,
    };
    Ok(one(StatusCode::OK, &user, &projection))
}

async fn delete(session: Session, id: Identifier, headers: HeaderMap) -> Result<StatusCode, Answer> {
    let id = identifier(id)?;
    let if_match = IfMatch(etags::tags(&headers, header::IF_MATCH));
    session.provisioning.delete(&session.realm, &id, &if_match).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// There are no groups. A provider that asks before it provisions users needs only this answer.
async fn no_groups() -> Response {
    list_response(0, 1, Vec::<Members>::new())
}

async fn not_here() -> Answer {
    let detail = "only users are provisioned here, one at a time: /scim/v2/Users";
    ScimError::new(StatusCode::NOT_IMPLEMENTED, detail).into()
}

async fn service_provider_config() -> Response {
    scim(StatusCode::OK, discovery::service_provider_config(MAX_PAGE).to_string())
}

async fn resource_types(query: ListParameters) -> Result<Response, Answer> {
    all_of(discovery::resource_types(), query)
}

async fn resource_type(id: Identifier) -> Result<Response, Answer> {
    one_of(discovery::resource_types(), &identifier(id)?)
}

async fn schemas(query: ListParameters) -> Result<Response, Answer> {
    all_of(discovery::schemas(), query)
}

async fn schema(id: Identifier) -> Result<Response, Answer> {
    one_of(discovery::schemas(), &identifier(id)?)
}

fn all_of(resources: Vec<discovery::Output>, query: ListParameters) -> Result<Response, Answer> {
    // RFC 7644 section 4: a client must not assume that its filter was applied.
    if parameters(query)?.filter.is_some() {
        return Err(ScimError::new(StatusCode::FORBIDDEN, "these cannot be filtered").into());
    }
    Ok(list_response(resources.len() as u64, 1, resources))
}

fn one_of(resources: Vec<discovery::Output>, id: &str) -> Result<Response, Answer> {
    let found = resources.into_iter().find(|resource| resource["id"] == id);
    match found {
        Some(resource) => Ok(scim(StatusCode::OK, resource.to_string())),
        None => Err(ScimError::new(StatusCode::NOT_FOUND, format!("there is no {id:?} here")).into()),
    }
}

fn one(status: StatusCode, user: &User, projection: &Projection) -> Response {
    let shown = projection.apply(user.resource());
    let location = match status {
        StatusCode::CREATED => header::LOCATION,
        _ => header::CONTENT_LOCATION,
    };
    let headers = [(header::ETAG, user.etag()), (location, user.location())];
    let body = serde_json::to_string(&shown).unwrap_or_default();
    (headers, scim(status, body)).into_response()
}

/// RFC 7644 section 3.4.2.
#[derive(Debug, serde::Serialize)]
struct ListResponse<T> {
    schemas: [&'static str; 1],
    #[serde(rename = "totalResults")]
    total: u64,
    #[serde(rename = "startIndex")]
    start: usize,
    #[serde(rename = "itemsPerPage")]
    shown: usize,
    #[serde(rename = "Resources")]
    resources: Vec<T>,
}

fn list_response<T: serde::Serialize>(total: u64, start: usize, resources: Vec<T>) -> Response {
    let body = ListResponse {
        schemas: [LIST_RESPONSE],
        total,
        start,
        shown: resources.len(),
        resources,
    };
    scim(StatusCode::OK, serde_json::to_string(&body).unwrap_or_default())
}

fn scim(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, SCIM_JSON)], body).into_response()
}

fn parameters(query: ListParameters) -> Result<ListQuery, ScimError> {
    query
        .map(|Query(query)| query)
        .map_err(|rejection| ScimError::invalid_value(format!("the query: {}", rejection.body_text())))
}

fn identifier(id: Identifier) -> Result<String, ScimError> {
    id.map(|Path(id)| id).map_err(|_| {
        ScimError::invalid_value("the id in the path is not UTF-8 in percent-encoding (RFC 3986 section 2.1)")
    })
}

/// An index below 1 counts as 1, a count below 0 as 0 (RFC 7644 section 3.4.2.4).
fn user_query(filter: Option<&str>, start: Option<i64>, count: Option<i64>) -> Result<UserQuery, ScimError> {
    let clamp = |number: i64, least: i64| usize::try_from(number.max(least)).unwrap_or(usize::MAX);
    Ok(UserQuery {
        filter: filter.map(Filter::parse).transpose()?,
        start: clamp(start.unwrap_or(1), 1),
        count: clamp(count.unwrap_or(DEFAULT_PAGE), 0).min(MAX_PAGE),
    })
}

/// The member's texts: a list of texts, or a single one.
fn names<'a>(request: &'a Object<'_>, name: &str) -> Result<Vec<&'a str>, ScimError> {
    let values = match request.member(name) {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(json) => json.as_array().unwrap_or(std::slice::from_ref(json)),
    };
    let texts: Option<Vec<_>> = values.iter().map(Json::as_str).collect();
    texts.ok_or_else(|| ScimError::invalid_value(format!("{name} must be a list of strings")))
}

fn integer(name: &str, number: Option<i64>) -> Result<i64, ScimError> {
    number.ok_or_else(|| ScimError::invalid_value(format!("{name} must be a whole number")))
}

fn received(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Bytes, Answer> {
    let body = json::received(body, MAX_BODY, "", "the request")?;
    let essence = json::media_type(headers);
    if essence.eq_ignore_ascii_case("application/scim+json") || essence.eq_ignore_ascii_case("application/json") {
        return Ok(body);
    }
    let detail = format!("the body is {essence:?}; send application/scim+json, or application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).into())
}

fn parse(body: &[u8]) -> Result<Json<'_>, ScimError> {
    Json::parse(body).map_err(|error| ScimError::invalid_syntax(format!("the body: {error}")))
}

fn object<'a, 'b>(json: &'a Json<'b>) -> Result<&'a Object<'b>, ScimError> {
    json.as_object()
        .ok_or_else(|| ScimError::invalid_syntax("the body must be one object"))
}

impl From<ScimError> for Answer {
    fn from(error: ScimError) -> Self {
        Self::new(scim(error.status, error.body()))
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Scim(error) => error.into(),
            Refused::Revocation(error) => Problem::from(error).into(),
        }
    }
}

const SCIM_JSON: HeaderValue = HeaderValue::from_static("application/scim+json");
const LIST_RESPONSE: &str = "urn:ietf:params:scim:api:messages:2.0:ListResponse";
const MAX_BODY: usize = 64 << 10;
const DEFAULT_PAGE: i64 = 100;
const MAX_PAGE: usize = 200;
