//! Sign-in at a provider in this process that can be told to be wrong.

#![allow(clippy::disallowed_types, reason = "claims that tests change one by one")]

mod provider;

use std::time::Duration;

use openidconnect::core::CoreJwsSigningAlgorithm;
use serde_json::json;

use self::provider::{Answer, Claims, KEY, OTHER_KEY, TestProvider, parameter};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECT: &str = "https://issuer.example/signed-in";

fn settings(issuer: &str) -> IdentityProviderSettings {
    serde_json::from_value(json!({"issuer": issuer, "client_id": "credence"})).unwrap()
}

fn client(provider: &TestProvider) -> IdentityProvider {
    IdentityProvider::new(&settings(&provider.url), REDIRECT, TIMEOUT).unwrap()
}

/// A sign-in whose ID token has these claims changed; those that are null are left out.
async fn sign_in(
    provider: &TestProvider,
    client: &IdentityProvider,
    demanded: &Demanded,
    changed: serde_json::Value,
) -> Result<Person, SignInError> {
    let begun = client.begin(demanded).await?;
    let claims = provider.claims(&begun.url).with(changed);
    provider.give_token(&KEY.sign(&claims));
    client.finish(begun.pending, "code-1".to_owned(), None).await
}

async fn sign_in_with(changed: serde_json::Value) -> Result<Person, SignInError> {
    let provider = TestProvider::start();
    sign_in(&provider, &client(&provider), &Demanded::default(), changed).await
}

fn demand(max_age: Option<u32>, acr: &[&str]) -> Demanded {
    Demanded {
        max_age,
        acr: acr.iter().map(ToString::to_string).collect(),
    }
}

// === settings ===

#[test]
fn settings_that_cannot_be_right_are_named() {
    let valid = json!({"issuer": "https://idp.example/tenant", "client_id": "credence"});
    for (field, wrong) in [
        ("issuer", json!("http://idp.example")),
        ("issuer", json!("https://idp.example/?tenant=1")),
        ("issuer", json!("https://user@idp.example/")),
        ("issuer", json!("https://:80")),
        ("client_id", json!("")),
        ("groups_claim", json!("")),
        ("name_claim", json!("a\nb")),
        ("scopes", json!(["groups email"])),
    ] {
        let mut changed = valid.clone();
        changed[field] = wrong.clone();
        let settings: IdentityProviderSettings = serde_json::from_value(changed).unwrap();
        let error = settings.check().unwrap_err();
        assert_eq!(error.place, format!("identity_provider.{field}"), "{wrong}");
    }
    serde_json::from_value::<IdentityProviderSettings>(valid)
        .unwrap()
        .check()
        .unwrap();
}

#[test]
fn the_secret_file_holds_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let mut settings = settings("https://idp.example");
    settings.client_secret_file = Some(path.clone());
    let error = |settings| IdentityProvider::new(settings, REDIRECT, TIMEOUT).unwrap_err();
    assert_eq!(error(&settings).place, "identity_provider.client_secret_file");
    for wrong in ["", "\n", "one\ntwo\n"] {
        std::fs::write(&path, wrong).unwrap();
        assert_eq!(
            error(&settings).place,
            "identity_provider.client_secret_file",
            "{wrong:?}"
        );
    }
    std::fs::write(&path, "s3cret\n").unwrap();
    let client = IdentityProvider::new(&settings, REDIRECT, TIMEOUT).unwrap();
    assert!(!format!("{client:?}").contains("s3cret"));
}

// === the request ===

#[tokio::test]
async fn the_browser_takes_along_what_is_demanded() {
    let provider = TestProvider::start();
    let mut settings = settings(&provider.url);
    settings.scopes = vec!["groups".to_owned(), "openid".to_owned()];
    let client = IdentityProvider::new(&settings, REDIRECT, TIMEOUT).unwrap();
    let begun = client.begin(&demand(Some(60), &["mfa", "phr"])).await.unwrap();
    assert!(
        begun.url.starts_with(&format!("{}/authorize?", provider.url)),
        "{}",
        begun.url
    );
    for (name, expected) in [
        ("response_type", "code"),
        ("client_id", "credence"),
        ("redirect_uri", REDIRECT),
        ("scope", "openid groups profile"),
        ("code_challenge_method", "S256"),
        ("max_age", "60"),
        ("acr_values", "mfa phr"),
        ("state", &begun.state),
    ] {
        assert_eq!(parameter(&begun.url, name).as_deref(), Some(expected), "{name}");
    }
    let other = client.begin(&Demanded::default()).await.unwrap();
    for name in ["state", "nonce", "code_challenge"] {
        assert_ne!(parameter(&begun.url, name), parameter(&other.url, name), "{name}");
    }
    for name in ["max_age", "acr_values"] {
        assert_eq!(parameter(&other.url, name), None, "{name}");
    }
}

// === the code ===

#[tokio::test]
async fn the_code_gives_a_person() {
    let provider = TestProvider::start();
    let client = client(&provider);
    let changed = json!({"groups": ["eng", "eng-leads"], "acr": "mfa", "auth_time": unix_seconds() - 100});
    let person = sign_in(&provider, &client, &Demanded::default(), changed)
        .await
        .unwrap();
    let expected = Person {
        subject: "ada".to_owned(),
        name: Some("Ada".to_owned()),
        groups: ["eng", "eng-leads"].map(str::to_owned).into(),
        auth_time: person.auth_time,
        acr: Some("mfa".to_owned()),
    };
    assert_eq!(person, expected);
    assert!((99..=105).contains(&(unix_seconds().unsigned_abs() - person.auth_time.unwrap())));
    let request = provider.last("/token");
    for part in [
        "grant_type=authorization_code",
        "code=code-1",
        "code_verifier=",
        "client_id=credence",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
}

#[tokio::test]
async fn the_client_secret_goes_where_the_provider_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "s3cret").unwrap();
    // base64 of credence:s3cret
    let (basic, post) = ("Basic Y3JlZGVuY2U6czNjcmV0", "client_secret=s3cret");
    for (methods, expected) in [
        (json!(null), Some(basic)),
        (json!(["client_secret_post", "client_secret_basic"]), Some(basic)),
        (json!(["private_key_jwt", "client_secret_post"]), Some(post)),
        (json!(["private_key_jwt"]), None),
    ] {
        let provider = TestProvider::start();
        provider.change_metadata("token_endpoint_auth_methods_supported", methods.clone());
        let mut settings = settings(&provider.url);
        settings.client_secret_file = Some(path.clone());
        let client = IdentityProvider::new(&settings, REDIRECT, TIMEOUT).unwrap();
        let signed_in = sign_in(&provider, &client, &Demanded::default(), json!({})).await;
        match expected {
            Some(expected) => {
                signed_in.unwrap();
                let request = provider.last("/token");
                let places = [basic, post].map(|place| request.contains(place));
                assert_eq!(places, [expected == basic, expected == post], "{methods}");
            }
            None => assert!(
                matches!(signed_in, Err(SignInError::Metadata(_))),
                "{methods}: {signed_in:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_refused_code_is_in_no_message() {
    let provider = TestProvider::start();
    let client = client(&provider);
    let token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleS0xIiwidHlwIjoiSldUIn0";
    let answer = json!({"error": "invalid_grant", "error_description": format!("code-1 was used for {token}")});
    let begun = client.begin(&Demanded::default()).await.unwrap();
    provider.answer("/token", Answer::status(400, &answer.to_string()));
    let error = client
        .finish(begun.pending, "code-1".to_owned(), None)
        .await
        .unwrap_err();
    let expected = "the identity provider refuses the code: invalid_grant: … was used for … ";
    assert_eq!(error.to_string(), expected);
    assert!(error.for_person().contains("Start again"));
}

#[tokio::test]
async fn an_answer_of_another_issuer_keeps_the_code_here() {
    for (is_promised, iss, expected) in [
        (false, None, true),
        (false, Some("own"), true),
        (false, Some("https://other.example"), false),
        (true, None, false),
        (true, Some("own"), true),
        (true, Some(""), false),
    ] {
        let provider = TestProvider::start();
        provider.change_metadata("authorization_response_iss_parameter_supported", json!(is_promised));
        let client = client(&provider);
        let begun = client.begin(&Demanded::default()).await.unwrap();
        provider.give_token(&KEY.sign(&provider.claims(&begun.url)));
        let iss = iss.map(|iss| {
            if iss == "own" {
                provider.url.clone()
            } else {
                iss.to_owned()
            }
        });
        let finished = client.finish(begun.pending, "code-1".to_owned(), iss.clone()).await;
        assert_eq!(finished.is_ok(), expected, "{is_promised} {iss:?}: {finished:?}");
        assert_eq!(provider.count("/token"), usize::from(expected));
    }
}

// === the ID token ===

#[tokio::test]
async fn signatures_are_of_listed_algorithms() {
    use CoreJwsSigningAlgorithm::{RsaSsaPkcs1V15Sha256, RsaSsaPkcs1V15Sha512, RsaSsaPssSha256};
    let provider = TestProvider::start();
    let client = client(&provider);
    let hmac_with_the_client_id = |claims: &Claims| provider::forge(r#"{"alg":"HS256"}"#, claims, "AAAA");
    type Sign<'a> = &'a dyn Fn(&Claims) -> String;
    let cases: [(&str, Sign<'_>, bool); 8] = [
        ("ES256", &|claims| KEY.sign(claims), true),
        ("EdDSA", &provider::sign_ed25519, true),
        (
            "RS256",
            &|claims| provider::sign_rsa(claims, RsaSsaPkcs1V15Sha256),
            true,
        ),
        ("PS256", &|claims| provider::sign_rsa(claims, RsaSsaPssSha256), true),
        (
            "RS512",
            &|claims| provider::sign_rsa(claims, RsaSsaPkcs1V15Sha512),
            false,
        ),
        ("HS256", &hmac_with_the_client_id, false),
        (
            "none",
            &|claims| provider::forge(r#"{"alg":"none"}"#, claims, ""),
            false,
        ),
        ("another key", &|claims| OTHER_KEY.sign_as(claims, KEY.id), false),
    ];
    for (name, sign, expected) in cases {
        let begun = client.begin(&Demanded::default()).await.unwrap();
        provider.give_token(&sign(&provider.claims(&begun.url)));
        let finished = client.finish(begun.pending, "code-1".to_owned(), None).await;
        assert_eq!(finished.is_ok(), expected, "{name}: {finished:?}");
        if !expected {
            assert!(matches!(finished, Err(SignInError::IdToken(_))), "{name}: {finished:?}");
        }
    }
}

#[tokio::test]
async fn an_id_token_is_for_this_sign_in_only() {
    let now = unix_seconds();
    for changed in [
        json!({"nonce": "another"}),
        json!({"nonce": null}),
        json!({"iss": "https://other.example"}),
        json!({"aud": "another"}),
        json!({"aud": ["credence", "another"]}),
        json!({"azp": "another"}),
        json!({"exp": now - 1}),
        json!({"iat": now + 120}),
        json!({"iat": now - 1_000}),
    ] {
        let error = sign_in_with(changed.clone()).await.unwrap_err();
        assert!(matches!(error, SignInError::IdToken(_)), "{changed}: {error}");
    }
    sign_in_with(json!({"aud": ["credence"], "azp": "credence"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_token_answer_without_an_id_token_is_an_error() {
    let provider = TestProvider::start();
    let client = client(&provider);
    for (answer, expected) in [
        (
            r#"{"access_token": "secret-token", "token_type": "Bearer"}"#,
            "the ID token: there is none",
        ),
        (
            r#"{"id_token": "a.b", "access_token": "secret-token", "token_type": "Bearer"}"#,
            "token endpoint",
        ),
        ("<html>", "token endpoint"),
    ] {
        let begun = client.begin(&Demanded::default()).await.unwrap();
        provider.answer("/token", Answer::ok(answer));
        let error = client
            .finish(begun.pending, "code-1".to_owned(), None)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!format!("{error:?}").contains("secret-token"), "{error:?}");
    }
}

// === what was demanded ===

#[tokio::test]
async fn the_sign_in_is_as_recent_and_strong_as_demanded() {
    let now = unix_seconds();
    let old = now - 600;
    for (demanded, claims, expected) in [
        (demand(None, &[]), json!({}), Ok(())),
        (demand(None, &[]), json!({"auth_time": old}), Ok(())),
        (demand(Some(900), &[]), json!({"auth_time": old}), Ok(())),
        (demand(Some(580), &[]), json!({"auth_time": old}), Ok(())),
        (
            demand(Some(500), &[]),
            json!({"auth_time": old}),
            Err("s ago; at most 500 s"),
        ),
        (demand(Some(0), &[]), json!({"auth_time": now}), Ok(())),
        (demand(Some(900), &[]), json!({}), Err("no `auth_time`")),
        (
            demand(Some(900), &[]),
            json!({"auth_time": now + 300}),
            Err("`auth_time` is not a time in the past"),
        ),
        (demand(None, &[]), json!({"auth_time": now}), Ok(())),
        (demand(None, &[]), json!({}), Ok(())),
        (demand(None, &["mfa", "phr"]), json!({"acr": "phr"}), Ok(())),
        (
            demand(None, &["mfa"]),
            json!({"acr": "pwd"}),
            Err("the `acr` pwd, which is not one of the demanded mfa"),
        ),
        (demand(None, &["mfa"]), json!({}), Err("the `acr` (none)")),
    ] {
        let provider = TestProvider::start();
        let signed_in = sign_in(&provider, &client(&provider), &demanded, claims.clone()).await;
        match (signed_in, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (signed_in, _) => panic!("{demanded:?} {claims}: {signed_in:?}"),
        }
    }
}

// === the person ===

#[tokio::test]
async fn a_person_without_a_name_and_groups_has_none() {
    let person = sign_in_with(json!({"name": null})).await.unwrap();
    assert_eq!((person.name, person.groups.len(), person.acr), (None, 0, None));
}

#[tokio::test]
async fn claims_have_the_names_of_the_settings() {
    let provider = TestProvider::start();
    let mut settings = settings(&provider.url);
    settings.groups_claim = Some("roles".to_owned());
    settings.name_claim = Some("preferred_username".to_owned());
    settings.subject_claim = Some("oid".to_owned());
    let client = IdentityProvider::new(&settings, REDIRECT, TIMEOUT).unwrap();
    let changed = json!({"roles": "admin", "preferred_username": "ada\u{202e}", "groups": ["eng"], "hasgroups": true, "oid": "7"});
    let person = sign_in(&provider, &client, &Demanded::default(), changed)
        .await
        .unwrap();
    assert_eq!(person.subject, "7");
    assert_eq!(person.groups, ["admin".to_owned()].into());
    assert_eq!(person.name.as_deref(), Some("ada\\u{202e}"));
}

#[tokio::test]
async fn claims_are_complete_or_an_error() {
    let groups = |count: usize| (0..count).map(|number| format!("group-{number}")).collect::<Vec<_>>();
    let long = |length: usize| "x".repeat(length);
    for (changed, expected) in [
        (json!({"sub": ""}), "`sub` is missing or empty"),
        (json!({"sub": long(256)}), "`sub`"),
        (json!({"sub": "a\nb"}), "`sub`"),
        (json!({"name": long(257)}), "`name` is longer than 256 bytes"),
        (json!({"groups": groups(257)}), "`groups` has more than 256 groups"),
        (
            json!({"groups": [long(257)]}),
            "`groups` has a group with a name of more than 256 bytes",
        ),
        (json!({"groups": [1]}), "`groups` is neither"),
        (json!({"groups": {"eng": true}}), "`groups` is neither"),
        (json!({"_claim_names": {"groups": "src1"}}), "no claim `groups`"),
        (json!({"hasgroups": true}), "no claim `groups`"),
    ] {
        let error = sign_in_with(changed).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let most = json!({"sub": long(255), "name": long(256), "groups": groups(256)});
    assert_eq!(sign_in_with(most).await.unwrap().groups.len(), 256);
    let elsewhere = json!({"_claim_names": {"address": "src1"}, "hasgroups": false});
    assert!(sign_in_with(elsewhere).await.unwrap().groups.is_empty());
}

#[tokio::test]
async fn a_claim_that_occurs_twice_is_an_error() {
    let provider = TestProvider::start();
    let client = client(&provider);
    let begun = client.begin(&Demanded::default()).await.unwrap();
    let claims = provider
        .claims(&begun.url)
        .0
        .to_string()
        .replace('}', r#","groups":["a"],"groups":["b"]}"#);
    provider.give_token(&KEY.sign_text(&claims, KEY.id));
    let error = client
        .finish(begun.pending, "code-1".to_owned(), None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("occurs twice"), "{error}");
}

// === keys and metadata ===

#[tokio::test]
async fn a_new_key_is_fetched_when_it_is_first_used() {
    let provider = TestProvider::start();
    let client = client(&provider);
    sign_in(&provider, &client, &Demanded::default(), json!({}))
        .await
        .unwrap();
    for id in [OTHER_KEY.id, KEY.id] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        // A key with a new name, and one that has taken an old one's name.
        provider.set_keys(&[OTHER_KEY.jwk_as(id)]);
        let begun = client.begin(&Demanded::default()).await.unwrap();
        provider.give_token(&OTHER_KEY.sign_as(&provider.claims(&begun.url), id));
        client.finish(begun.pending, "code-1".to_owned(), None).await.unwrap();
    }
    assert_eq!(provider.count("/keys"), 3);
}

#[tokio::test]
async fn unknown_keys_cause_a_fetch_every_ten_seconds_at_most() {
    let provider = TestProvider::start();
    let client = client(&provider);
    client.begin(&Demanded::default()).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    for _ in 0..3 {
        let begun = client.begin(&Demanded::default()).await.unwrap();
        provider.give_token(&OTHER_KEY.sign(&provider.claims(&begun.url)));
        let error = client
            .finish(begun.pending, "code-1".to_owned(), None)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("No matching key"), "{error}");
    }
    assert_eq!(provider.count("/keys"), 2);
}

#[tokio::test]
async fn metadata_is_read_again_after_an_hour() {
    let provider = TestProvider::start();
    let client = client(&provider);
    let begin = || async { client.begin(&Demanded::default()).await.unwrap() };
    begin().await;
    begin().await;
    assert_eq!(provider.count("/.well-known/openid-configuration"), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3_601)).await;
    tokio::time::resume();
    begin().await;
    assert_eq!(provider.count("/.well-known/openid-configuration"), 2);
}

#[tokio::test]
async fn a_provider_may_come_up_after_the_issuer() {
    let provider = TestProvider::start();
    let client = client(&provider);
    provider.answer("/keys", Answer::status(503, "starting"));
    for _ in 0..3 {
        let error = client.begin(&Demanded::default()).await.unwrap_err();
        assert!(matches!(error, SignInError::Metadata(_)), "{error}");
        assert!(error.to_string().contains("503"), "{error}");
    }
    assert_eq!(provider.count("/keys"), 1);
    provider.set_keys(&[KEY.jwk_as(KEY.id)]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    sign_in(&provider, &client, &Demanded::default(), json!({}))
        .await
        .unwrap();
}

#[tokio::test]
async fn metadata_is_the_providers_own() {
    for (member, value) in [
        ("issuer", json!("https://other.example")),
        ("authorization_endpoint", json!("http://other.example/authorize")),
        ("authorization_endpoint", json!(null)),
        ("jwks_uri", json!("http://other.example/keys")),
    ] {
        let provider = TestProvider::start();
        provider.change_metadata(member, value.clone());
        let error = client(&provider).begin(&Demanded::default()).await.unwrap_err();
        assert!(matches!(error, SignInError::Metadata(_)), "{member} {value}: {error}");
    }
    let provider = TestProvider::start();
    provider.change_metadata("token_endpoint", json!("http://other.example/token"));
    let error = sign_in(&provider, &client(&provider), &Demanded::default(), json!({}))
        .await
        .unwrap_err();
    assert!(matches!(error, SignInError::TokenEndpoint(_)), "{error}");
}

// === limits ===

#[tokio::test]
async fn large_slow_and_redirected_answers_are_errors() {
    let large = " ".repeat(256 << 10) + "{}";
    for (answer, expected) in [
        (Answer::ok(&large), "larger"),
        (Answer::ok("{}").after(Duration::from_secs(3)), "timeout"),
        (Answer::status(302, "{}"), "302"),
    ] {
        for path in ["/.well-known/openid-configuration", "/keys"] {
            let provider = TestProvider::start();
            provider.answer(path, answer.clone());
            let client = IdentityProvider::new(&settings(&provider.url), REDIRECT, Duration::from_millis(300));
            let error = client.unwrap().begin(&Demanded::default()).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{path}: {error}");
            assert!(error.for_person().contains("Try again later"));
        }
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused() {
    let provider = TestProvider::start();
    let client = client(&provider);
    let all = client.provider.hold_all_calls();
    assert_eq!(client.begin(&Demanded::default()).await.unwrap_err(), SignInError::Busy);
    drop(all);
    client.begin(&Demanded::default()).await.unwrap();
}
