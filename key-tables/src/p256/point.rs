//! Points of P-256 in Jacobian coordinates.
//!
//! The formulas are those of the Explicit-Formulas Database for Jacobian coordinates with a = -3: dbl-2001-b, and the sum
//! with an affine point. That sum is wrong for two equal or opposite points and for the neutral one: all of them give
//! Z = 0, which is tested. The curve's order is prime, so no point is its own opposite.
//!
//! Nothing here is constant-time.
#![allow(clippy::arithmetic_side_effects, reason = "elements of the field have no overflow")]

use crypto_bigint::U256;

use super::field::Element;

/// The point (X/Z², Y/Z³), or the neutral one if Z is 0.
#[derive(Clone, Copy)]
pub(super) struct Point {
    x: Element,
    y: Element,
    z: Element,
}

/// The point (x, y), which is not the neutral one.
#[derive(Clone, Copy)]
pub(super) struct AffinePoint {
    x: Element,
    y: Element,
}

impl Point {
    pub(super) const NEUTRAL: Self = Self {
        x: Element::ONE,
        y: Element::ONE,
        z: Element::ZERO,
    };

    /// dbl-2001-b, with 2·Y·Z for Z.
    pub(super) fn double(&self) -> Self {
        let (x, y, z) = (self.x, self.y, self.z);
        let (delta, gamma) = (z.square(), y.square());
        let beta = x * gamma;
        let alpha = ((x - delta).carried() * (x + delta).carried()).times(3).carried();
        let x = (alpha.square() - beta.times(8)).carried();
        Self {
            x,
            y: (alpha * (beta.times(4) - x).carried() - gamma.square().times(8)).carried(),
            z: (y * z).times(2).carried(),
        }
    }

    /// The sum with an affine point.
    pub(super) fn add(&self, other: &AffinePoint) -> Self {
        let zz = self.z.square();
        let h = (other.x * zz - self.x).carried();
        let r = (other.y * (zz * self.z) - self.y).carried();
        let z = self.z * h;
        if z.is_zero() {
            return match (self.z.is_zero(), r.is_zero()) {
                (true, _) => other.to_projective(),
                (false, true) => self.double(),
                (false, false) => Self::NEUTRAL,
            };
        }
        let hh = h.square();
        let (hhh, v) = (h * hh, self.x * hh);
        let x = (r.square() - hhh - v.times(2)).carried();
        Self {
            x,
            y: (r * (v - x).carried() - self.y * hhh).carried(),
            z,
        }
    }

    /// Whether this is a point whose x is this number modulo p.
    pub(super) fn has_x(&self, x: &U256) -> bool {
        !self.z.is_zero() && (Element::new(x) * self.z.square() - self.x).carried().is_zero()
    }

    #[cfg(test)]
    pub(super) fn coordinates(&self) -> Option<[U256; 2]> {
        let affine = (!self.z.is_zero()).then(|| affine(&[*self]))?;
        // A number may be p for 0.
        Some([affine[0].x, affine[0].y].map(|number| number.number().rem_vartime(super::P.as_nz_ref())))
    }
}

impl AffinePoint {
    pub(super) fn new(x: &U256, y: &U256) -> Self {
        Self {
            x: Element::new(x),
            y: Element::new(y),
        }
    }

    pub(super) fn negated(&self) -> Self {
        Self {
            x: self.x,
            y: self.y.times(-1).carried(),
        }
    }

    pub(super) fn to_projective(self) -> Point {
        Point {
            x: self.x,
            y: self.y,
            z: Element::ONE,
        }
    }
}

/// The same points, with one inversion (Montgomery's trick). None may be the neutral one.
pub(super) fn affine(points: &[Point]) -> Vec<AffinePoint> {
    let mut before = Vec::with_capacity(points.len());
    let product_of_all = points.iter().fold(Element::ONE, |so_far, point| {
        before.push(so_far);
        so_far * point.z
    });
    // From the last point to the first: the inverse of the product of all Z up to and including the point's own.
    let mut inverse_so_far = product_of_all.invert();
    let mut affine: Vec<AffinePoint> = points
        .iter()
        .zip(&before)
        .rev()
        .map(|(point, before)| {
            let inverse = inverse_so_far * *before;
            inverse_so_far = inverse_so_far * point.z;
            let square = inverse.square();
            AffinePoint {
                x: point.x * square,
                y: point.y * (square * inverse),
            }
        })
        .collect();
    affine.reverse();
    affine
}
