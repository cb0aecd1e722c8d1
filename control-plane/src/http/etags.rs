//! Entity tags (RFC 9110 section 8.8.3), which are compared weakly here.

use axum::http::{HeaderMap, HeaderName};

/// The tags of a header, each as a weak one; `*` is kept. None without the header.
pub(crate) fn tags(headers: &HeaderMap, name: HeaderName) -> Option<Vec<String>> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let texts = values.filter_map(|value| value.to_str().ok());
    let tags = texts.flat_map(|text| text.split(',')).map(|tag| match tag.trim() {
        strong if strong.starts_with('"') => format!("W/{strong}"),
        other => other.to_owned(),
    });
    Some(tags.collect())
}

/// Whether the header has this weak tag, or `*`.
pub(crate) fn names(headers: &HeaderMap, name: HeaderName, tag: &str) -> bool {
    let named = tags(headers, name).unwrap_or_default();
    named.iter().any(|named| named == "*" || named == tag)
}
