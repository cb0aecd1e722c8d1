//! Filters (RFC 7644 section 3.4.2.2): the whole grammar, for the attributes of users.

use std::cmp::Ordering;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::ScimError;
use super::name::Name;
use super::schema::{Attribute, Kind, Mutability, USER};
use super::value::{Members, Value};

/// A condition on a user, or on one value of an attribute.
#[derive(Debug)]
pub enum Filter {
    All(Box<Filter>, Box<Filter>),
    Any(Box<Filter>, Box<Filter>),
    Not(Box<Filter>),
    Present(Name),
    Compare(Name, Comparison, Literal),
    /// One value of the attribute meets the whole filter.
    Value(Name, Box<Filter>),
}

/// An operator, by its name in the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Comparison {
    Eq,
    Ne,
    /// Contains.
    Co,
    /// Starts with.
    Sw,
    /// Ends with.
    Ew,
    Gt,
    Ge,
    Lt,
    Le,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Text(String),
    Instant(OffsetDateTime),
}

/// An index that finds users without checking all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    Id(&'a str),
    /// Regardless of case.
    UserName(&'a str),
    ExternalId(&'a str),
    /// The principal's subject.
    Subject(&'a str),
}

// === impl Filter ===

impl Filter {
    /// A filter over users.
    pub fn parse(text: &str) -> Result<Self, ScimError> {
        Parser::new(text, &USER).whole()
    }

    /// A filter for the values of an attribute, which uses the names of its parts.
    pub(crate) fn parse_within(attribute: &'static Attribute, text: &str) -> Result<Self, ScimError> {
        Parser::new(text, attribute).whole()
    }

    pub(crate) fn matches(&self, resource: &Members) -> bool {
        match self {
            Self::All(one, two) => one.matches(resource) && two.matches(resource),
            Self::Any(one, two) => one.matches(resource) || two.matches(resource),
            Self::Not(inner) => !inner.matches(resource),
            Self::Present(name) => !values(resource, &name.path).is_empty(),
            Self::Compare(name, comparison, literal) => {
                comparison.holds(&values(resource, &name.path), name.last.case_exact, literal)
            }
            Self::Value(name, inner) => values(resource, &name.path)
                .into_iter()
                .filter_map(Value::as_complex)
                .any(|value| inner.matches(value)),
        }
    }

    /// An index that finds every user that meets the filter.
    pub(crate) fn indexed(&self) -> Option<Key<'_>> {
        match self {
            Self::Compare(name, Comparison::Eq, Literal::Text(text)) if name.path.len() == 1 => {
                match name.last.name.as_str() {
                    "id" => Some(Key::Id(text)),
                    "userName" => Some(Key::UserName(text)),
                    "externalId" => Some(Key::ExternalId(text)),
                    _ => None,
                }
            }
            Self::All(one, two) => one.indexed().or_else(|| two.indexed()),
            _ => None,
        }
    }

    /// The value that meets the filter and has nothing else, if there is one. Entra ID means it by an operation on
    /// `emails[type eq "work"]` when there is no such value.
    pub(crate) fn exemplar(&self) -> Option<Members> {
        match self {
            Self::Compare(name, Comparison::Eq, Literal::Text(text)) => {
                Some([(name.last.name.clone(), Value::text(text))].into())
            }
            Self::Compare(name, Comparison::Eq, Literal::Bool(value)) => {
                Some([(name.last.name.clone(), Value::Bool(*value))].into())
            }
            Self::All(one, two) => {
                let mut members = one.exemplar()?;
                members.extend(two.exemplar()?);
                Some(members)
            }
            _ => None,
        }
    }
}

/// The values at the path: of an attribute with several values, each of them.
fn values<'a>(resource: &'a Members, path: &[&Attribute]) -> Vec<&'a Value> {
    let Some((attribute, rest)) = path.split_first() else {
        return Vec::new();
    };
    let each = resource.get(&attribute.name).map(Value::each).unwrap_or_default();
    if rest.is_empty() {
        return each.iter().collect();
    }
    each.iter()
        .filter_map(Value::as_complex)
        .flat_map(|members| values(members, rest))
        .collect()
}

// === impl Comparison ===

impl Comparison {
    /// Whether any of the values meets the comparison. An attribute without a value is unequal to everything but null.
    fn holds(self, values: &[&Value], case_exact: bool, literal: &Literal) -> bool {
        if let Literal::Null = literal {
            return match self {
                Self::Eq => values.is_empty(),
                _ => !values.is_empty(),
            };
        }
        if values.is_empty() {
            return self == Self::Ne;
        }
        values.iter().any(|value| match (value, literal) {
            (Value::Bool(value), Literal::Bool(wanted)) => match self {
                Self::Ne => value != wanted,
                _ => value == wanted,
            },
            (Value::Text(text), Literal::Text(wanted)) if case_exact => self.holds_for_text(text, wanted),
            (Value::Text(text), Literal::Text(wanted)) => {
                self.holds_for_text(&text.to_lowercase(), &wanted.to_lowercase())
            }
            (Value::Text(text), Literal::Instant(wanted)) => {
                OffsetDateTime::parse(text, &Rfc3339).is_ok_and(|instant| self.holds_for(instant.cmp(wanted)))
            }
            _ => self == Self::Ne,
        })
    }

    fn holds_for_text(self, text: &str, wanted: &str) -> bool {
        match self {
            Self::Co => text.contains(wanted),
            Self::Sw => text.starts_with(wanted),
            Self::Ew => text.ends_with(wanted),
            _ => self.holds_for(text.cmp(wanted)),
        }
    }

    fn holds_for(self, ordering: Ordering) -> bool {
        match self {
            Self::Eq => ordering.is_eq(),
            Self::Ne => ordering.is_ne(),
            Self::Gt => ordering.is_gt(),
            Self::Ge => ordering.is_ge(),
            Self::Lt => ordering.is_lt(),
            Self::Le => ordering.is_le(),
            Self::Co | Self::Sw | Self::Ew => false,
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::deserialize(StrDeserializer::<serde::de::value::Error>::new(&word)).ok()
    }

    fn needs_text(self) -> bool {
        matches!(self, Self::Co | Self::Sw | Self::Ew)
    }

    fn needs_order(self) -> bool {
        matches!(self, Self::Gt | Self::Ge | Self::Lt | Self::Le)
    }
}

/// Parses a filter from left to right. `and` binds tighter than `or`, and `not` tighter than both.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    /// The object of the filter: users, or the values of this attribute.
    within: &'static Attribute,
    depth: usize,
    terms: usize,
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn new(text: &'a str, within: &'static Attribute) -> Self {
        Self {
            text,
            rest: text,
            within,
            depth: 0,
            terms: 0,
        }
    }

    fn whole(mut self) -> Result<Filter, ScimError> {
        if self.text.len() > MAX_BYTES {
            let found = self.text.len();
            return Err(ScimError::bad(
                "invalidFilter",
                format!("a filter has at most {MAX_BYTES} bytes; this one has {found}"),
            ));
        }
        let filter = self.any()?;
        self.skip_space();
        if self.rest.is_empty() {
            Ok(filter)
        } else {
            Err(self.wrong("expected and, or, or the end"))
        }
    }

    fn any(&mut self) -> Result<Filter, ScimError> {
        let mut filter = self.all()?;
        while self.takes_word("or") {
            filter = Filter::Any(Box::new(filter), Box::new(self.all()?));
        }
        Ok(filter)
    }

    fn all(&mut self) -> Result<Filter, ScimError> {
        let mut filter = self.term()?;
        while self.takes_word("and") {
            filter = Filter::All(Box::new(filter), Box::new(self.term()?));
        }
        Ok(filter)
    }

    fn term(&mut self) -> Result<Filter, ScimError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(self.wrong(&format!("a filter has at most {MAX_TERMS} terms")));
        }
        self.skip_space();
        let before = self.rest;
        let word = self.peek_word();
        if word.eq_ignore_ascii_case("not") {
            self.advance(word.len());
            self.skip_space();
            if self.takes('(') {
                return Ok(Filter::Not(Box::new(self.inner(')')?)));
            }
            self.rest = before;
        }
        if self.takes('(') {
            return self.inner(')');
        }
        let name = self.name(word)?;
        self.advance(word.len());
        if self.takes('[') {
            if !name.last.is_complex() {
                return Err(self.wrong(&format!("{word} has no values with parts to filter by")));
            }
            let outer = std::mem::replace(&mut self.within, name.last);
            let inner = self.inner(']');
            self.within = outer;
            return Ok(Filter::Value(name, Box::new(inner?)));
        }
        self.skip_space();
        let operator = self.peek_word();
        if operator.eq_ignore_ascii_case("pr") {
            self.advance(operator.len());
            return Ok(Filter::Present(name));
        }
        let comparison = Comparison::parse(operator)
            .ok_or_else(|| self.wrong("expected one of eq, ne, co, sw, ew, gt, ge, lt, le and pr"))?;
        self.advance(operator.len());
        self.compare(name, comparison)
    }

    /// The filter in parentheses or brackets, with their end.
    fn inner(&mut self, end: char) -> Result<Filter, ScimError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(&format!("a filter nests at most {MAX_DEPTH} levels deep")));
        }
        let filter = self.any()?;
        self.skip_space();
        if !self.takes(end) {
            return Err(self.wrong(&format!("expected and, or, or {end}")));
        }
        self.depth -= 1;
        Ok(filter)
    }

    fn name(&self, word: &str) -> Result<Name, ScimError> {
        let name = match std::ptr::eq(self.within, &*USER) {
            true => Name::parse(word).ok(),
            false => Name::within(self.within, std::iter::once(word)),
        };
        let name = name.ok_or_else(|| match word {
            "" => self.wrong("expected the name of an attribute"),
            _ => self.wrong(&format!("{word} is not an attribute of users; see /scim/v2/Schemas")),
        })?;
        if name.last.mutability == Mutability::WriteOnly {
            return Err(self.wrong(&format!("{word} is never returned")));
        }
        Ok(name)
    }

    fn compare(&mut self, name: Name, comparison: Comparison) -> Result<Filter, ScimError> {
        // A value with parts is compared by its part `value`.
        let name = name.clone().part("value").unwrap_or(name);
        let compared = name.last;
        self.skip_space();
        let literal = match (compared.kind, self.literal()?) {
            (_, Literal::Null) => Literal::Null,
            (Kind::Boolean, Literal::Bool(value)) => Literal::Bool(value),
            // The same spellings that are accepted elsewhere.
            (Kind::Boolean, Literal::Text(text)) if text.eq_ignore_ascii_case("true") => Literal::Bool(true),
            (Kind::Boolean, Literal::Text(text)) if text.eq_ignore_ascii_case("false") => Literal::Bool(false),
            (Kind::DateTime, Literal::Text(text)) if !comparison.needs_text() => OffsetDateTime::parse(&text, &Rfc3339)
                .map(Literal::Instant)
                .map_err(|_| {
                    self.wrong(&format!(
                        "{} is compared with a time such as \"2026-01-31T12:00:00Z\"",
                        compared.name
                    ))
                })?,
            (Kind::String | Kind::Reference | Kind::Binary | Kind::DateTime, Literal::Text(text)) => {
                Literal::Text(text)
            }
            (Kind::Boolean, _) => return Err(self.wrong(&format!("{} is compared with true or false", compared.name))),
            (Kind::Complex, _) => return Err(self.wrong(&format!("name the part of {} to compare", compared.name))),
            _ => return Err(self.wrong(&format!("{} is compared with a string in double quotes", compared.name))),
        };
        let ordered_badly = matches!(literal, Literal::Bool(_) | Literal::Null) && comparison.needs_order();
        if ordered_badly || (comparison.needs_text() && !matches!(literal, Literal::Text(_))) {
            return Err(self.wrong(&format!("{} does not support this comparison", compared.name)));
        }
        if matches!(compared.kind, Kind::Binary) && comparison.needs_order() {
            return Err(self.wrong("binary values have no order"));
        }
        Ok(Filter::Compare(name, comparison, literal))
    }

    fn literal(&mut self) -> Result<Literal, ScimError> {
        if !self.rest.starts_with('"') {
            let word = self.peek_word();
            let literal = match word {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                // Entra ID sometimes writes them so.
                "True" => Literal::Bool(true),
                "False" => Literal::Bool(false),
                _ => return Err(self.wrong("expected a string in double quotes, true, false or null")),
            };
            self.advance(word.len());
            return Ok(literal);
        }
        let mut strings = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        match strings.next() {
            Some(Ok(text)) => {
                self.advance(strings.byte_offset());
                Ok(Literal::Text(text))
            }
            _ => Err(self.wrong("expected a JSON string up to its closing quote")),
        }
    }

    /// Consumes this word if it comes next.
    fn takes_word(&mut self, wanted: &str) -> bool {
        self.skip_space();
        let word = self.peek_word();
        let found = word.eq_ignore_ascii_case(wanted);
        if found {
            self.advance(word.len());
        }
        found
    }

    fn takes(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The characters of a name with its URN, or of a keyword.
    fn peek_word(&self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '_' | '$')))
            .unwrap_or(self.rest.len());
        self.rest.get(..end).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn wrong(&self, what: &str) -> ScimError {
        let at = self.text.len() - self.rest.len() + 1;
        ScimError::bad("invalidFilter", format!("in the filter, at byte {at}: {what}"))
    }
}

const MAX_BYTES: usize = 4096;
const MAX_DEPTH: usize = 16;
const MAX_TERMS: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::user::read_attributes;
    use super::*;
    use credence_delegation::json::Json;

    fn alice() -> Members {
        let json = br#"{"userName": "Alice@Example.com", "externalId": "a-1", "active": true, "title": "Say \"hi\"",
            "name": {"familyName": "O'Hara"},
            "emails": [{"value": "alice@work.example", "type": "work", "primary": true},
                       {"value": "al@home.example", "type": "home"}],
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "Tools"}}"#;
        let mut resource = read_attributes(Json::parse(json).unwrap().as_object().unwrap()).unwrap();
        let meta = [("lastModified".to_owned(), Value::text("2026-05-13T04:42:34Z"))];
        resource.insert("meta".to_owned(), Value::Complex(meta.into()));
        resource
    }

    #[test]
    fn filters_choose_as_the_rfc_says() {
        for (filter, expected) in [
            (r#"userName eq "alice@example.COM""#, true),
            (r#"USERNAME EQ "alice@example.com""#, true),
            (r#"externalId eq "A-1""#, false),
            (r#"userName ne "bob""#, true),
            (r#"nickName ne "bob""#, true),
            (r#"nickName eq "bob""#, false),
            (r#"nickName eq null"#, true),
            (r#"userName co "@EXAMPLE""#, true),
            (r#"userName sw "alice""#, true),
            (r#"userName ew ".org""#, false),
            (r#"userName gt "alicd""#, true),
            (r#"userName ge "alice@example.com""#, true),
            (r#"userName lt "alice""#, false),
            (r#"userName le "b""#, true),
            (r#"title eq "Say \"hi\"""#, true),
            ("title pr", true),
            ("nickName pr", false),
            ("active eq true", true),
            (r#"active eq "False""#, false),
            ("not (active eq false)", true),
            ("not(active eq true)", false),
            (r#"name.familyName co "O'Hara""#, true),
            (r#"emails co "home.example""#, true),
            (r#"emails.type eq "other""#, false),
            (r#"emails[type eq "work" and value co "@work"]"#, true),
            (r#"emails[type eq "work" and value co "@home"]"#, false),
            (r#"emails[not (type eq "work") and not (type eq "home")]"#, false),
            ("emails[primary eq true]", true),
            (r#"title pr and userName sw "bob" or active eq true"#, true),
            (r#"title pr and (userName sw "bob" or active eq false)"#, false),
            (r#"active eq true or title pr and userName sw "bob""#, true),
            (r#"meta.lastModified gt "2026-05-13T04:42:33Z""#, true),
            (r#"meta.lastModified gt "2026-05-13T06:42:34+02:00""#, false),
            (r#"urn:ietf:params:scim:schemas:core:2.0:User:userName sw "a""#, true),
            (
                r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "tools""#,
                true,
            ),
        ] {
            let parsed = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
            assert_eq!(parsed.matches(&alice()), expected, "{filter}");
        }
    }

    #[test]
    fn an_invalid_filter_is_refused_with_the_place_and_the_reason() {
        let deep = format!("{}title pr{}", "(".repeat(17), ")".repeat(17));
        let long = format!("title eq \"{}\"", "x".repeat(5000));
        let many = vec!["title pr"; 65].join(" or ");
        for (filter, part) in [
            ("", "name of an attribute"),
            ("userName", "expected one of eq"),
            ("userName is \"x\"", "expected one of eq"),
            ("userName eq x", "double quotes"),
            ("userName eq \"x", "closing quote"),
            ("userName eq 5", "double quotes"),
            ("userName eq \"x\" active", "expected and, or, or the end"),
            ("favourite eq \"x\"", "favourite is not an attribute"),
            ("password eq \"x\"", "never returned"),
            ("active eq \"maybe\"", "true or false"),
            ("active gt true", "does not support"),
            ("name eq \"x\"", "name the part"),
            ("meta.created gt \"yesterday\"", "a time such as"),
            ("emails[value eq \"x\"", "expected and, or, or ]"),
            ("emails[name eq \"x\"]", "name is not an attribute"),
            ("userName[value eq \"x\"]", "no values with parts"),
            ("emails[emails[value pr]]", "emails is not an attribute"),
            ("(title pr", "expected and, or, or )"),
            (deep.as_str(), "16 levels"),
            (long.as_str(), "4096 bytes"),
            (many.as_str(), "64 terms"),
        ] {
            let refused = Filter::parse(filter).unwrap_err();
            assert_eq!(refused.kind, Some("invalidFilter"), "{filter}");
            assert!(refused.detail.contains(part), "{filter}: {}", refused.detail);
        }
    }

    #[test]
    fn an_index_is_used_if_it_has_every_match() {
        for (filter, expected) in [
            (r#"userName eq "A""#, Some(Key::UserName("A"))),
            (r#"active eq true and externalId eq "x""#, Some(Key::ExternalId("x"))),
            (r#"id eq "7""#, Some(Key::Id("7"))),
            (r#"userName eq "a" or title pr"#, None),
            (r#"not (userName eq "a")"#, None),
            (r#"userName sw "a""#, None),
        ] {
            assert_eq!(Filter::parse(filter).unwrap().indexed(), expected, "{filter}");
        }
    }
}
