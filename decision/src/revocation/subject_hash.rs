//! Hashes that stand for subjects.

use std::hash::Hasher as _;

use credence_delegation::Thumbprint;
use credence_delegation::revocation::DelegationPath;
use siphasher::sip128::{Hasher128, SipHasher24};

/// Hashes subjects with SipHash-2-4-128 under the VM's secret. Each kind has its own domain, and every part except the
/// last one is preceded by its length, so that no two subjects have the same hashed bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubjectHasher(SipHasher24);

/// The hash of a subject in this VM: 128 bits that are unpredictable from outside. As words of four bytes, so that a
/// value beside it in a table needs no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubjectHash([u32; 4]);

// === impl SubjectHasher ===

impl SubjectHasher {
    /// `secret` must be random and stay in this VM.
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(secret))
    }

    pub(super) fn principal(&self, issuer: &str, subject: Option<&str>) -> SubjectHash {
        finish(self.owned_by(b'p', issuer, subject))
    }

    /// A token that is named by its id alone.
    pub(super) fn delegation(&self, issuer: &str, subject: Option<&str>, id: &str) -> SubjectHash {
        let mut state = self.owned_by(b'd', issuer, subject);
        state.write(id.as_bytes());
        finish(state)
    }

    /// A token that is named by its id and the ids above it.
    pub(super) fn delegation_under(
        &self,
        issuer: &str,
        subject: Option<&str>,
        token: DelegationPath<'_>,
    ) -> SubjectHash {
        let mut state = self.owned_by(b'u', issuer, subject);
        state.write(&(token.under.len() as u64).to_le_bytes());
        for id in token.under {
            write_with_length(&mut state, id);
        }
        state.write(token.id.as_bytes());
        finish(state)
    }

    pub(super) fn key(&self, key: &Thumbprint) -> SubjectHash {
        self.single(b'k', key.as_bytes())
    }

    pub(super) fn issuer(&self, issuer: &str) -> SubjectHash {
        self.single(b'i', issuer.as_bytes())
    }

    fn single(&self, domain: u8, name: &[u8]) -> SubjectHash {
        let mut state = self.0;
        state.write(&[domain]);
        state.write(name);
        finish(state)
    }

    fn owned_by(&self, domain: u8, issuer: &str, subject: Option<&str>) -> SipHasher24 {
        let mut state = self.0;
        state.write(&[domain]);
        write_with_length(&mut state, issuer);
        match subject {
            None => state.write(&[0]),
            Some(subject) => {
                state.write(&[1]);
                write_with_length(&mut state, subject);
            }
        }
        state
    }
}

fn write_with_length(state: &mut SipHasher24, part: &str) {
    state.write(&(part.len() as u64).to_le_bytes());
    state.write(part.as_bytes());
}

fn finish(state: SipHasher24) -> SubjectHash {
    let hash = state.finish128();
    let words = |half: u64| [half as u32, (half >> 32) as u32];
    let ([first, second], [third, fourth]) = (words(hash.h1), words(hash.h2));
    SubjectHash([first, second, third, fourth])
}

// === impl SubjectHash ===

impl SubjectHash {
    /// Bits that are uniform over all subjects.
    pub(super) fn uniform(&self) -> usize {
        let [first, ..] = self.0;
        first as usize
    }

    /// The hash with these bits, for tests.
    #[cfg(test)]
    pub(super) fn of(words: [u32; 4]) -> Self {
        Self(words)
    }
}
