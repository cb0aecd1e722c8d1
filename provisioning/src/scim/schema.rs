//! What a user has: the core schema of RFC 7643 section 4.1 and the enterprise extension of section 4.3.

use credence_delegation::json::{Json, Object};

use super::error::ScimError;
use super::value::{Members, Value};

/// A schema that users are of.
#[derive(Debug)]
pub(crate) struct Schema {
    /// Its URN.
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) attributes: &'static [Attribute],
}

/// An attribute or sub-attribute (RFC 7643 section 7).
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) kind: Kind,
    pub(crate) multi_valued: bool,
    pub(crate) required: bool,
    pub(crate) case_exact: bool,
    pub(crate) mutability: Mutability,
    pub(crate) unique: bool,
    pub(crate) canonical_values: &'static [&'static str],
}

/// What an attribute's values are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Boolean,
    DateTime,
    Binary,
    /// A URI, or the kinds of resources that it may name.
    Reference(&'static [&'static str]),
    Complex(&'static [Attribute]),
}

/// Who may write it, and whether it is ever told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutability {
    ReadOnly,
    ReadWrite,
    /// Written and never told again; nothing here needs it, so it is not kept either.
    WriteOnly,
}

// === impl Schema ===

impl Schema {
    pub(crate) fn attribute(&self, name: &str) -> Option<&'static Attribute> {
        find(self.attributes, name)
    }
}

// === impl Attribute ===

impl Attribute {
    pub(crate) fn sub_attributes(&self) -> &'static [Self] {
        match self.kind {
            Kind::Complex(parts) => parts,
            _ => &[],
        }
    }

    pub(crate) fn sub_attribute(&self, name: &str) -> Option<&'static Self> {
        find(self.sub_attributes(), name)
    }

    pub(crate) fn is_complex(&self) -> bool {
        matches!(self.kind, Kind::Complex(_))
    }

    /// Reads what a client wrote. `None` leaves the attribute without a value.
    pub(crate) fn read(&self, json: &Json<'_>) -> Result<Option<Value>, ScimError> {
        if self.mutability == Mutability::WriteOnly {
            return Ok(None);
        }
        if !self.multi_valued {
            return match json {
                // Azure AD sends a manager like that.
                Json::Array(values) if values.len() == 1 => {
                    values.first().map_or(Ok(None), |value| self.read_one(value))
                }
                one => self.read_one(one),
            };
        }
        let mut values = Vec::new();
        let elements = json.as_array().unwrap_or(std::slice::from_ref(json));
        for element in elements {
            if let Some(value) = self.read_one(element)? {
                values.push(value);
            }
        }
        let primaries = values.iter().filter(|value| is_primary(value)).count();
        if primaries > 1 {
            return Err(ScimError::invalid_value(format!(
                "{primaries} values of {} are primary; at most one may be (RFC 7643 section 2.4)",
                self.name
            )));
        }
        Ok((!values.is_empty()).then_some(Value::List(values)))
    }

    fn read_one(&self, json: &Json<'_>) -> Result<Option<Value>, ScimError> {
        let wrong = |expected: &str| {
            Err(ScimError::invalid_value(format!(
                "the attribute {} must be {expected}",
                self.name
            )))
        };
        match (self.kind, json) {
            (_, Json::Null) => Ok(None),
            (Kind::Boolean, Json::Bool(value)) => Ok(Some(Value::Bool(*value))),
            // Entra ID writes booleans as strings, unless told not to (its flag aadOptscim062020).
            (Kind::Boolean, Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(Value::Bool(true))),
            (Kind::Boolean, Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(Value::Bool(false))),
            (Kind::Boolean, _) => wrong("true or false"),
            (Kind::Complex(_), Json::Object(object)) => {
                let members = self.read_parts(object)?;
                Ok((!members.is_empty()).then_some(Value::Complex(members)))
            }
            // The part that a value is about, without the rest: Entra ID for a manager.
            (Kind::Complex(parts), Json::String(text)) if find(parts, "value").is_some() => {
                Ok(Some(Value::Complex([("value", Value::text(text.as_ref()))].into())))
            }
            (Kind::Complex(_), _) => wrong("an object of its sub-attributes"),
            (_, Json::String(text)) => Ok(Some(Value::text(text.as_ref()))),
            _ => wrong("a string"),
        }
    }

    /// Sub-attributes that we do not know, or that are ours to set, are left out.
    fn read_parts(&self, object: &Object<'_>) -> Result<Members, ScimError> {
        let mut members = Members::default();
        for (name, json) in object.iter() {
            let Some(part) = self.sub_attribute(name) else { continue };
            if part.mutability == Mutability::ReadOnly {
                continue;
            }
            if let Some(value) = part.read(json)? {
                if members.contains(part.name) {
                    return Err(twice(name));
                }
                members.set(part.name, value);
            }
        }
        Ok(members)
    }
}

/// Two spellings of one name.
pub(crate) fn twice(name: &str) -> ScimError {
    ScimError::invalid_syntax(format!(
        "the attribute {name} occurs twice; the case of names does not matter (RFC 7643 section 2.1)"
    ))
}

/// Whether this is the preferred one of several values.
pub(crate) fn is_primary(value: &Value) -> bool {
    value
        .as_complex()
        .and_then(|members| members.get("primary"))
        .and_then(Value::as_bool)
        == Some(true)
}

fn find(attributes: &'static [Attribute], name: &str) -> Option<&'static Attribute> {
    attributes
        .iter()
        .find(|attribute| attribute.name.eq_ignore_ascii_case(name))
}

/// Those that a client may name in a path or a filter and that stand in no schema (RFC 7643 section 3.1).
pub(crate) static COMMON: &[Attribute] = &[
    text("id", "The user's name here").read_only().exact(),
    text("externalId", "The user's name at the identity provider").exact(),
    Attribute {
        multi_valued: true,
        ..reference("schemas", "The schemas that the user is of", &["uri"]).read_only()
    },
    complex("meta", "About the resource", META).read_only(),
];

static META: &[Attribute] = &[
    text("resourceType", "").read_only().exact(),
    of("created", "", Kind::DateTime).read_only(),
    of("lastModified", "", Kind::DateTime).read_only(),
    reference("location", "", &["uri"]).read_only(),
    text("version", "").read_only().exact(),
];

/// RFC 7643 section 4.1.
pub(crate) static USER: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:User",
    name: "User",
    description: "User Account",
    attributes: &[
        text(
            "userName",
            "The name that the user signs in with; the case does not matter, and no two users of a realm share it",
        )
        .required()
        .unique(),
        complex("name", "The parts of the user's name", NAME),
        text("displayName", "The name to show"),
        text("nickName", "How the user is called"),
        reference("profileUrl", "The user's page", &["external"]),
        text("title", "Such as Vice President"),
        text("userType", "Such as Contractor"),
        text("preferredLanguage", "As in an Accept-Language header"),
        text("locale", "A language tag such as en-US"),
        text("timezone", "Such as Europe/Paris"),
        boolean(
            "active",
            "Whether the user's authority is in force: unless it is true, everything granted in the user's name is void",
        ),
        Attribute {
            mutability: Mutability::WriteOnly,
            ..text("password", "Taken, and never kept")
        },
        values("emails", "E-mail addresses", EMAIL),
        values("phoneNumbers", "Telephone numbers", PHONE),
        values("ims", "Instant messaging addresses", IMS),
        values("photos", "Pictures", PHOTO),
        values("addresses", "Postal addresses", ADDRESS),
        values("groups", "Kept by the identity provider alone", GROUP).read_only(),
        values("entitlements", "What the user is entitled to", PLAIN),
        values("roles", "The user's roles", PLAIN),
        values("x509Certificates", "Certificates, base64 of DER", CERTIFICATE),
    ],
};

/// RFC 7643 section 4.3.
pub(crate) static ENTERPRISE: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
    name: "EnterpriseUser",
    description: "Enterprise User",
    attributes: &[
        text("employeeNumber", "The number that the organisation knows the user by"),
        text("costCenter", "A cost center"),
        text("organization", "An organization"),
        text("division", "A division"),
        text("department", "A department"),
        complex("manager", "The user's manager", MANAGER),
    ],
};

static NAME: &[Attribute] = &[
    text("formatted", "The whole name"),
    text("familyName", "The family name"),
    text("givenName", "The given name"),
    text("middleName", "Middle names"),
    text("honorificPrefix", "Such as Ms."),
    text("honorificSuffix", "Such as III"),
];

static EMAIL: &[Attribute] = &[
    text("value", "The address"),
    text("display", "For display"),
    kind_of_value(&["work", "home", "other"]),
    PRIMARY,
];

static PHONE: &[Attribute] = &[
    text("value", "The number"),
    text("display", "For display"),
    kind_of_value(&["work", "home", "mobile", "fax", "pager", "other"]),
    PRIMARY,
];

static IMS: &[Attribute] = &[
    text("value", "The address"),
    text("display", "For display"),
    kind_of_value(&["aim", "gtalk", "icq", "xmpp", "msn", "skype", "qq", "yahoo"]),
    PRIMARY,
];

static PHOTO: &[Attribute] = &[
    reference("value", "The picture's address", &["external"]),
    text("display", "For display"),
    kind_of_value(&["photo", "thumbnail"]),
    PRIMARY,
];

static ADDRESS: &[Attribute] = &[
    text("formatted", "The whole address"),
    text("streetAddress", "Street, house number, post office box"),
    text("locality", "City"),
    text("region", "State or region"),
    text("postalCode", "Postal code"),
    text("country", "Country, ISO 3166-1 alpha-2"),
    kind_of_value(&["work", "home", "other"]),
    PRIMARY,
];

static GROUP: &[Attribute] = &[
    text("value", "The group's id").read_only(),
    reference("$ref", "The group", &["User", "Group"]).read_only(),
    text("display", "For display").read_only(),
    Attribute {
        canonical_values: &["direct", "indirect"],
        ..text("type", "How the user belongs to it").read_only()
    },
];

static PLAIN: &[Attribute] = &[
    text("value", "The value"),
    text("display", "For display"),
    kind_of_value(&[]),
    PRIMARY,
];

static CERTIFICATE: &[Attribute] = &[
    Attribute {
        case_exact: true,
        ..of("value", "The certificate", Kind::Binary)
    },
    text("display", "For display"),
    kind_of_value(&[]),
    PRIMARY,
];

static MANAGER: &[Attribute] = &[
    text("value", "The manager's id"),
    reference("$ref", "The manager", &["User"]),
    text("displayName", "The manager's name").read_only(),
];

const PRIMARY: Attribute = boolean("primary", "Whether this is the preferred one; at most one is");

const fn kind_of_value(canonical_values: &'static [&'static str]) -> Attribute {
    Attribute {
        canonical_values,
        ..text("type", "What it is for")
    }
}

const fn of(name: &'static str, description: &'static str, kind: Kind) -> Attribute {
    Attribute {
        name,
        description,
        kind,
        multi_valued: false,
        required: false,
        case_exact: false,
        mutability: Mutability::ReadWrite,
        unique: false,
        canonical_values: &[],
    }
}

const fn text(name: &'static str, description: &'static str) -> Attribute {
    of(name, description, Kind::Text)
}

const fn boolean(name: &'static str, description: &'static str) -> Attribute {
    of(name, description, Kind::Boolean)
}

const fn reference(name: &'static str, description: &'static str, to: &'static [&'static str]) -> Attribute {
    Attribute {
        case_exact: true,
        ..of(name, description, Kind::Reference(to))
    }
}

const fn complex(name: &'static str, description: &'static str, parts: &'static [Attribute]) -> Attribute {
    of(name, description, Kind::Complex(parts))
}

const fn values(name: &'static str, description: &'static str, parts: &'static [Attribute]) -> Attribute {
    Attribute {
        multi_valued: true,
        ..complex(name, description, parts)
    }
}

// === impl Attribute: making them ===

impl Attribute {
    const fn read_only(self) -> Self {
        Self {
            mutability: Mutability::ReadOnly,
            ..self
        }
    }

    const fn exact(self) -> Self {
        Self {
            case_exact: true,
            ..self
        }
    }

    const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    const fn unique(self) -> Self {
        Self { unique: true, ..self }
    }
}
