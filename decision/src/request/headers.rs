//! Reads a request's headers in one pass, in place, in the host's serialisation.
//!
//! The proxy passes the whole header map as one buffer: the number of pairs, then each pair's key and value length (all
//! `u32`, little-endian), then each key and value, each followed by a NUL byte. Reading it in place costs one host call
//! for any number of headers, and shows every field of a name. The single-header call shows only the first field.

use std::collections::BTreeMap;

use thiserror::Error;

use super::names::{Folds, NameId, Names, work};

/// The parts of a request that the filter needs, borrowed from the serialised headers.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// `:method`; empty if absent.
    pub method: &'a [u8],
    /// `:authority`; empty if absent.
    pub authority: &'a [u8],
    /// `:path` with its query; empty if absent.
    pub path: &'a [u8],
    /// The header that carries the delegation.
    pub delegation: Header<'a>,
    /// The header that carries the proof.
    pub proof: Header<'a>,
    /// `authorization`.
    pub authorization: Header<'a>,
    /// `content-type`, the first if there are several.
    pub content_type: Option<&'a [u8]>,
    /// `x-request-id`, the first if there are several.
    pub request_id: Option<&'a [u8]>,
    /// `traceparent`, the first if there are several.
    pub traceparent: Option<&'a [u8]>,
    /// Whether the request leaves HTTP: a CONNECT, or an upgrade such as a WebSocket.
    pub leaves_http: bool,
    /// Whether `connection` names headers that the next hop must drop (RFC 9110, section 7.6.1). Envoy forwards it only
    /// with an upgrade.
    pub drops_headers: bool,
    /// Whether a body, or trailers, follow.
    pub has_body: bool,
    /// The names, as sent, of headers that could turn the request into another one after the decision. Includes headers
    /// that a service may confuse with a header that was read.
    pub overrides: Vec<&'a [u8]>,
    /// The same for headers that name another host.
    pub host_overrides: Vec<&'a [u8]>,
    /// The names, as sent, of headers that only this filter may set, to be removed in every case. A name occurs as
    /// often as it was sent.
    pub forged: Vec<&'a [u8]>,
    headers: HeaderPairs<'a>,
}

impl<'a> Request<'a> {
    /// Reads a serialised header map.
    ///
    /// # Errors
    /// [`HeaderMapError`] if the buffer is invalid: an unexpected result of the host, so deny.
    pub fn parse(serialized: &'a [u8], names: &HeaderNames, has_body: bool) -> Result<Self, HeaderMapError> {
        let headers = HeaderPairs::parse(serialized)?;
        let mut request = Self {
            method: b"",
            authority: b"",
            path: b"",
            delegation: Header::Absent,
            proof: Header::Absent,
            authorization: Header::Absent,
            content_type: None,
            request_id: None,
            traceparent: None,
            leaves_http: false,
            drops_headers: false,
            has_body,
            overrides: Vec::new(),
            host_overrides: Vec::new(),
            forged: Vec::new(),
            headers,
        };
        for (name, value) in headers {
            match name {
                b":method" => once(&mut request.method, value)?,
                b":authority" => once(&mut request.authority, value)?,
                b":path" => once(&mut request.path, value)?,
                b":protocol" | b"upgrade" => request.leaves_http = true,
                b"connection" => request.drops_headers |= names_headers(value),
                b"content-type" => _ = request.content_type.get_or_insert(value),
                b"x-request-id" => _ = request.request_id.get_or_insert(value),
                b"traceparent" => _ = request.traceparent.get_or_insert(value),
                _ if name == names.delegation.as_bytes() => request.delegation.add(value),
                _ if name == names.proof.as_bytes() => request.proof.add(value),
                b"authorization" => request.authorization.add(value),
                _ if is_ours(name) => request.forged.push(name),
                // Another spelling of a name, which some service may treat as the name itself.
                _ if folds_to(name, names.delegation.as_bytes()) => {
                    request.delegation = Header::Repeated;
                    request.overrides.push(name);
                }
                _ if folds_to(name, names.proof.as_bytes()) => {
                    request.proof = Header::Repeated;
                    request.overrides.push(name);
                }
                _ => match Override::of(name) {
                    Some(Override::Request) => request.overrides.push(name),
                    Some(Override::Host) => request.host_overrides.push(name),
                    Some(Override::Spelling(own)) if name != own => request.overrides.push(name),
                    Some(Override::Spelling(_)) | None => {}
                },
            }
        }
        request.leaves_http |= request.method.eq_ignore_ascii_case(b"CONNECT");
        Ok(request)
    }

    /// The same request with a delegation and a proof from elsewhere, as if its headers had them.
    #[must_use]
    pub fn presenting<'b>(&self, delegation: Header<'b>, proof: Header<'b>) -> Request<'b>
    where
        'a: 'b,
    {
        Request {
            delegation,
            proof,
            ..self.clone()
        }
    }

    /// The headers whose names begin with this text (in lower case), in any spelling.
    pub fn headers_beginning(&self, text: &str) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.headers.filter(move |(name, _)| {
            name.get(..text.len())
                .is_some_and(|beginning| folds_to(beginning, text.as_bytes()))
        })
    }

    /// The header with that name (in lower case).
    ///
    /// A header whose name only [folds](fold) to it counts as a repetition: some services cannot tell the two apart,
    /// and might read the one that the filter did not read.
    pub fn header(&self, name: &str) -> Header<'a> {
        let mut found = Header::Absent;
        for (candidate, value) in self
            .headers
            .filter(|(candidate, _)| folds_to(candidate, name.as_bytes()))
        {
            found = match found {
                Header::Absent if candidate == name.as_bytes() => Header::Once(value),
                Header::Absent | Header::Once(_) | Header::Repeated => Header::Repeated,
            };
        }
        found
    }

    /// The headers of an index. Reads all headers once: the cost depends on their bytes, not on the number of names in
    /// the index.
    pub fn read_headers(&self, index: &HeaderIndex) -> BTreeMap<NameId, Header<'a>> {
        let mut found = BTreeMap::new();
        let mut folded = Vec::new();
        for (name, value) in self.headers {
            if !index.folds.have_length(name.len()) {
                continue;
            }
            work::count(name.len());
            folded.clear();
            folded.extend(name.iter().map(|byte| fold(*byte)));
            for id in index.folds.find(&folded) {
                let is_first = !found.contains_key(id);
                let header = match is_first && index.names.is(*id, name) {
                    true => Header::Once(value),
                    false => Header::Repeated,
                };
                found.insert(*id, header);
            }
        }
        found
    }

    /// Whether this is a gRPC request, which gets a gRPC answer.
    pub fn is_grpc(&self) -> bool {
        const GRPC: &[u8] = b"application/grpc";
        let Some((media_type, rest)) = self.content_type.and_then(|value| value.split_at_checked(GRPC.len())) else {
            return false;
        };
        media_type.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    }
}

/// The configured names of the two headers that an agent sends, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Carries the delegation chain.
    pub delegation: String,
    /// Header of the proof.
    pub proof: String,
}

impl HeaderNames {
    /// Whether some service may treat a header with this name as one of the two.
    pub fn matches(&self, name: &str) -> bool {
        [&self.delegation, &self.proof]
            .into_iter()
            .any(|carrier| folds_to(carrier.as_bytes(), name.as_bytes()))
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            delegation: "delegation".to_owned(),
            proof: "delegation-proof".to_owned(),
        }
    }
}

/// Whether `connection` names headers, besides connection options.
fn names_headers(value: &[u8]) -> bool {
    const OPTIONS: [&[u8]; 4] = [b"", b"upgrade", b"keep-alive", b"close"];
    let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    options.any(|option| !OPTIONS.iter().any(|known| option.eq_ignore_ascii_case(known)))
}

/// Whether a value may be several joined ones (RFC 9110, section 5.3). No token contains a comma.
pub fn is_joined(value: &[u8]) -> bool {
    value.contains(&b',')
}

/// A header by name. A header with a token must be sent once, and unjoined: see [`is_joined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// Not sent.
    Absent,
    /// The only field, including commas.
    Once(&'a [u8]),
    /// More than one field, or a field with another spelling.
    Repeated,
}

impl<'a> Header<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Absent => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }
}

/// Headers that the configuration uses, by their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderIndex {
    names: Names,
    folds: Folds,
}

impl HeaderIndex {
    /// Adds a name, if it is new.
    pub fn add(&mut self, name: &str) -> NameId {
        let (id, is_new) = self.names.intern(name);
        if is_new {
            let folded: Vec<u8> = name.bytes().map(fold).collect();
            self.folds.add(&folded, id);
        }
        id
    }

    /// The id of a name.
    pub fn id(&self, name: &str) -> Option<NameId> {
        self.names.id(name)
    }

    /// Whether it has no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether some service may treat a header with this name as one of the index.
    pub fn contains_fold_of(&self, name: &[u8]) -> bool {
        let folded: Vec<u8> = name.iter().map(|byte| fold(*byte)).collect();
        !self.folds.find(&folded).is_empty()
    }
}

/// Folds a byte of a header's name as the most tolerant services do. Services that pass headers as variables, as CGI
/// does (RFC 3875, section 4.1.18), ignore case, and use one character for everything except letters and digits. PHP
/// and lighttpd do so; most Python and Ruby servers do so at least for `_`.
pub const fn fold(byte: u8) -> u8 {
    // Digits and lower-case letters have this bit.
    if byte.is_ascii_alphanumeric() {
        byte | 0x20
    } else {
        b'-'
    }
}

/// Whether two header names have the same [fold](fold).
pub fn folds_to(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && name.iter().zip(other).all(|(byte, other)| fold(*byte) == fold(*other))
}

/// Whether a header's name folds to `folded`, which is its own fold. Most headers are compared with several such names,
/// so this is cheap.
fn is_spelling_of(name: &[u8], folded: &[u8]) -> bool {
    name.len() == folded.len()
        && name
            .iter()
            .zip(folded)
            .all(|(byte, known)| byte == known || fold(*byte) == *known)
}

/// Whether a header's name is one of the filter's own for the service.
pub fn is_ours(name: &[u8]) -> bool {
    name.split_at_checked(OUR_PREFIX.len())
        .is_some_and(|(prefix, _)| is_spelling_of(prefix, OUR_PREFIX))
}

/// The names in a serialized header map.
///
/// # Errors
/// [`HeaderMapError`] if the buffer is invalid.
pub fn header_names(serialized: &[u8]) -> Result<impl Iterator<Item = &[u8]>, HeaderMapError> {
    Ok(HeaderPairs::parse(serialized)?.map(|(name, _)| name))
}

/// The names and values in a serialized header map.
///
/// # Errors
/// [`HeaderMapError`] if the buffer is invalid.
pub fn header_pairs(serialized: &[u8]) -> Result<impl Iterator<Item = (&[u8], &[u8])>, HeaderMapError> {
    HeaderPairs::parse(serialized)
}

/// Serialises headers in the host's form: the counterpart of [`Request::parse`].
pub fn serialize_headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(headers: &[(N, V)]) -> Vec<u8> {
    // A VM has less than 4 GiB of memory, so every length fits into 32 bits.
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let parts = || headers.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]);
    let mut serialized = number(headers.len()).to_vec();
    parts().for_each(|part| serialized.extend_from_slice(&number(part.len())));
    for part in parts() {
        serialized.extend_from_slice(part);
        serialized.push(0);
    }
    serialized
}

/// What a header can change about a request at some service, after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Override {
    /// The method or path.
    Request,
    /// The host.
    Host,
    /// Nothing under this name. Another name that folds to it replaces this one.
    Spelling(&'static [u8]),
}

impl Override {
    /// What a header with this name can change, in any spelling.
    pub fn of(name: &[u8]) -> Option<Self> {
        let start = *STARTS.get(name.len())?;
        let end = *STARTS.get(name.len().saturating_add(1))?;
        let mut of_this_length = OVERRIDES.get(start..end)?.iter();
        of_this_length
            .find(|(known, _)| is_spelling_of(name, known))
            .map(|(_, found)| *found)
    }
}

/// Folded names, by their lengths. docs/reference/configuration.md names the services that read each.
const OVERRIDES: [(&[u8], Override); 29] = [
    // `$wssn`.
    (b"-wssn", Override::Host),
    (b"x-host", Override::Host),
    (b"forwarded", Override::Host),
    (b"path-info", Override::Request),
    (b"script-name", Override::Request),
    (b"x-http-host", Override::Host),
    (b"x-real-host", Override::Host),
    (b"content-type", Override::Spelling(b"content-type")),
    (b"x-request-id", Override::Spelling(b"x-request-id")),
    (b"x-http-method", Override::Request),
    (b"x-invoke-path", Override::Request),
    (b"x-rewrite-url", Override::Request),
    (b"x-script-name", Override::Request),
    (b"content-length", Override::Spelling(b"content-length")),
    (b"x-matched-path", Override::Request),
    (b"x-original-uri", Override::Request),
    (b"x-original-url", Override::Request),
    (b"x-forwarded-uri", Override::Request),
    (b"x-original-host", Override::Host),
    (b"content-encoding", Override::Spelling(b"content-encoding")),
    (b"x-forwarded-host", Override::Host),
    (b"transfer-encoding", Override::Spelling(b"transfer-encoding")),
    (b"x-method-override", Override::Request),
    (b"x-original-method", Override::Request),
    (b"x-forwarded-method", Override::Request),
    (b"x-forwarded-prefix", Override::Request),
    (b"x-forwarded-server", Override::Host),
    (b"x-http-host-override", Override::Host),
    (b"x-http-method-override", Override::Request),
];

/// Where the names of each length start. Every header of every request is looked up, and most headers have a length
/// that few of these names have.
const STARTS: [usize; 24] = {
    let mut starts = [0; 24];
    let (mut slots, mut rest, mut length) = (starts.as_mut_slice(), OVERRIDES.as_slice(), 0);
    while let Some((slot, others)) = slots.split_first_mut() {
        *slot = OVERRIDES.len() - rest.len();
        while let Some(((name, _), others)) = rest.split_first()
            && name.len() <= length
        {
            assert!(name.len() == length, "the names are not in the order of their lengths");
            rest = others;
        }
        slots = others;
        length += 1;
    }
    assert!(rest.is_empty(), "a name is longer than what is looked for");
    starts
};

/// Headers with this prefix are removed from every request first, and only this filter sets them.
pub const OUR_PREFIX: &[u8] = b"x-delegation-";

/// Pairs of one header map: the proxy's own limit.
pub const MAX_HEADER_PAIRS: usize = 1024;

/// Why a header map is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderMapError {
    /// The buffer ends early, has bytes left over, or lacks a NUL.
    #[error("the host's header map is not well formed")]
    Malformed,
    /// More than [`MAX_HEADER_PAIRS`].
    #[error("the request has more than {MAX_HEADER_PAIRS} headers")]
    TooManyPairs,
    /// Two `:method`, `:authority` or `:path`.
    #[error("the request has a pseudo-header twice")]
    RepeatedPseudoHeader,
}

fn once<'a>(slot: &mut &'a [u8], value: &'a [u8]) -> Result<(), HeaderMapError> {
    if !slot.is_empty() {
        return Err(HeaderMapError::RepeatedPseudoHeader);
    }
    *slot = value;
    Ok(())
}

/// The pairs of a serialised header map, in order. Stops at the first invalid pair, which a parsed map does not have.
#[derive(Clone, Copy, Debug)]
struct HeaderPairs<'a> {
    /// Eight bytes a pair.
    lengths: &'a [u8],
    content: &'a [u8],
}

impl<'a> HeaderPairs<'a> {
    fn parse(serialized: &'a [u8]) -> Result<Self, HeaderMapError> {
        let (count, rest) = split_length(serialized).ok_or(HeaderMapError::Malformed)?;
        if count > MAX_HEADER_PAIRS {
            return Err(HeaderMapError::TooManyPairs);
        }
        let (lengths, content) = rest
            .split_at_checked(count.saturating_mul(8))
            .ok_or(HeaderMapError::Malformed)?;
        let parsed = Self { lengths, content };
        let mut pairs = parsed;
        for _ in 0..count {
            pairs.next().ok_or(HeaderMapError::Malformed)?;
        }
        if pairs.content.is_empty() {
            Ok(parsed)
        } else {
            Err(HeaderMapError::Malformed)
        }
    }

    fn take_string(&mut self, length: usize) -> Option<&'a [u8]> {
        let (string, rest) = self.content.split_at_checked(length)?;
        self.content = rest.strip_prefix(b"\0")?;
        Some(string)
    }
}

impl<'a> Iterator for HeaderPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name_length, rest) = split_length(self.lengths)?;
        let (value_length, rest) = split_length(rest)?;
        self.lengths = rest;
        Some((self.take_string(name_length)?, self.take_string(value_length)?))
    }
}

fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*length)).ok()?, rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Serialises headers as the proxy does.
    pub(crate) fn serialize(headers: &[(&str, &str)]) -> Vec<u8> {
        serialize_headers(headers)
    }

    #[test]
    fn one_pass_collects_what_a_decision_needs() {
        let buffer = serialize(&[
            (":method", "POST"),
            (":authority", "payments.example"),
            (":path", "/v1/charges?amount=5"),
            ("content-type", "application/json"),
            ("delegation", "root~leaf"),
            ("delegation-proof", "proof"),
            ("x-request-id", "7f"),
            ("traceparent", "00-ab-cd-01"),
            ("empty", ""),
        ]);
        let request = parse(&buffer).unwrap();
        assert_eq!(request.method, b"POST");
        assert_eq!(request.authority, b"payments.example");
        assert_eq!(request.path, b"/v1/charges?amount=5");
        assert_eq!(request.content_type, Some(b"application/json".as_slice()));
        assert_eq!(request.delegation, Header::Once(b"root~leaf"));
        assert_eq!(request.proof, Header::Once(b"proof"));
        assert_eq!(request.request_id, Some(b"7f".as_slice()));
        assert_eq!(request.traceparent, Some(b"00-ab-cd-01".as_slice()));
        assert_eq!(request.header("empty"), Header::Once(b""));
        assert_eq!(request.header("other"), Header::Absent);
        assert!(!request.leaves_http && request.forged.is_empty());
    }

    #[test]
    fn the_configured_header_names_are_the_ones_read() {
        let buffer = serialize(&[("delegation", "a"), ("authority-chain", "b"), ("holder-proof", "c")]);
        let names = HeaderNames {
            delegation: "authority-chain".to_owned(),
            proof: "holder-proof".to_owned(),
        };
        let request = Request::parse(&buffer, &names, false).unwrap();
        assert_eq!(
            (request.delegation, request.proof),
            (Header::Once(b"b"), Header::Once(b"c"))
        );
    }

    #[test]
    fn a_delegation_sent_twice_in_any_way_is_repeated() {
        let cases: [&[(&str, &str)]; 3] = [
            &[("delegation", "a"), ("delegation", "b")],
            &[("delegation", "a"), ("delegation", "a")],
            &[("delegation", ""), ("delegation", "a")],
        ];
        for headers in cases {
            let buffer = serialize(headers);
            assert_eq!(parse(&buffer).unwrap().delegation, Header::Repeated, "{headers:?}");
        }
        assert!(is_joined(b"a,b") && !is_joined(b"a~b"));
    }

    #[test]
    fn headers_that_only_the_filter_may_set_are_found_in_every_spelling() {
        let forged = [
            "x-delegation-principal",
            "x_delegation_agent",
            "X-Delegation_Tool",
            "x-delegation-",
        ];
        let innocent = [
            "x-delegation",
            "x-delegations-a",
            "delegation",
            "x-request-id",
            "my-x-delegation-a",
        ];
        let headers: Vec<_> = forged.iter().chain(&innocent).map(|&name| (name, "v")).collect();
        let buffer = serialize(&headers);
        let found = parse(&buffer).unwrap().forged;
        assert_eq!(found, forged.map(str::as_bytes));
    }

    /// A CGI-style service reads `x.delegation.subject` and `x-delegation-subject` as one variable.
    #[test]
    fn every_character_except_letters_and_digits_counts_as_a_dash() {
        for other in SEPARATORS.chars() {
            let spelled = |name: &str| name.replace('-', &other.to_string());
            let [subject, proof, method, host, tenant] = [
                "x-delegation-subject",
                "delegation-proof",
                "x-http-method-override",
                "x-forwarded-host",
                "x-tenant",
            ]
            .map(spelled);
            let buffer = serialize(&[
                (&subject, "mallory"),
                ("delegation-proof", "p"),
                (&proof, "q"),
                (&method, "DELETE"),
                (&host, "other.example"),
                ("x-tenant", "a"),
                (&tenant, "b"),
            ]);
            let request = parse(&buffer).unwrap();
            assert_eq!(request.forged, [subject.as_bytes()]);
            assert_eq!(request.proof, Header::Repeated, "{proof}");
            assert!(request.overrides.contains(&method.as_bytes()), "{method}");
            assert_eq!(request.host_overrides, [host.as_bytes()]);
            assert_eq!(request.header("x-tenant"), Header::Repeated, "{tenant}");
        }
    }

    #[test]
    fn a_name_that_only_resembles_an_own_name_passes() {
        for name in [
            "x.delegation",
            "x.trace",
            "x-delegations.a",
            "x.delegationsubject",
            ".",
            "x",
            "delegation.",
        ] {
            let buffer = serialize(&[(name, "v")]);
            let request = parse(&buffer).unwrap();
            assert_eq!(request.forged, [b""; 0], "{name}");
            assert_eq!(
                (request.delegation, request.proof),
                (Header::Absent, Header::Absent),
                "{name}"
            );
            assert_eq!((request.overrides, request.host_overrides), (vec![], vec![]), "{name}");
        }
    }

    #[test]
    fn connect_and_upgrades_are_recognised() {
        let cases: [(&[(&str, &str)], bool); 5] = [
            (&[(":method", "CONNECT")], true),
            (&[(":method", "connect")], true),
            (&[(":method", "GET"), ("upgrade", "websocket")], true),
            (&[(":method", "GET"), (":protocol", "websocket")], true),
            (&[(":method", "GET"), ("connection", "keep-alive")], false),
        ];
        for (headers, expected) in cases {
            let buffer = serialize(headers);
            assert_eq!(parse(&buffer).unwrap().leaves_http, expected, "{headers:?}");
        }
    }

    #[test]
    fn a_connection_that_names_headers_is_recognised() {
        let cases = [
            ("Upgrade", false),
            ("keep-alive, Upgrade", false),
            ("close,", false),
            ("upgrade, x-delegation-agent", true),
            ("te", true),
        ];
        for (value, expected) in cases {
            let buffer = serialize(&[("upgrade", "websocket"), ("connection", value)]);
            assert_eq!(parse(&buffer).unwrap().drops_headers, expected, "{value}");
        }
    }

    #[test]
    fn grpc_is_recognised_by_its_content_type() {
        let cases = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ];
        for (content_type, expected) in cases {
            let buffer = serialize(&[("content-type", content_type)]);
            assert_eq!(parse(&buffer).unwrap().is_grpc(), expected, "{content_type}");
        }
    }

    #[test]
    fn a_header_sent_twice_differs_from_one_with_a_comma() {
        let buffer = serialize(&[
            ("tenant", "a"),
            ("tenant", "b"),
            ("list", "a,b"),
            ("x-a", "1"),
            ("x_a", "2"),
            ("x_b", "3"),
        ]);
        let request = parse(&buffer).unwrap();
        assert_eq!(request.header("tenant"), Header::Repeated);
        assert_eq!(request.header("x-a"), Header::Repeated);
        assert_eq!(request.header("x-b"), Header::Repeated);
        assert_eq!(request.header("list"), Header::Once(b"a,b"));
    }

    #[test]
    fn a_repeated_pseudo_header_is_refused() {
        let buffer = serialize(&[(":path", "/a"), (":path", "/b")]);
        assert_eq!(parse(&buffer).unwrap_err(), HeaderMapError::RepeatedPseudoHeader);
    }

    #[test]
    fn too_many_headers_are_refused() {
        let headers = vec![("a", "b"); MAX_HEADER_PAIRS];
        assert!(parse(&serialize(&headers)).is_ok());
        let headers = vec![("a", "b"); MAX_HEADER_PAIRS + 1];
        assert_eq!(parse(&serialize(&headers)).unwrap_err(), HeaderMapError::TooManyPairs);
    }

    #[test]
    fn a_buffer_that_is_cut_changed_or_too_long_is_malformed() {
        let whole = serialize(&[(":path", "/a"), ("delegation", "x")]);
        for length in 0..whole.len() {
            assert_eq!(
                parse(&whole[..length]).unwrap_err(),
                HeaderMapError::Malformed,
                "cut to {length}"
            );
        }
        let longer = [whole.as_slice(), b"\0"].concat();
        assert_eq!(parse(&longer).unwrap_err(), HeaderMapError::Malformed);
        let mut unterminated = whole.clone();
        *unterminated.last_mut().unwrap() = b'x';
        assert_eq!(parse(&unterminated).unwrap_err(), HeaderMapError::Malformed);
        let mut huge = whole;
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&huge).unwrap_err(), HeaderMapError::Malformed);
    }

    #[test]
    fn another_spelling_of_a_carrier_counts_as_a_second_header() {
        let buffer = serialize(&[
            ("delegation", "a"),
            ("delegation-proof", "p"),
            ("delegation_proof", "q"),
        ]);
        let request = parse(&buffer).unwrap();
        assert_eq!(
            (request.delegation, request.proof),
            (Header::Once(b"a"), Header::Repeated)
        );
    }

    #[test]
    fn headers_that_change_the_request_after_the_decision_are_found() {
        let buffer = serialize(&[
            ("x-http-method-override", "DELETE"),
            ("x_original_url", "/"),
            ("x-original", ""),
            ("script_name", "/public"),
            ("x-script-name", "/public"),
            ("path_info", "/admin"),
            ("x-forwarded-uri", "/admin"),
            ("X-Matched-Path", "/admin"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("script", ""),
        ]);
        assert_eq!(
            parse(&buffer).unwrap().overrides,
            [
                &b"x-http-method-override"[..],
                b"x_original_url",
                b"script_name",
                b"x-script-name",
                b"path_info",
                b"x-forwarded-uri",
                b"X-Matched-Path",
            ]
        );
    }

    #[test]
    fn another_spelling_of_a_header_that_the_filter_reads_is_found() {
        let buffer = serialize(&[
            ("content-type", "application/json"),
            ("content.type", "text/plain"),
            ("content-length", "2"),
            ("content_length", "0"),
            ("transfer~encoding", "chunked"),
            ("x-request-id", "7f"),
            ("x.request.id", "80"),
            ("delegation.proof", "p"),
        ]);
        let request = parse(&buffer).unwrap();
        assert_eq!(
            request.overrides,
            [
                &b"content.type"[..],
                b"content_length",
                b"transfer~encoding",
                b"x.request.id",
                b"delegation.proof",
            ]
        );
        assert_eq!(request.header("content-type"), Header::Repeated);
        assert_eq!(request.request_id, Some(&b"7f"[..]));
    }

    #[test]
    fn headers_that_name_another_host_are_found() {
        let buffer = serialize(&[
            ("x-forwarded-host", "a"),
            ("x_forwarded_host", "b"),
            ("forwarded", "host=c"),
            ("x-forwarded-server", "d"),
            ("$wssn", "e"),
            ("x-forwarded-for", "f"),
            ("host-x", "g"),
        ]);
        assert_eq!(
            parse(&buffer).unwrap().host_overrides,
            [
                &b"x-forwarded-host"[..],
                b"x_forwarded_host",
                b"forwarded",
                b"x-forwarded-server",
                b"$wssn",
            ]
        );
    }

    /// Characters of a header's name besides letters and digits (RFC 9110, section 5.6.2), without the dash.
    const SEPARATORS: &str = "!#$%&'*+.^_`|~";

    fn parse(buffer: &[u8]) -> Result<Request<'_>, HeaderMapError> {
        // The borrowed names live only during the call; the result borrows only from the buffer.
        Request::parse(buffer, &HeaderNames::default(), false)
    }
}
