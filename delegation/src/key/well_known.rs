//! Well-known keys that end up in configurations by copying. No issuer may use them.

use super::PublicKey;

/// Why no issuer may use a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WellKnown {
    /// A specification prints its private half, so that anyone can sign with it.
    Printed(&'static str),
    /// It is the key in the shipped files, which has no private half (docs/reference/configuration.md).
    Examples,
}

impl PublicKey {
    /// Whether it is one of the usual keys that are copied. There are others.
    pub(crate) fn well_known(&self) -> Option<WellKnown> {
        Some(match self.thumbprint().to_string().as_str() {
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" => WellKnown::Printed("RFC 8037, appendix A"),
            "FtIu-VbGrfe_KB6CH7GNwODB72MNxj_ml11dEvO-7kk" => WellKnown::Printed("RFC 8032, section 7.1"),
            "FVV5umTuau890q59V-4Ga_R6qWb7ON_ivJc4EjvCwTM" => WellKnown::Printed("RFC 8032, section 7.1"),
            "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U" => WellKnown::Printed("RFC 9421, appendix B.1.4"),
            "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U" => WellKnown::Printed("RFC 7515, appendix A.3"),
            "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s" => WellKnown::Printed("RFC 7517, appendix A"),
            "PlvtM7HpwShiXEuo0jfAcFkNoo1Y_A6sI91E4DsqnN8" => WellKnown::Examples,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use curve25519_dalek::edwards::CompressedEdwardsY;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::base64url;
    use crate::key::{KeyType, SigningKey};

    #[test]
    fn a_key_with_a_printed_private_half_is_well_known() {
        for (kind, secret, place) in [
            (
                KeyType::Ed25519,
                "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
                "RFC 8037, appendix A",
            ),
            (
                KeyType::Ed25519,
                "TM0Imyj_ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U-4pvs",
                "RFC 8032, section 7.1",
            ),
            (
                KeyType::Ed25519,
                "xaqN9D-fg3vtt0QvMdy3sWbThTUHbwlLhc46LgtEWPc",
                "RFC 8032, section 7.1",
            ),
            (
                KeyType::Ed25519,
                "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU",
                "RFC 9421, appendix B.1.4",
            ),
            (
                KeyType::P256,
                "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
                "RFC 7515, appendix A.3",
            ),
            (
                KeyType::P256,
                "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",
                "RFC 7517, appendix A",
            ),
        ] {
            let secret = base64url::decode_array(secret).unwrap();
            let key = SigningKey::from_secret(kind, &secret).unwrap().public();
            assert_eq!(key.well_known(), Some(WellKnown::Printed(place)), "{}", key.to_jwk());
        }
        assert_eq!(SigningKey::from_seed(&[1; 32]).public().well_known(), None);
    }

    /// To sign with it, an attacker would need the discrete logarithm of a point that a digest encodes.
    #[test]
    fn the_key_of_the_shipped_files_was_made_of_a_digest() {
        let digest = Sha256::new().chain_update("Credence: nobody's key").chain_update([1]);
        let point = CompressedEdwardsY(digest.finalize().into()).decompress().unwrap();
        let key = PublicKey::from_ed25519(&point.mul_by_cofactor().compress().0).unwrap();
        assert_eq!(
            key.to_jwk(),
            r#"{"crv":"Ed25519","kty":"OKP","x":"yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc"}"#
        );
        assert_eq!(key.well_known(), Some(WellKnown::Examples));
    }
}
