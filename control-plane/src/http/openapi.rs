//! `GET /openapi.json`: the API's description. Tests compare it with the routes.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Handles the request.
pub(crate) async fn describe() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "public, max-age=300"),
    ];
    (headers, DOCUMENT).into_response()
}

/// OpenAPI 3.1.
pub(crate) const DOCUMENT: &str = include_str!("../../openapi/openapi.json");
