//! A delegation and its proof in a message's metadata (draft section 7.4).

use credence_delegation::json::Json;
use serde_json::value::RawValue;

use super::message::{Message, MessageId};
use crate::decision::{Denial, Reason};
use crate::members::{Written, rewritten};

/// What a message presents, in the form of the headers for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Presentation {
    /// The tokens, root first, joined by `~`.
    pub tokens: String,
    /// The proof, if there is one.
    pub proof: Option<String>,
}

impl Presentation {
    /// Reads the presentation in a message. `id` becomes that of the message as soon as it is known.
    ///
    /// # Errors
    /// There is none, or none that can be read.
    pub fn read(body: &[u8], id: &mut Option<MessageId>) -> Result<Self, Denial> {
        let json = Json::parse(body).map_err(|_| Reason::BodyMalformed)?;
        let message = Message::read(&json, id)?;
        let (chain, proof) = (message.meta(CHAIN), message.meta(PROOF));
        let tokens = match chain {
            None => return Err(Reason::DelegationMissing.into()),
            Some(Json::Array(tokens)) => tokens.iter().map(token).collect::<Option<Vec<_>>>(),
            Some(_) => None,
        };
        let tokens = tokens.filter(|tokens| !tokens.is_empty());
        let tokens = tokens.ok_or(Reason::DelegationMalformed)?.join("~");
        let proof = proof.map(|proof| token(proof).ok_or(Reason::ProofMalformed));
        Ok(Self {
            tokens,
            proof: proof.transpose()?.map(str::to_owned),
        })
    }
}

/// Text that a header could have, too.
fn token<'j>(json: &'j Json<'_>) -> Option<&'j str> {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'~' | b',');
    json.as_str().filter(|text| text.bytes().all(is_part))
}

/// Whether a message presents something.
pub(super) fn is_in(message: &Message<'_>) -> bool {
    MEMBERS.iter().any(|member| message.meta(member).is_some())
}

/// The message without its proof, and without its delegation unless that goes on. None if it cannot be written.
pub fn removed_from(body: &[u8], keeps_chain: bool) -> Option<String> {
    let message: &RawValue = serde_json::from_slice(body).ok()?;
    rewritten(message.get(), |name, params| match name {
        "params" => rewritten(params, |name, meta| match name {
            "_meta" => rewritten(meta, |name, _| match name {
                PROOF => Some(Written::Gone),
                CHAIN if !keeps_chain => Some(Written::Gone),
                _ => Some(Written::Same),
            })
            .map(Written::As),
            _ => Some(Written::Same),
        })
        .map(Written::As),
        _ => Some(Written::Same),
    })
}

/// Of a message that presents a delegation.
pub const MAX_BYTES: usize = 64 << 10;

const CHAIN: &str = "aat_chain";
const PROOF: &str = "aat_pop";
/// Members of `params._meta`.
pub(super) const MEMBERS: [&str; 2] = [CHAIN, PROOF];

#[cfg(test)]
mod tests {
    use super::*;

    fn message(meta: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"x":1.0,"_meta":{{{meta}}}}}}}"#)
    }

    #[test]
    fn a_chain_and_a_proof_are_read_in_the_form_of_headers() {
        let read = |meta: &str| Presentation::read(message(meta).as_bytes(), &mut None).map_err(|denial| denial.reason);
        let presented = |tokens: &str, proof: Option<&str>| {
            Ok(Presentation {
                tokens: tokens.to_owned(),
                proof: proof.map(str::to_owned),
            })
        };
        assert_eq!(
            read(r#""aat_chain":["a.b.c","d.e.f"],"aat_pop":"p.q.r""#),
            presented("a.b.c~d.e.f", Some("p.q.r"))
        );
        assert_eq!(read(r#""aat_chain":["a.b.c"]"#), presented("a.b.c", None));
        assert_eq!(read(""), Err(Reason::DelegationMissing));
        for chain in ["[]", "\"a.b.c\"", "[\"a~b\"]", "[\"a,b\"]", "[7]", "null", "[\"a b\"]"] {
            assert_eq!(
                read(&format!(r#""aat_chain":{chain}"#)),
                Err(Reason::DelegationMalformed),
                "{chain}"
            );
        }
        assert_eq!(
            read(r#""aat_chain":["a.b.c"],"aat_pop":["p"]"#),
            Err(Reason::ProofMalformed)
        );
    }

    #[test]
    fn the_id_is_known_although_nothing_is_presented() {
        let mut id = None;
        assert!(Presentation::read(message("").as_bytes(), &mut id).is_err());
        assert_eq!(id.as_ref().map(MessageId::json), Some("7"));
    }

    #[test]
    fn all_but_the_presentation_stays_as_it_was_written() {
        let sent = message(r#""a":"\u00f6", "aat_chain":["a"],"aat_pop":"p","b":1.50"#);
        assert_eq!(
            removed_from(sent.as_bytes(), false),
            Some(message(r#""a":"\u00f6","b":1.50"#))
        );
        let forwarded = message(r#""a":"\u00f6","aat_chain":["a"],"b":1.50"#);
        assert_eq!(removed_from(sent.as_bytes(), true), Some(forwarded));
        let bare = r#"{"params":{"name":"aat_chain","_meta":{}},"aat_pop":1}"#;
        assert_eq!(removed_from(bare.as_bytes(), false).as_deref(), Some(bare));
    }
}
