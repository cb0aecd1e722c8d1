//! A transmitter's keys: a JWK set (RFC 7517) from a file or a URL, kept up to date in the background.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::{Json, Object};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

use crate::metrics::Metrics;
use crate::settings::{EventAlgorithm, JwksSettings};
use credence_runtime::metrics::count;
use credence_runtime::outbound;
use credence_runtime::outbound::OutboundError;

/// The keys for verifying signatures.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<EventKey>);

/// A public key, and its permitted uses.
#[derive(Debug)]
pub(crate) struct EventKey {
    id: Option<String>,
    point: Point,
}

#[derive(Debug)]
enum Point {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// SEC 1, uncompressed.
    P256(UnparsedPublicKey<Vec<u8>>),
    Ed25519(UnparsedPublicKey<Vec<u8>>),
}

/// The source of a transmitter's keys, and the last valid ones.
#[derive(Debug)]
pub(crate) struct KeySource {
    transmitter: String,
    from: JwksSettings,
    keys: RwLock<Option<Arc<KeySet>>>,
    /// Held while the keys are being read.
    reading: tokio::sync::Mutex<Reading>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Reading {
    /// When it was last done because a key was missing.
    last_wanted: Option<Instant>,
    /// The stamp of the file that was read last.
    stamp: Option<(SystemTime, u64)>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct KeysError(String);

// === impl KeySet ===

impl KeySet {
    /// Keys of other kinds or for other uses are ignored.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let not_a_set = |why: &dyn Display| KeysError(format!("not a JWK set: {why}"));
        let json = Json::parse(text).map_err(|error| not_a_set(&error))?;
        let keys = json
            .as_object()
            .and_then(|set| set.array("keys"))
            .ok_or_else(|| not_a_set(&"it has no array \"keys\" (RFC 7517 section 5)"))?;
        if keys.len() > MAX_KEYS {
            return Err(KeysError(format!("it has more than {MAX_KEYS} keys")));
        }
        let usable: Vec<_> = keys
            .iter()
            .filter_map(Json::as_object)
            .filter_map(EventKey::parse)
            .collect();
        match usable.is_empty() {
            true => Err(KeysError(format!(
                "none of its {} keys can verify RS256 (2,048 to 8,192 bits), ES256 or EdDSA signatures; take the set \
                 that the transmitter publishes",
                keys.len()
            ))),
            false => Ok(Self(usable)),
        }
    }

    /// The keys that may have made a signature of this kind. The kind comes from the key, never from the token.
    pub(crate) fn candidates(&self, algorithm: EventAlgorithm, id: Option<&str>) -> impl Iterator<Item = &EventKey> {
        self.0
            .iter()
            .filter(move |key| key.algorithm() == algorithm)
            .filter(move |key| id.is_none() || key.id.as_deref() == id)
    }
}

// === impl EventKey ===

impl EventKey {
    fn parse(jwk: &Object<'_>) -> Option<Self> {
        let text = |name: &str| jwk.text(name);
        if jwk.member("use").is_some() && text("use") != Some("sig") {
            return None;
        }
        if let Some(operations) = jwk.member("key_ops") {
            let operations = operations.as_array()?;
            operations
                .iter()
                .find(|operation| operation.as_str() == Some("verify"))?;
        }
        let bytes = |name: &str| text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let coordinate = |name: &str| bytes(name).filter(|bytes| bytes.len() == 32);
        let (point, names) = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let n = bytes("n")?;
                let significant = n.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<_>>();
                if !(256..=1024).contains(&significant.len()) {
                    return None;
                }
                let components = RsaPublicKeyComponents {
                    n: significant,
                    e: bytes("e")?,
                };
                (Point::Rsa(components), ["RS256"].as_slice())
            }
            ("EC", Some("P-256")) => {
                let point = [vec![4], coordinate("x")?, coordinate("y")?].concat();
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
                // Verification checks that it is a point of the curve.
                (Point::P256(key), ["ES256"].as_slice())
            }
            ("OKP", Some("Ed25519")) => {
                let key = UnparsedPublicKey::new(&signature::ED25519, coordinate("x")?);
                (Point::Ed25519(key), ["EdDSA", "Ed25519"].as_slice())
            }
            _ => return None,
        };
        if jwk.member("alg").is_some() && !names.contains(&text("alg")?) {
            return None;
        }
        Some(Self {
            id: text("kid").map(str::to_owned),
            point,
        })
    }

    fn algorithm(&self) -> EventAlgorithm {
        match self.point {
            Point::Rsa(_) => EventAlgorithm::Rs256,
            Point::P256(_) => EventAlgorithm::Es256,
            Point::Ed25519(_) => EventAlgorithm::EdDsa,
        }
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.point {
            Point::Rsa(key) => key
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            Point::P256(key) | Point::Ed25519(key) => key.verify(message, signature).is_ok(),
        }
    }
}

// === impl KeySource ===

impl KeySource {
    /// A file must exist. A URL is first fetched by [`KeySource::keep`].
    pub(crate) async fn open(transmitter: &str, from: &JwksSettings, metrics: Arc<Metrics>) -> Result<Self, KeysError> {
        let source = Self {
            transmitter: transmitter.to_owned(),
            from: from.clone(),
            keys: RwLock::new(None),
            reading: tokio::sync::Mutex::default(),
            metrics,
        };
        match from {
            JwksSettings::File(_) => source.read(&mut *source.reading.lock().await).await?,
            JwksSettings::Url { ca, .. } => {
                let ca = ca.clone();
                tokio::task::spawn_blocking(move || outbound::authorities(ca.as_deref()))
                    .await
                    .map_err(broke_down)?
                    .map_err(KeysError::from)?;
            }
        }
        Ok(source)
    }

    /// The last valid keys; none before the first ones were read.
    pub(crate) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the keys up to date for as long as it is polled.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            self.attempt(&mut *self.reading.lock().await).await;
            tokio::time::sleep(match (&self.from, self.keys().is_some()) {
                (JwksSettings::File(_), _) => FILE_INTERVAL,
                (JwksSettings::Url { .. }, true) => URL_INTERVAL,
                (JwksSettings::Url { .. }, false) => URL_RETRY,
            })
            .await;
        }
    }

    /// Reads the keys again because one was missing. This is rate-limited, because any caller may name a key that does
    /// not exist.
    pub(crate) async fn refresh(&self) {
        let apart = match self.from {
            JwksSettings::File(_) => Duration::from_secs(1),
            JwksSettings::Url { .. } => Duration::from_secs(60),
        };
        let mut reading = self.reading.lock().await;
        if reading.last_wanted.is_none_or(|last| last.elapsed() >= apart) {
            reading.last_wanted = Some(Instant::now());
            self.attempt(&mut reading).await;
        }
    }

    async fn attempt(&self, reading: &mut Reading) {
        if let Err(error) = self.read(reading).await {
            tracing::warn!(
                transmitter = self.transmitter,
                %error,
                "the keys of a transmitter of security events could not be read; the last valid ones stay in use"
            );
        }
    }

    async fn read(&self, reading: &mut Reading) -> Result<(), KeysError> {
        let (from, stamp) = (self.from.clone(), reading.stamp);
        let read = tokio::task::spawn_blocking(move || match &from {
            JwksSettings::File(path) => read_file(path, stamp),
            JwksSettings::Url { url, ca } => fetch(url, ca.as_deref()).map(|text| Some((text, None))),
        })
        .await
        .map_err(broke_down)
        .flatten();
        let outcome = match read {
            Ok(None) => return Ok(()),
            Ok(Some((text, stamp))) => KeySet::parse(&text).map(|keys| (keys, stamp)),
            Err(error) => Err(error),
        };
        let counted = if outcome.is_ok() { "read" } else { "failed" };
        let pairs = [("transmitter", &*self.transmitter), ("outcome", counted)];
        count(&self.metrics.jwks_reads, pairs);
        let (keys, stamp) = outcome?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        reading.stamp = stamp;
        Ok(())
    }
}

fn broke_down(_: tokio::task::JoinError) -> KeysError {
    KeysError("reading them failed unexpectedly".to_owned())
}

impl From<OutboundError> for KeysError {
    fn from(error: OutboundError) -> Self {
        Self(error.to_string())
    }
}

/// A text and the stamp of its file, which shows whether the file was replaced.
type Text = (Vec<u8>, Option<(SystemTime, u64)>);

/// None if the file has not changed.
fn read_file(path: &Path, before: Option<(SystemTime, u64)>) -> Result<Option<Text>, KeysError> {
    let failed = |error: std::io::Error| KeysError(format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let stamp = (metadata.modified().map_err(failed)?, metadata.len());
    if before == Some(stamp) {
        return Ok(None);
    }
    let text = credence_storage::durable::read_small_file(path, MAX_BYTES).map_err(failed)?;
    Ok(Some((text, Some(stamp))))
}

/// Without redirects: only the configured server may provide keys.
fn fetch(url: &str, ca: Option<&Path>) -> Result<Vec<u8>, KeysError> {
    let failed = |error: ureq::Error| KeysError(format!("{url}: {error}"));
    let agent = outbound::agent(url, ca, FETCH_TIMEOUT)?;
    let mut response = agent
        .get(url)
        .header("accept", "application/json")
        .call()
        .map_err(failed)?;
    if response.status().as_u16() != 200 {
        return Err(KeysError(format!(
            "{url}: the answer is {}; 200 was expected, and redirects are not followed",
            response.status()
        )));
    }
    response
        .body_mut()
        .with_config()
        .limit(MAX_BYTES)
        .read_to_vec()
        .map_err(failed)
}

const MAX_KEYS: usize = 100;
const MAX_BYTES: u64 = 256 << 10;
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const FILE_INTERVAL: Duration = Duration::from_secs(5);
const URL_INTERVAL: Duration = Duration::from_secs(600);
/// While there are no keys at all.
const URL_RETRY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn parse(keys: &str) -> Result<KeySet, String> {
        KeySet::parse(format!(r#"{{"keys": [{keys}]}}"#).as_bytes()).map_err(|error| error.to_string())
    }

    fn ed25519(rest: &str) -> String {
        format!(r#"{{"kty": "OKP", "crv": "Ed25519", "x": "{X}"{rest}}}"#)
    }

    fn rsa(bytes: usize) -> String {
        format!(
            r#"{{"kty": "RSA", "e": "AQAB", "n": "{}"}}"#,
            URL_SAFE_NO_PAD.encode(vec![0xc1; bytes])
        )
    }

    #[test]
    fn only_keys_that_may_sign_events_are_taken() {
        parse(&ed25519(r#", "use": "sig", "alg": "EdDSA", "key_ops": ["verify"]"#)).unwrap();
        parse(&rsa(256)).unwrap();
        parse(&rsa(1024)).unwrap();
        for unusable in [
            ed25519(r#", "use": "enc""#),
            ed25519(r#", "alg": "RS256""#),
            ed25519(r#", "key_ops": ["sign"]"#),
            ed25519("").replace(X, "AAAA"),
            rsa(255),
            rsa(1025),
            r#"{"kty": "oct", "k": "AAAA"}"#.to_owned(),
            r#"{"kty": "EC", "crv": "P-384", "x": "AAAA", "y": "AAAA"}"#.to_owned(),
        ] {
            assert!(
                parse(&unusable).unwrap_err().contains("none of its 1 keys"),
                "{unusable}"
            );
            // Beside a valid key it does no harm.
            parse(&format!("{unusable}, {}", ed25519(""))).unwrap();
        }
        assert!(parse(r#"{"kty": "RSA", "kty": "RSA"}"#).unwrap_err().contains("twice"));
        let many = vec![ed25519(""); 101].join(",");
        assert!(parse(&many).unwrap_err().contains("more than 100"));
        assert!(KeySet::parse(b"[]").unwrap_err().to_string().contains("keys"));
    }

    #[test]
    fn a_key_is_chosen_by_its_kind_and_by_its_name() {
        let keys = parse(&[ed25519(r#", "kid": "a""#), rsa(256), ed25519(r#", "kid": "b""#)].join(",")).unwrap();
        let count = |algorithm, id| keys.candidates(algorithm, id).count();
        assert_eq!(count(EventAlgorithm::EdDsa, None), 2);
        assert_eq!(count(EventAlgorithm::EdDsa, Some("b")), 1);
        assert_eq!(count(EventAlgorithm::EdDsa, Some("c")), 0);
        assert_eq!(count(EventAlgorithm::Rs256, Some("a")), 0);
        assert_eq!(count(EventAlgorithm::Es256, None), 0);
    }
}
