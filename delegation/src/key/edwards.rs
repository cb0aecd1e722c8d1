//! Points of the curve of Ed25519, -x^2 + y^2 = 1 + d·x^2·y^2, where they are added to points that are known in advance.
//!
//! The library that everything else here uses adds points in nine multiplications, and does not let go of their
//! coordinates. A known point can be kept such that adding it takes seven. The formulas are those of Hisil, Wong, Carter and
//! Dawson, Twisted Edwards Curves Revisited (2008), section 3.1; since -1 is a square and d is none, they hold for all
//! points. Nothing here takes constant time.

use std::hint::black_box;

use super::field::{
    D, HALF, Loose, ONE, Tight, ZERO, add, from_bytes, inverse, loose, multiply, negative, product, root_of_ratio,
    square, subtract, tight, to_bytes,
};

/// The point x = X/Z, y = Y/Z, and T = X·Y/Z.
#[derive(Clone, Copy)]
pub(super) struct Point {
    x: Tight,
    y: Tight,
    z: Tight,
    t: Tight,
}

/// What is made of a point (x, y) that will be added often: (y + x)/2, (y - x)/2 and d·x·y.
///
/// In this order, which `touched` relies on.
#[repr(C)]
pub(super) struct KnownPoint {
    plus: Loose,
    minus: Loose,
    product: Loose,
}

/// Whether a point is added or taken away.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    Plus,
    Minus,
}

/// What is made of any point that will be added several times: Y + X, Y - X, 2Z and 2d·T.
pub(super) struct Addend {
    plus: Loose,
    minus: Loose,
    twice_z: Loose,
    product: Loose,
}

impl Point {
    pub(super) const IDENTITY: Self = Self {
        x: ZERO,
        y: ONE,
        z: ONE,
        t: ZERO,
    };

    /// The point that is encoded so (RFC 8032, section 5.1.3), if there is one. Who wants only canonical encodings has to see
    /// to that.
    pub(super) fn decode(bytes: &[u8; 32]) -> Option<Self> {
        let y = from_bytes(bytes);
        let y2 = square(&loose(&y));
        // x^2 = (y^2 - 1) / (d·y^2 + 1), whose denominator is never 0.
        let numerator = tight(&subtract(&y2, &ONE));
        let denominator = tight(&add(&product(&D, &y2), &ONE));
        let root = root_of_ratio(&numerator, &denominator)?;
        let is_right = sign(&root) == bytes[31] >> 7;
        let x = if is_right { root } else { negative(&root) };
        let t = product(&x, &y);
        Some(Self { x, y, z: ONE, t })
    }

    pub(super) fn encode(&self) -> [u8; 32] {
        let inverse = inverse(&self.z);
        let mut bytes = to_bytes(&product(&self.y, &inverse));
        bytes[31] |= sign(&product(&self.x, &inverse)) << 7;
        bytes
    }

    pub(super) fn negative(&self) -> Self {
        Self {
            x: negative(&self.x),
            t: negative(&self.t),
            ..*self
        }
    }

    /// The sum.
    pub(super) fn add(&self, other: &Addend) -> Self {
        let a = multiply(&subtract(&self.y, &self.x), &other.minus);
        let b = multiply(&add(&self.y, &self.x), &other.plus);
        let c = multiply(&loose(&self.t), &other.product);
        let d = multiply(&loose(&self.z), &other.twice_z);
        Self::of_parts(&subtract(&b, &a), &subtract(&d, &c), &add(&d, &c), &add(&b, &a))
    }

    /// The sum with a known point. All four of what the sum is made of are half of what they are in `add`, which is the
    /// same point.
    pub(super) fn add_known(&self, other: &KnownPoint) -> Self {
        let a = multiply(&subtract(&self.y, &self.x), &other.minus);
        let b = multiply(&add(&self.y, &self.x), &other.plus);
        let c = multiply(&loose(&self.t), &other.product);
        Self::of_parts(
            &subtract(&b, &a),
            &subtract(&self.z, &c),
            &add(&self.z, &c),
            &add(&b, &a),
        )
    }

    /// The sum with the negative of a known point, whose x has the other sign.
    pub(super) fn subtract_known(&self, other: &KnownPoint) -> Self {
        let a = multiply(&subtract(&self.y, &self.x), &other.plus);
        let b = multiply(&add(&self.y, &self.x), &other.minus);
        let c = multiply(&loose(&self.t), &other.product);
        Self::of_parts(
            &subtract(&b, &a),
            &add(&self.z, &c),
            &subtract(&self.z, &c),
            &add(&b, &a),
        )
    }

    pub(super) fn addend(&self) -> Addend {
        Addend {
            plus: add(&self.y, &self.x),
            minus: subtract(&self.y, &self.x),
            twice_z: add(&self.z, &self.z),
            product: loose(&multiply(&add(&self.t, &self.t), &loose(&D))),
        }
    }

    fn of_parts(e: &Loose, f: &Loose, g: &Loose, h: &Loose) -> Self {
        Self {
            x: multiply(e, f),
            y: multiply(g, h),
            z: multiply(f, g),
            t: multiply(e, h),
        }
    }
}

/// The sum of known points.
pub(super) fn sum(addends: &[(&KnownPoint, Sign)]) -> Point {
    // They come from tables that are larger than the caches next to a core, and each addition waits for the one before.
    // What is asked for at once arrives together.
    black_box(addends.iter().fold(0, |seen, (known, _)| seen ^ known.touched()));
    addends.iter().fold(Point::IDENTITY, |sum, (known, sign)| match sign {
        Sign::Plus => sum.add_known(known),
        Sign::Minus => sum.subtract_known(known),
    })
}

/// All of them made known at once: a division takes as long as some fifteen additions, and this takes hardly two a point.
pub(super) fn all_known(points: &[Point]) -> Vec<KnownPoint> {
    let mut before = Vec::with_capacity(points.len());
    let product_of_all = points.iter().fold(ONE, |so_far, point| {
        before.push(so_far);
        product(&so_far, &point.z)
    });
    // 1/(the product of all Z up to a point's own), from the last point to the first.
    let mut inverse_so_far = inverse(&product_of_all);
    let mut known: Vec<KnownPoint> = points
        .iter()
        .zip(&before)
        .rev()
        .map(|(point, before)| {
            let inverse_z = product(&inverse_so_far, before);
            inverse_so_far = product(&inverse_so_far, &point.z);
            KnownPoint::of(point, &inverse_z)
        })
        .collect();
    known.reverse();
    known
}

impl KnownPoint {
    fn of(point: &Point, inverse_z: &Tight) -> Self {
        let half = product(inverse_z, &HALF);
        let (half_x, half_y) = (product(&point.x, &half), product(&point.y, &half));
        // T/Z is x·y.
        let xy = product(&point.t, inverse_z);
        Self {
            plus: add(&half_y, &half_x),
            minus: subtract(&half_y, &half_x),
            product: loose(&product(&xy, &D)),
        }
    }

    /// Something out of each 64 of its bytes.
    fn touched(&self) -> u32 {
        self.plus.0[0] ^ self.minus.0[6] ^ self.product.0[9]
    }
}

/// Whether x is "negative": the lowest bit of the number below p.
fn sign(x: &Tight) -> u8 {
    to_bytes(x)[0] & 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT as BASE, EIGHT_TORSION};
    use curve25519_dalek::edwards::CompressedEdwardsY;
    use curve25519_dalek::{EdwardsPoint, Scalar};
    use sha2::{Digest, Sha256, Sha512};

    /// Points of every kind: any, those of small order, and those with a part of small order.
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
        // T is what only the next sum would show.
        assert_eq!(to_bytes(&product(&own.x, &own.y)), to_bytes(&product(&own.t, &own.z)));
    }

    #[test]
    fn what_decodes_is_what_decodes_for_the_library_and_comes_back() {
        let mut bytes: Vec<[u8; 32]> = (0..500u32)
            .map(|number| Sha256::digest(number.to_le_bytes()).into())
            .collect();
        bytes.extend(points().iter().map(|point| point.compress().to_bytes()));
        // All that is not below p, and what is near.
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
        // Sums, so that not every Z is 1. Those of the points of small order have the orders 1, 2 and 4.
        let own: Vec<Point> = own
            .iter()
            .zip(own.iter().cycle().skip(2))
            .map(|(a, b)| a.add(&b.addend()))
            .collect();
        let points: Vec<EdwardsPoint> = points
            .iter()
            .zip(points.iter().cycle().skip(2))
            .map(|(a, b)| a + b)
            .collect();
        let known = all_known(&own);
        for (a, library_s_a) in own.iter().zip(&points) {
            assert_same(&a.negative(), &-library_s_a);
            for ((b, known), library_s_b) in own.iter().zip(&known).zip(&points) {
                assert_same(&a.add(&b.addend()), &(library_s_a + library_s_b));
                assert_same(&a.add_known(known), &(library_s_a + library_s_b));
                assert_same(&a.subtract_known(known), &(library_s_a - library_s_b));
            }
        }
        assert_same(&Point::IDENTITY.add_known(&known[0]), &points[0]);
        assert!(all_known(&[]).is_empty());
    }
}
