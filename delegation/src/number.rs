//! JSON numbers: as written, and in JCS.
//!
//! RFC 8785 gives a number the canonical form of its IEEE 754 double, so different texts can share one form. The draft
//! (section 3.4) therefore admits only numbers whose canonical form denotes exactly the written number. Checking that
//! needs the text, which a parsed double no longer has.

use std::cmp::Ordering;

/// A number as it was written. The text follows the grammar of RFC 8259, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number<'a> {
    text: &'a str,
}

impl<'a> Number<'a> {
    /// Reads a number. Refuses texts outside the grammar of RFC 8259 (`+1`, `01`, `1.`, `.5`, `NaN`).
    pub fn parse(text: &'a str) -> Option<Self> {
        is_json_number(text.as_bytes()).then_some(Self { text })
    }

    /// The number as written.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Its value, if it is written without fraction and exponent and fits 64 bits: a NumericDate or a depth
    /// (draft section 3.2).
    pub fn integer(&self) -> Option<i64> {
        // The other characters of the grammar are '.', 'e', 'E' and '+', which i64 does not parse after a digit.
        self.text.parse().ok()
    }

    /// The double that JCS canonicalises; `None` if the number is out of a double's range.
    pub fn double(&self) -> Option<Double> {
        Double::new(self.text.parse().ok()?)
    }

    /// The double, if its canonical form denotes the same number as the text (draft section 3.4).
    pub fn admissible(&self) -> Option<Double> {
        if self.text.len() <= 15 && self.text.bytes().all(|b| b.is_ascii_digit()) {
            return self.double();
        }
        let written = Decimal::read(self.text);
        // No canonical form has more digits. Checked first, because finding the double is costly for a text between two
        // doubles, and a proof may have thousands of those.
        if written.digits.len() > MAX_DIGITS {
            return None;
        }
        let double = self.double()?;
        (written == Decimal::read(double.canonical(&mut ryu_js::Buffer::new()))).then_some(double)
    }
}

/// A finite double, with one zero: a JSON number in JCS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Double(f64);

impl Double {
    /// Wraps a double. Refuses infinities and NaN, which JSON cannot express.
    pub fn new(value: f64) -> Option<Self> {
        // Adding zero turns -0 into 0: both have the canonical form `0` (RFC 8785, section 3.2.2.3).
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// The value.
    pub fn value(self) -> f64 {
        self.0
    }

    /// The canonical text, written into `buffer` (RFC 8785, section 3.2.2.3: ECMAScript's Number::toString).
    pub(crate) fn canonical(self, buffer: &mut ryu_js::Buffer) -> &str {
        buffer.format_finite(self.0)
    }
}

impl Eq for Double {}

impl PartialOrd for Double {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Double {
    fn cmp(&self, other: &Self) -> Ordering {
        // Finite and with a single zero, so the total order is the numeric one.
        self.0.total_cmp(&other.0)
    }
}

/// A decimal number in a unique form: digits without zeros at either end, and the power of ten of the last digit.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Reads a number of the JSON grammar. An exponent beyond 64 bits saturates. No double's canonical form has such an
    /// exponent, so the numbers still compare as different.
    fn read(text: &str) -> Self {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let mut exponent: i64 = exponent
            .parse()
            .unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole
            .bytes()
            .chain(fraction.bytes())
            .skip_while(|&b| b == b'0')
            .collect();
        exponent = exponent.saturating_sub_unsigned(fraction.len() as u64);
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        if digits.is_empty() {
            return Self {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }
}

/// The most significant digits of any double's shortest text.
const MAX_DIGITS: usize = 17;

/// The grammar of RFC 8259, section 6: `-? (0 | [1-9] digit*) (. digit+)? ([eE] [+-]? digit+)?`.
fn is_json_number(text: &[u8]) -> bool {
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    rest = match rest {
        [b'0', tail @ ..] => tail,
        [b'1'..=b'9', tail @ ..] => skip_digits(tail),
        _ => return false,
    };
    if let [b'.', tail @ ..] = rest {
        let [b'0'..=b'9', tail @ ..] = tail else { return false };
        rest = skip_digits(tail);
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        let tail = match tail {
            [b'+' | b'-', tail @ ..] => tail,
            tail => tail,
        };
        let [b'0'..=b'9', tail @ ..] = tail else { return false };
        rest = skip_digits(tail);
    }
    rest.is_empty()
}

fn skip_digits(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text.get(digits..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number<'_> {
        Number::parse(text).unwrap()
    }

    #[test]
    fn follows_the_json_grammar() {
        for text in [
            "0",
            "-0",
            "10",
            "0.5",
            "1e5",
            "1E+5",
            "1.25e-3",
            "123456789012345678901234567890",
        ] {
            assert!(Number::parse(text).is_some(), "{text}");
        }
        for text in [
            "", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "NaN", "Infinity", "1 ", " 1", "1_0", "--1",
        ] {
            assert!(Number::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn admits_numbers_that_their_canonical_form_denotes() {
        // The first five are the draft's own examples.
        for (text, admissible) in [
            ("0.1", true),
            ("1e20", true),
            ("9007199254740994", true),
            ("9007199254740993", false),
            ("1.00000000000000001", false),
            ("0", true),
            ("-0", true),
            ("0e999999999999999999999", true),
            ("1.0", true),
            ("100e-2", true),
            ("123456789012345", true),
            ("1e400", false),
            ("1e-400", false),
            ("5e-324", true),
            ("1.7976931348623157e308", true),
            ("1e-99999999999999999999", false),
            ("0.1000000000000000055511151231257827", false),
        ] {
            assert_eq!(number(text).admissible().is_some(), admissible, "{text}");
        }
    }

    #[test]
    fn an_integer_has_no_fraction_and_no_exponent() {
        assert_eq!(number("1704067500").integer(), Some(1_704_067_500));
        assert_eq!(number("-0").integer(), Some(0));
        for text in ["1.0", "1e3", "9223372036854775808"] {
            assert_eq!(number(text).integer(), None, "{text}");
        }
    }

    #[test]
    fn both_zeros_are_one_number() {
        assert_eq!(number("-0").double(), number("0").double());
        assert_eq!(
            number("-0.0").double().unwrap().canonical(&mut ryu_js::Buffer::new()),
            "0"
        );
    }
}
