"""Teaches schemathesis the media types and text formats of the API's description. Skips requests that are invalid by a
rule that JSON Schema cannot express."""

import base64
import datetime
import json

import schemathesis
from hypothesis import strategies as st


@schemathesis.serializer("application/revocation+jwt", "application/secevent+jwt")
def token(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


# Characters of a JSON text, and of a name that is neither empty nor longer than its limit in bytes.
characters = st.characters(exclude_categories=["Cs"])
names = st.text(characters, min_size=1, max_size=60)


def principal_id(name):
    text = json.dumps(name, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


schemathesis.openapi.format("principal-id", st.lists(names, min_size=1, max_size=2).map(principal_id))

seconds = st.datetimes(min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(2500, 1, 1))
schemathesis.openapi.format("audit-time", seconds.map(lambda time: time.isoformat() + "Z"))
schemathesis.openapi.format("audit-second", seconds.map(lambda time: time.isoformat(timespec="seconds") + "Z"))

literals = names.map(json.dumps)
texts = st.sampled_from(["userName", "id", "externalId", "displayName", "name.familyName", "emails", "emails.value"])
comparisons = st.sampled_from(["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le", "Eq"])
terms = st.one_of(
    st.builds("{} {} {}".format, texts, comparisons, literals),
    st.builds("{} pr".format, texts),
    st.sampled_from(
        [
            "active eq true",
            'active ne "False"',
            'meta.created ge "2026-01-31T12:00:00Z"',
            "name.givenName eq null",
            'emails[type eq "work" and primary eq true]',
            'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "x"',
        ]
    ),
)
filters = st.recursive(
    terms,
    lambda inner: st.one_of(
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)
schemathesis.openapi.format("scim-filter", filters)

schemathesis.openapi.format(
    "scim-path",
    st.sampled_from(
        [
            "active",
            "userName",
            "externalId",
            "name",
            "name.givenName",
            "emails",
            'emails[type eq "work"]',
            'emails[type eq "work"].value',
            "emails.primary",
            "roles",
            "addresses",
            "id",
            "password",
            "urn:ietf:params:scim:schemas:core:2.0:User:active",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager.value",
        ]
    ),
)


@schemathesis.hook
def filter_query(context, query):
    return can_be_asked_for(query) and has_fitting_names(query)


@schemathesis.hook
def filter_body(context, body):
    return can_be_asked_for(body) and has_fitting_names(body) and has_one_primary(body) and has_plain_integers(body)


def can_be_asked_for(request):
    """attributes and excludedAttributes exclude each other."""
    return not (isinstance(request, dict) and request.get("attributes") and request.get("excludedAttributes"))


def has_fitting_names(request):
    """The limits are in bytes, those of a JSON schema in characters."""
    members = request.values() if isinstance(request, dict) else []
    texts = [text for text in members if isinstance(text, str) and not text.isascii()]
    return all(len(text.encode("utf-8", "replace")) <= SHORTEST_LIMIT for text in texts)


def has_one_primary(user):
    """At most one value of an attribute can be the preferred one."""
    members = user.values() if isinstance(user, dict) else []
    return all(sum(map(is_primary, values)) <= 1 for values in members if isinstance(values, list))


def has_plain_integers(search):
    """76.0 is an integer in JSON Schema, but not in SCIM (RFC 7643 section 2.3.4)."""
    numbers = [search.get("startIndex"), search.get("count")] if isinstance(search, dict) else []
    return not any(isinstance(number, float) and number.is_integer() for number in numbers)


def is_primary(value):
    """Also in the spellings of identity providers."""
    marks = value.get("primary", False) if isinstance(value, dict) else False
    return str(marks[0] if isinstance(marks, list) and len(marks) == 1 else marks).lower() == "true"


SHORTEST_LIMIT = 256
