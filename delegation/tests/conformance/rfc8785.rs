//! RFC 8785: the JSON Canonicalization Scheme.

use credence_delegation::json::Json;
use credence_delegation::{Double, InadmissibleNumber, Number, Value, canonicalize};
use sha2::{Digest, Sha256};

use crate::data::{Downloaded, hex};
use crate::report::Suite;

/// The examples in the RFC itself.
pub(crate) fn sections() -> Suite {
    let mut suite = Suite::new("RFC 8785, section 3 and appendix B");
    let bytes = canonical(SECTION_3_2_2.as_bytes()).map(String::into_bytes);
    suite.case("3.2.2 to 3.2.4: primitive data", Ok(hex(SECTION_3_2_4)), bytes);
    let sorted = canonical(SECTION_3_2_3.as_bytes()).unwrap();
    let json = Json::parse(sorted.as_bytes()).unwrap();
    let values: Vec<_> = json
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(_, value)| value.as_str())
        .collect();
    suite.case("3.2.3: sorting", SECTION_3_2_3_ORDER.as_slice(), values.as_slice());

    for (bits, expected) in APPENDIX_B {
        let double = f64::from_bits(bits);
        let got = canonical(format!("{double:e}").as_bytes());
        suite.case(format!("appendix B: {bits:016x}"), Ok(expected.to_owned()), got);
    }
    for (bits, text) in APPENDIX_B_ERRORS {
        let double = Double::new(f64::from_bits(bits));
        suite.case(format!("appendix B: {bits:016x}"), None, double.map(Double::value));
        suite.case(
            format!("appendix B: {text} as text"),
            true,
            Json::parse(text.as_bytes()).is_err(),
        );
    }

    // I-JSON (RFC 7493), to which section 3.1 binds the input.
    for (id, text) in [
        ("3.1: a name twice", r#"{"a":1,"b":2,"a":1}"#.as_bytes()),
        ("3.1: a name twice, deep", br#"[{"x":{"a":1,"a":2}}]"#),
        ("3.1: a name twice, once escaped", br#"{"a":1,"\u0061":2}"#),
        ("3.1: bytes that are not UTF-8", b"\"\xc3\x28\""),
        ("3.2.2.2: a lone high surrogate", br#""\ud83d""#),
        ("3.2.2.2: a lone low surrogate", br#""\ude00""#),
        ("3.2.2.2: a lone surrogate in a name", br#"{"\udead":1}"#),
        ("3.2.2.3: beyond a double", b"1e309"),
        ("3.2.2.3: below a double", b"-1e309"),
    ] {
        if suite.case(id, true, canonical(text).is_err()) {
            suite.remark("refused as must be: input that RFC 8785 has no canonical form for");
        }
    }
    suite
}

/// The files of the RFC's author.
pub(crate) fn files() -> Suite {
    let name = "RFC 8785, the author's files";
    let vectors = match Downloaded::json_canonicalization() {
        Ok(vectors) => vectors,
        Err(reason) => return Suite::skipped(name, reason),
    };
    let mut suite = Suite::new(name);
    for file in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let input = vectors.file(&format!("testdata/input/{file}.json"));
        let output = vectors.file(&format!("testdata/output/{file}.json"));
        let output = String::from_utf8(output).unwrap();
        let bytes = String::from_utf8(vectors.file(&format!("testdata/outhex/{file}.txt"))).unwrap();
        let got = canonical(&input);
        suite.case(format!("{file}: text"), &Ok(output.clone()), &got);
        suite.case(format!("{file}: bytes"), Ok(hex(&bytes)), got.map(String::into_bytes));
        suite.case(
            format!("{file}: canonical already"),
            &Ok(output.clone()),
            &canonical(output.as_bytes()),
        );

        // The same texts as arguments and constraint values, for which the draft allows fewer numbers than RFC 8785.
        let value = Value::from_json(&Json::parse(&input).unwrap()).map(|value| value.canonical());
        if file != "values" {
            suite.case(format!("{file}: as a value"), Ok(output), value);
        } else if suite.case(
            format!("{file}: as a value"),
            Err(InadmissibleNumber("333333333.33333329".to_owned())),
            value,
        ) {
            suite.remark(
                "refused as an argument, though canonicalised: 333333333.33333329 loses a digit, and \"Arguments and \
                 constraint values MUST contain only admissible numbers\" (draft section 3.4)",
            );
        }
    }
    suite
}

/// The author's sequence of doubles. The file of numbers itself is not downloaded: the author's README has the first
/// doubles, the rule for the others, and the digests of the expected output.
pub(crate) fn numbers() -> Suite {
    let name = "RFC 8785, the author's sequence of numbers";
    let vectors = match Downloaded::json_canonicalization() {
        Ok(vectors) => vectors,
        Err(reason) => return Suite::skipped(name, reason),
    };
    let mut suite = Suite::new(name);
    let readme = String::from_utf8(vectors.file("testdata/README.md")).unwrap();
    let digests: Vec<(usize, String)> = readme.lines().filter_map(digest_row).collect();
    let mut lines = Sha256::new();
    let (mut count, mut checked, mut inadmissible) = (0, 0, Vec::new());
    for double in sequence(&readme).take(NUMBERS) {
        let canonical = canonical(format!("{double:e}").as_bytes()).unwrap();
        lines.update(format!("{:x},{canonical}\n", double.to_bits()));
        if Number::parse(&canonical).is_none_or(|number| number.admissible() != Double::new(double)) {
            inadmissible.push(canonical);
        }
        count += 1;
        if let Some((_, expected)) = digests.iter().find(|(lines, _)| *lines == count) {
            let got: String = lines
                .clone()
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            suite.case(
                format!("SHA-256 over the first {count} numbers"),
                expected.as_str(),
                got.as_str(),
            );
            checked = count;
        }
    }
    assert_eq!(
        checked, NUMBERS,
        "the README must have the digest over {NUMBERS} numbers"
    );
    suite.case(
        "canonical forms that are not admissible (draft section 3.4)",
        Vec::new(),
        inadmissible,
    );
    suite.note(format!(
        "the cases are digests over up to {NUMBERS} numbers in canonical form"
    ));
    suite
}

/// How many numbers of the sequence are used. More would take too long for a test that always runs.
const NUMBERS: usize = 100_000;

/// A row of the README's table: the number of lines, and their digest.
fn digest_row(line: &str) -> Option<(usize, String)> {
    let mut cells = line.split('|').map(str::trim).skip(1);
    let digest = cells
        .next()
        .filter(|cell| cell.len() == 64 && cell.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some((cells.next()?.parse().ok()?, digest.to_owned()))
}

/// The README's rule: the doubles that it lists; 2,000 whose bits count up from those of the smallest normal double;
/// then four from each of a chain of SHA-256 digests that starts at 32 zero bytes, without zeros and non-finite
/// numbers.
fn sequence(readme: &str) -> impl Iterator<Item = f64> {
    let listed: Vec<f64> = readme
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter_map(|word| word.strip_prefix("0x")?.strip_suffix('n'))
        .map(|digits| f64::from_bits(u64::from_str_radix(digits, 16).unwrap()))
        .collect();
    // The last one is where the counting starts, and not in the list.
    let (start, listed) = listed
        .split_last()
        .map(|(last, rest)| (last.to_bits(), rest.to_vec()))
        .unwrap();
    let serial = (0..2000).map(move |step| f64::from_bits(start + step));
    let digests = std::iter::successors(Some([0u8; 32]), |block| Some(Sha256::digest(block).into()));
    let random = digests.skip(1).flat_map(|block| {
        let words = block.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words.map(f64::from_bits).collect::<Vec<_>>()
    });
    let random = random.filter(|double| *double != 0.0 && double.is_finite());
    listed.into_iter().chain(serial).chain(random)
}

fn canonical(text: &[u8]) -> Result<String, String> {
    let json = Json::parse(text).map_err(|error| error.to_string())?;
    canonicalize(&json).ok_or_else(|| "no canonical form".to_owned())
}

const SECTION_3_2_2: &str = r#"{
    "numbers": [333333333.33333329, 1E30, 4.50,
                2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
    "literals": [null, true, false]
}"#;

const SECTION_3_2_4: &str = "
    7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72
    75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72 73 22 3a
    5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31
    65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37
    5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30
    30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d";

const SECTION_3_2_3: &str = r#"{
    "\u20ac": "Euro Sign",
    "\r": "Carriage Return",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One",
    "\ud83d\ude00": "Emoji: Grinning Face",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis"
}"#;

const SECTION_3_2_3_ORDER: [&str; 7] = [
    "Carriage Return",
    "One",
    "Control",
    "Latin Small Letter O With Diaeresis",
    "Euro Sign",
    "Emoji: Grinning Face",
    "Hebrew Letter Dalet With Dagesh",
];

const APPENDIX_B: [(u64, &str); 24] = [
    (0x0000000000000000, "0"),
    (0x8000000000000000, "0"),
    (0x0000000000000001, "5e-324"),
    (0x8000000000000001, "-5e-324"),
    (0x7fefffffffffffff, "1.7976931348623157e+308"),
    (0xffefffffffffffff, "-1.7976931348623157e+308"),
    (0x4340000000000000, "9007199254740992"),
    (0xc340000000000000, "-9007199254740992"),
    (0x4430000000000000, "295147905179352830000"),
    (0x44b52d02c7e14af5, "9.999999999999997e+22"),
    (0x44b52d02c7e14af6, "1e+23"),
    (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
    (0x444b1ae4d6e2ef4e, "999999999999999700000"),
    (0x444b1ae4d6e2ef4f, "999999999999999900000"),
    (0x444b1ae4d6e2ef50, "1e+21"),
    (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
    (0x3eb0c6f7a0b5ed8d, "0.000001"),
    (0x41b3de4355555553, "333333333.3333332"),
    (0x41b3de4355555554, "333333333.33333325"),
    (0x41b3de4355555555, "333333333.3333333"),
    (0x41b3de4355555556, "333333333.3333334"),
    (0x41b3de4355555557, "333333333.33333343"),
    (0xbecbf647612f3696, "-0.0000033333333333333333"),
    (0x43143ff3c1cb0959, "1424953923781206.2"),
];

const APPENDIX_B_ERRORS: [(u64, &str); 2] = [(0x7fffffffffffffff, "NaN"), (0x7ff0000000000000, "Infinity")];
