//! Points of edwards25519, the curve -x^2 + y^2 = 1 + d·x^2·y^2 (RFC 8032, section 5.1).
//!
//! The formulas are those of Hisil, Wong, Carter and Dawson, Twisted Edwards Curves Revisited (2008), section 3.1, under
//! the names of the Explicit-Formulas Database, "extended coordinates with a=-1". They are complete: -1 is a square and d
//! is not, so they hold for every two points, equal, opposite or of small order. Nothing here is constant-time.
//!
//! curve25519-dalek is not used for this because it does not expose coordinates. With it, adding a point of a table
//! takes nine multiplications instead of seven.
#![allow(clippy::arithmetic_side_effects, reason = "elements of the field have no overflow")]

use std::hint::black_box;

use crate::field::{D, HALF, Loose, ONE, Tight, ZERO};

/// A point in extended coordinates: x = X/Z, y = Y/Z and T = X·Y/Z.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    x: Tight,
    y: Tight,
    z: Tight,
    t: Tight,
}

/// A point (x, y) of a table, as (y + x)/2, (y - x)/2 and d·x·y: half of what madd-2008-hwcd-3 computes of its second
/// point.
///
/// The fields stand in this order, which `touch` relies on.
#[repr(C)]
pub(crate) struct TablePoint {
    half_sum: Loose,
    half_difference: Loose,
    dxy: Loose,
}

/// Whether a point is added or subtracted.
#[derive(Clone, Copy)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

impl Point {
    pub(crate) const IDENTITY: Self = Self {
        x: ZERO,
        y: ONE,
        z: ONE,
        t: ZERO,
    };

    /// Decodes a point (RFC 8032, section 5.1.3). It accepts encodings that are not canonical.
    pub(crate) fn decode(bytes: &[u8; 32]) -> Option<Self> {
        let y = Tight::from_bytes(bytes);
        let y2 = y.square();
        // x^2 = (y^2 - 1) / (d·y^2 + 1). The denominator is never 0, since -1/d is not a square.
        let root = Tight::sqrt_ratio((y2 - ONE).carry(), (D * y2 + ONE).carry())?;
        let has_sign = sign(root) == bytes[31] >> 7;
        let x = if has_sign { root } else { -root };
        Some(Self { x, y, z: ONE, t: x * y })
    }

    /// The canonical encoding (RFC 8032, section 5.1.2).
    pub(crate) fn encode(&self) -> [u8; 32] {
        let inverse = self.z.invert();
        let mut bytes = (self.y * inverse).to_bytes();
        bytes[31] |= sign(self.x * inverse) << 7;
        bytes
    }

    pub(crate) fn negate(&self) -> Self {
        Self {
            x: -self.x,
            t: -self.t,
            ..*self
        }
    }

    /// The sum: add-2008-hwcd-3.
    pub(crate) fn add(&self, other: &Self) -> Self {
        let a = (self.y - self.x) * (other.y - other.x);
        let b = (self.y + self.x) * (other.y + other.x);
        let c = (self.t + self.t) * D * other.t;
        let d = (self.z + self.z) * other.z;
        Self::of_parts(b - a, d - c, d + c, b + a)
    }

    /// The sum with a point of a table, or the difference: madd-2008-hwcd-3. A, B, C and D are half of what they are
    /// there. That halves all four parts, which gives the same point, and saves doubling Z.
    ///
    /// The negative of a point (x, y) is (-x, y): it swaps the sum and the difference, and negates d·x·y.
    pub(crate) fn add_table_point(&self, other: &TablePoint, sign: Sign) -> Self {
        let (sum, difference) = match sign {
            Sign::Plus => (&other.half_sum, &other.half_difference),
            Sign::Minus => (&other.half_difference, &other.half_sum),
        };
        let a = (self.y - self.x) * *difference;
        let b = (self.y + self.x) * *sum;
        let c = self.t * other.dxy;
        match sign {
            Sign::Plus => Self::of_parts(b - a, self.z - c, self.z + c, b + a),
            Sign::Minus => Self::of_parts(b - a, self.z + c, self.z - c, b + a),
        }
    }

    /// Whether T is X·Y/Z. A wrong T would only show in a later sum.
    #[cfg(test)]
    pub(crate) fn is_consistent(&self) -> bool {
        self.x * self.y == self.t * self.z
    }

    /// The end of both formulas.
    fn of_parts(e: Loose, f: Loose, g: Loose, h: Loose) -> Self {
        Self {
            x: e * f,
            y: g * h,
            z: f * g,
            t: e * h,
        }
    }
}

/// The sum of points of tables.
pub(crate) fn sum(addends: &[(&TablePoint, Sign)]) -> Point {
    // Tables of many keys do not fit into the caches near a core, and each addition waits for the previous one. Reading
    // all points at once lets their loads overlap: in Wasm this saves a tenth to a quarter of a verification with 64
    // keys.
    black_box(addends.iter().fold(0, |seen, (point, _)| seen ^ point.touch()));
    addends
        .iter()
        .fold(Point::IDENTITY, |sum, (point, sign)| sum.add_table_point(point, *sign))
}

/// Prepares points for a table. All are divided by their Z with one inversion (Montgomery's trick).
pub(crate) fn table_points(points: &[Point]) -> Vec<TablePoint> {
    let mut before = Vec::with_capacity(points.len());
    let product_of_all = points.iter().fold(ONE, |so_far, point| {
        before.push(so_far);
        so_far * point.z
    });
    // From the last point to the first: the inverse of the product of all Z up to and including the point's own.
    let mut inverse_so_far = product_of_all.invert();
    let mut prepared: Vec<TablePoint> = points
        .iter()
        .zip(&before)
        .rev()
        .map(|(point, before)| {
            let inverse_z = inverse_so_far * *before;
            inverse_so_far = inverse_so_far * point.z;
            TablePoint::of(point, inverse_z)
        })
        .collect();
    prepared.reverse();
    prepared
}

impl TablePoint {
    fn of(point: &Point, inverse_z: Tight) -> Self {
        let half = inverse_z * HALF;
        let (half_x, half_y) = (point.x * half, point.y * half);
        Self {
            half_sum: half_y + half_x,
            half_difference: half_y - half_x,
            // T/Z is x·y.
            dxy: (point.t * inverse_z * D).into(),
        }
    }

    /// Reads one word of each 64 bytes.
    fn touch(&self) -> u32 {
        self.half_sum.words()[0] ^ self.half_difference.words()[6] ^ self.dxy.words()[9]
    }
}

/// The sign of x: the lowest bit of its canonical encoding (RFC 8032, section 5.1.2).
fn sign(x: Tight) -> u8 {
    x.to_bytes()[0] & 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT as BASE, EIGHT_TORSION};
    use curve25519_dalek::edwards::CompressedEdwardsY;
    use curve25519_dalek::{EdwardsPoint, Scalar};
    use sha2::{Digest, Sha256, Sha512};

    /// Points of every kind: any, of small order, and with a part of small order.
    fn points() -> Vec<EdwardsPoint> {
        let any = (0..12u32).map(|number| BASE * Scalar::from_hash(Sha512::new().chain_update(number.to_le_bytes())));
        let all: Vec<EdwardsPoint> = any.collect();
        let mixed = all.iter().zip(EIGHT_TORSION).map(|(point, torsion)| point + torsion);
        all.iter().copied().chain(EIGHT_TORSION).chain(mixed).collect()
    }

    fn decoded(point: &EdwardsPoint) -> Point {
        Point::decode(point.compress().as_bytes()).unwrap()
    }

    fn assert_same(own: &Point, library_s: &EdwardsPoint) {
        assert_eq!(own.encode(), library_s.compress().to_bytes());
        assert!(own.is_consistent());
    }

    #[test]
    fn decoding_agrees_with_the_library_and_round_trips() {
        let mut bytes: Vec<[u8; 32]> = (0..500u32)
            .map(|number| Sha256::digest(number.to_le_bytes()).into())
            .collect();
        bytes.extend(points().iter().map(|point| point.compress().to_bytes()));
        // All encodings that are not below p, and encodings near them.
        for (first, last) in (0xe0..=0xff).flat_map(|first| [(first, 0x7f), (first, 0xff)]) {
            let mut high = [0xff; 32];
            (high[0], high[31]) = (first, last);
            bytes.push(high);
        }
        let mut decoded = 0;
        for bytes in bytes {
            let (own, library_s) = (Point::decode(&bytes), CompressedEdwardsY(bytes).decompress());
            assert_eq!(own.is_some(), library_s.is_some(), "{bytes:x?}");
            if let (Some(own), Some(library_s)) = (own, library_s) {
                assert_same(&own, &library_s);
                decoded += 1;
            }
        }
        assert!(decoded > 250, "{decoded}");
    }

    #[test]
    fn sums_and_differences_are_the_library_s() {
        let points = points();
        let own: Vec<Point> = points.iter().map(decoded).collect();
        // Sums, so that Z is not always 1. The sums of points of small order have the orders 1, 2 and 4.
        let own: Vec<Point> = own
            .iter()
            .zip(own.iter().cycle().skip(2))
            .map(|(a, b)| a.add(b))
            .collect();
        let points: Vec<EdwardsPoint> = points
            .iter()
            .zip(points.iter().cycle().skip(2))
            .map(|(a, b)| a + b)
            .collect();
        let prepared = table_points(&own);
        for (a, library_s_a) in own.iter().zip(&points) {
            assert_same(&a.negate(), &-library_s_a);
            for ((b, prepared), library_s_b) in own.iter().zip(&prepared).zip(&points) {
                assert_same(&a.add(b), &(library_s_a + library_s_b));
                assert_same(&a.add_table_point(prepared, Sign::Plus), &(library_s_a + library_s_b));
                assert_same(&a.add_table_point(prepared, Sign::Minus), &(library_s_a - library_s_b));
            }
        }
        assert_same(&sum(&[(&prepared[0], Sign::Plus)]), &points[0]);
        assert_same(&sum(&[]), &EdwardsPoint::default());
        assert!(table_points(&[]).is_empty());
    }
}
