//! Signed notes: text with signatures (C2SP signed-note).
//!
//! A note's text is accessible only after a trusted key has opened the note: [`VerifierKey::open`].

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

/// A signer's name: not empty, and without spaces, pluses and control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName(String);

/// A note as received. No signature is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// One signature line of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The claimed signer.
    pub name: KeyName,
    /// The claimed key.
    pub id: KeyId,
    /// The signature, in the format of its type.
    pub signature: Vec<u8>,
}

/// The first four bytes of SHA-256 over the key's name, a newline, the signature's type and the public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub u32);

/// A public key with its name, for signatures of one type (C2SP signed-note, "Signature types"). As text it is C2SP's
/// "vkey": `name+hash+base64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey<const TYPE: u8> {
    name: KeyName,
    id: KeyId,
    key: VerifyingKey,
}

/// A key that verifies notes.
pub type VerifierKey = PublicKey<OF_NOTES>;

/// A key that signs notes.
#[derive(Debug)]
pub struct NoteSigner {
    name: KeyName,
    key: SigningKey,
}

/// Why a note or key is invalid, or not signed with the expected key.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum NoteError {
    /// It is not a note.
    #[error("this is not a signed note: {0}")]
    Malformed(&'static str),
    /// It is not a key name.
    #[error("{0:?} is not a valid key name: it must not be empty, nor contain a space, a plus or a control character")]
    Name(String),
    /// It is not a verifier key.
    #[error("this is not a verifier key (`name+hash+base64`): {0}")]
    Key(&'static str),
    /// The key did not sign this note.
    #[error("the note has no signature of {name} with the key {id}")]
    Unsigned {
        /// The missing signer.
        name: KeyName,
        /// The missing key.
        id: KeyId,
    },
    /// A signature that claims to be from the key is invalid.
    #[error("the signature of {name} with the key {id} is invalid")]
    FalseSignature {
        /// The claimed signer.
        name: KeyName,
        /// The claimed key.
        id: KeyId,
    },
}

// === impl UnverifiedNote ===

impl UnverifiedNote {
    /// Parses a note. No signature is verified yet.
    pub fn parse(note: &[u8]) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE_LEN {
            return Err(NoteError::Malformed("it is larger than 256 KiB"));
        }
        let note = str::from_utf8(note).map_err(|_| NoteError::Malformed("it is not UTF-8"))?;
        if note.chars().any(|character| character < ' ' && character != '\n') {
            return Err(NoteError::Malformed("it contains a control character"));
        }
        let (before, signatures) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed(
            "there is no empty line between its text and its signatures",
        ))?;
        let signatures = NoteSignature::parse_lines(signatures)?;
        if signatures.is_empty() {
            return Err(NoteError::Malformed("it has no signature"));
        }
        Ok(Self {
            text: format!("{before}\n"),
            signatures,
        })
    }

    /// The unverified text, to verify a signature over it.
    pub(crate) fn unverified_text(&self) -> &str {
        &self.text
    }

    /// All signatures, of any key.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }
}

// === impl NoteSignature ===

impl NoteSignature {
    /// Parses signature lines, each with its newline.
    pub fn parse_lines(lines: &str) -> Result<Vec<Self>, NoteError> {
        if lines.is_empty() {
            return Ok(Vec::new());
        }
        let lines = lines
            .strip_suffix('\n')
            .ok_or(NoteError::Malformed("its last line does not end with a newline"))?;
        if lines.split('\n').count() > MAX_SIGNATURES {
            return Err(NoteError::Malformed("it has more than 64 signatures"));
        }
        lines.split('\n').map(Self::parse).collect()
    }

    fn parse(line: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::Malformed("a signature's line is not `— name base64`");
        let (name, encoded) = line
            .strip_prefix(SIGNATURE_BEGIN)
            .and_then(|line| line.split_once(' '))
            .ok_or(malformed.clone())?;
        let bytes = STANDARD.decode(encoded).map_err(|_| malformed.clone())?;
        let (id, signature) = bytes.split_first_chunk::<4>().ok_or(malformed.clone())?;
        if signature.is_empty() {
            return Err(malformed);
        }
        Ok(Self {
            name: name.parse()?,
            id: KeyId(u32::from_be_bytes(*id)),
            signature: signature.to_vec(),
        })
    }
}

/// As a line of a note, with its newline.
impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.id.0.to_be_bytes(), self.signature.as_slice()].concat();
        writeln!(f, "{SIGNATURE_BEGIN}{} {}", self.name, STANDARD.encode(bytes))
    }
}

// === impl VerifierKey ===

impl VerifierKey {
    /// The text of a note that this key signed. A note with any invalid signature of this key is refused, even if
    /// another one is valid.
    pub fn open<'a>(&self, note: &'a UnverifiedNote) -> Result<&'a str, NoteError> {
        let mut is_signed = false;
        for signature in note.signatures.iter().filter(|signature| self.is_of(signature)) {
            self.verify(note.text.as_bytes(), &signature.signature)?;
            is_signed = true;
        }
        if is_signed {
            Ok(&note.text)
        } else {
            Err(self.unsigned())
        }
    }
}

// === impl PublicKey ===

impl<const TYPE: u8> PublicKey<TYPE> {
    /// A key with this name.
    pub fn new(name: KeyName, key: VerifyingKey) -> Self {
        let mut sha256 = Sha256::new();
        sha256.update(name.0.as_bytes());
        sha256.update([b'\n', TYPE]);
        sha256.update(key.as_bytes());
        let [a, b, c, d, ..] = <[u8; 32]>::from(sha256.finalize());
        Self {
            name,
            id: KeyId(u32::from_be_bytes([a, b, c, d])),
            key,
        }
    }

    /// The owner's name.
    pub fn name(&self) -> &KeyName {
        &self.name
    }

    /// Identifies the key among its owner's keys.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Whether a signature claims to be from this key.
    pub(crate) fn is_of(&self, signature: &NoteSignature) -> bool {
        signature.id == self.id && signature.name == self.name
    }

    /// Verifies a signature that claims to be from this key.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), NoteError> {
        <&[u8; 64]>::try_from(signature)
            .ok()
            .map(Signature::from_bytes)
            .and_then(|signature| self.key.verify_strict(message, &signature).ok())
            .ok_or(self.false_signature())
    }

    pub(crate) fn unsigned(&self) -> NoteError {
        NoteError::Unsigned {
            name: self.name.clone(),
            id: self.id,
        }
    }

    pub(crate) fn false_signature(&self) -> NoteError {
        NoteError::FalseSignature {
            name: self.name.clone(),
            id: self.id,
        }
    }
}

impl<const TYPE: u8> FromStr for PublicKey<TYPE> {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(material)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key("it does not consist of three parts separated by pluses"));
        };
        let material = STANDARD
            .decode(material)
            .map_err(|_| NoteError::Key("its last part is not base64"))?;
        let (kind, key) = material.split_first().ok_or(NoteError::Key("its last part is empty"))?;
        if *kind != TYPE {
            return Err(NoteError::Key(match TYPE {
                OF_NOTES => "it is not for Ed25519 signatures of notes (type 1)",
                _ => "it is not for Ed25519 cosignatures of checkpoints (type 4)",
            }));
        }
        let key = <&[u8; 32]>::try_from(key)
            .ok()
            .and_then(|key| VerifyingKey::from_bytes(key).ok())
            .ok_or(NoteError::Key("its last part is not an Ed25519 key"))?;
        let key = Self::new(name.parse()?, key);
        if id == key.id.to_string() {
            Ok(key)
        } else {
            Err(NoteError::Key("its hash does not match its name and key"))
        }
    }
}

/// As text (`name+hash+base64`).
impl<const TYPE: u8> fmt::Display for PublicKey<TYPE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let material = [&[TYPE], self.key.as_bytes().as_slice()].concat();
        write!(f, "{}+{}+{}", self.name, self.id, STANDARD.encode(material))
    }
}

// === impl NoteSigner ===

impl NoteSigner {
    /// A signer with this name, and the Ed25519 key of this seed.
    pub fn new(name: KeyName, seed: &[u8; 32]) -> Self {
        Self {
            name,
            key: SigningKey::from_bytes(seed),
        }
    }

    /// The signer's name.
    pub fn name(&self) -> &KeyName {
        &self.name
    }

    /// The key that verifies this signer's notes.
    pub fn verifier_key(&self) -> VerifierKey {
        VerifierKey::new(self.name.clone(), self.key.verifying_key())
    }

    /// Signs a text, which must end with a newline and contain no other control character.
    pub fn sign(&self, text: &str) -> Result<String, NoteError> {
        if !text.ends_with('\n') {
            return Err(NoteError::Malformed("its text does not end with a newline"));
        }
        let signature = NoteSignature {
            name: self.name.clone(),
            id: self.verifier_key().id(),
            signature: self.key.sign(text.as_bytes()).to_bytes().to_vec(),
        };
        Ok(format!("{text}\n{signature}"))
    }
}

// === impl KeyName and KeyId ===

impl KeyName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = NoteError;

    fn from_str(name: &str) -> Result<Self, NoteError> {
        let is_forbidden = |character: char| character.is_whitespace() || character.is_control() || character == '+';
        if name.is_empty() || name.contains(is_forbidden) {
            return Err(NoteError::Name(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As eight hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The type of Ed25519 signatures over a note's text.
pub const OF_NOTES: u8 = 1;
/// The type of Ed25519 cosignatures, over a checkpoint's text and a time.
pub const OF_CHECKPOINTS: u8 = 4;
const SIGNATURE_BEGIN: &str = "— ";
/// Sixteen signatures must be accepted, and one of a post-quantum key has up to 5 kB.
const MAX_NOTE_LEN: usize = 256 * 1024;
const MAX_SIGNATURES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of C2SP signed-note, "Verifier keys".
    const EXAMPLE_KEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    const EXAMPLE: &str = "This is an example message.\n\n— example.com/foo \
        Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

    fn signer(name: &str) -> NoteSigner {
        NoteSigner::new(name.parse().unwrap(), &[7; 32])
    }

    fn note(text: &str) -> UnverifiedNote {
        UnverifiedNote::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_specifications_example_is_opened() {
        let key: VerifierKey = EXAMPLE_KEY.parse().unwrap();
        assert_eq!(key.to_string(), EXAMPLE_KEY);
        assert_eq!(key.open(&note(EXAMPLE)).unwrap(), "This is an example message.\n");
    }

    #[test]
    fn a_note_is_opened_by_its_signers_key_only() {
        let signed = signer("log.example/a").sign("one\n\ntwo\n").unwrap();
        let key = signer("log.example/a").verifier_key();
        assert_eq!(key.to_string().parse::<VerifierKey>().unwrap(), key);
        assert_eq!(key.open(&note(&signed)).unwrap(), "one\n\ntwo\n");
        let same_key_other_name = signer("log.example/b").verifier_key();
        assert!(matches!(
            same_key_other_name.open(&note(&signed)),
            Err(NoteError::Unsigned { .. })
        ));
        let same_name_other_key = NoteSigner::new("log.example/a".parse().unwrap(), &[8; 32]).verifier_key();
        assert!(matches!(
            same_name_other_key.open(&note(&signed)),
            Err(NoteError::Unsigned { .. })
        ));
    }

    #[test]
    fn unknown_signatures_are_ignored_and_an_invalid_one_of_the_key_is_refused() {
        let key = signer("log.example/a").verifier_key();
        let signed = signer("log.example/a").sign("text\n").unwrap();
        let stranger = "— witness.example/w jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn\n";
        assert!(UnverifiedNote::parse(format!("{signed}{stranger}").as_bytes()).is_err());
        let stranger = "— witness.example/w jWbPPwAAAABkGFDL\n";
        assert_eq!(key.open(&note(&format!("{signed}{stranger}"))).unwrap(), "text\n");
        let other_text = signer("log.example/a").sign("other\n").unwrap();
        let other_line = other_text.rsplit_once("\n\n").unwrap().1;
        assert!(matches!(
            key.open(&note(&format!("{signed}{other_line}"))),
            Err(NoteError::FalseSignature { .. })
        ));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let key: VerifierKey = EXAMPLE_KEY.parse().unwrap();
        for byte in 0..EXAMPLE.len() {
            for bit in 0..8 {
                let mut changed = EXAMPLE.as_bytes().to_vec();
                changed[byte] ^= 1 << bit;
                let opened = UnverifiedNote::parse(&changed).and_then(|note| key.open(&note).map(str::to_owned));
                assert!(opened.is_err(), "byte {byte}, bit {bit}");
            }
        }
    }

    #[test]
    fn text_that_is_not_a_note_is_refused() {
        let line = "— a AAAAAAA=\n";
        for (text, why) in [
            (String::new(), "empty"),
            ("text\n".to_owned(), "no signatures"),
            ("text\n\n".to_owned(), "no signature line"),
            (format!("text\n{line}"), "no empty line"),
            (format!("text\n\n{}", line.trim_end()), "no last newline"),
            (format!("text\r\n\n{line}"), "a carriage return"),
            ("text\n\n- a AAAAAAA=\n".to_owned(), "a hyphen"),
            ("text\n\n— a b AAAAAAA=\n".to_owned(), "two names"),
            ("text\n\n—  AAAAAAA=\n".to_owned(), "no name"),
            ("text\n\n— a+b AAAAAAA=\n".to_owned(), "a plus"),
            ("text\n\n— a AAAAAAA\n".to_owned(), "no padding"),
            ("text\n\n— a AAAAAA==\n".to_owned(), "a key id and nothing else"),
            ("text\n\n— a AAAA\n".to_owned(), "less than a key id"),
            (format!("text\n\n{}", line.repeat(65)), "65 signatures"),
        ] {
            assert!(UnverifiedNote::parse(text.as_bytes()).is_err(), "{why}");
        }
        assert!(UnverifiedNote::parse(b"t\xff\n\n\xe2\x80\x94 a AAAAAAA=\n").is_err());
        assert!(UnverifiedNote::parse(format!("text\n\n{}", line.repeat(64)).as_bytes()).is_ok());
        assert!(signer("a").sign("no newline").is_err());
    }

    #[test]
    fn text_that_is_not_a_verifier_key_is_refused() {
        for text in [
            "",
            "example.com/foo",
            "example.com/foo+530d903a",
            "example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
            "example.com/fop+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
            "example.com/foo+530d903a+BOkyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
            "example.com/foo+530d903a+Aeky",
            "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        ] {
            assert!(text.parse::<VerifierKey>().is_err(), "{text}");
        }
    }
}
