//! The names of a query, in every reading that a service might have.
//!
//! Parsers disagree about names with other characters than letters, digits, `_` and `-`:
//!
//! | parser | reads | as |
//! |---|---|---|
//! | PHP | `a.b`, `a b`, `a[b` | `a_b` |
//! | PHP, Rails, the `qs` of Node (Express 4) | `a[b]`, `a[]` | `a`, an object or array |
//! | `qs`, Rack 1 | `[a]` | `a` |
//! | `qs` with `allowDots`, Spring, ASP.NET | `a.b` | a part `b` of `a` |
//! | ASP.NET Core, if an action's parameter is named `a` | `a.b`, `a[b]` | `b` |
//! | Spring's data binding | `_a`, `!a` | `a`, if that is not sent |
//! | OData | `$a` | `a` |
//! | ASP.NET, ColdFusion | `A` | `a` |
//! | `qs` | `a=b]=c` | `a=b]` with the value `c` |
//!
//! So a name consists of parts, separated by every character except letters, digits, `-` and inner `_`. A service may
//! confuse a name with any other that folds to one of its parts, or to several consecutive parts.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::names::{Folds, NameId, Names, work};
use super::target;

/// Names of query members in the configuration.
#[derive(Clone, Debug, Default)]
pub struct QueryIndex {
    names: Names,
    /// The folds of the names, and of the objects that contain them: for `filter[a]`, that is `filter`. Each fold has
    /// one id, even if several names have it.
    folds: Folds,
    fold_texts: Names,
    of_names: HashMap<NameId, NameFolds>,
}

/// The folds of a name.
#[derive(Clone, Debug)]
struct NameFolds {
    whole: NameId,
    containers: Box<[NameId]>,
}

/// The query members that the configuration uses. Reading them costs the same for any number of names.
#[derive(Clone, Debug, Default)]
pub struct QueryMembers<'r> {
    /// The members with exactly a name.
    exact: BTreeMap<NameId, Exact<'r>>,
    /// How often a member, or a part of its name, has this fold.
    folds: BTreeMap<NameId, usize>,
    /// The folds of whole names.
    wholes: BTreeSet<NameId>,
}

/// The members with exactly one name.
#[derive(Clone, Debug)]
struct Exact<'r> {
    first: EncodedValue<'r>,
    count: usize,
}

/// The members of a query for one name.
#[derive(Clone, Copy, Debug)]
pub struct Found<'m, 'r> {
    /// The value of the first member with exactly this name.
    pub value: Option<&'m EncodedValue<'r>>,
    /// Whether there is another member with exactly this name.
    pub is_repeated: bool,
    /// Whether there is a member that some service confuses with this name.
    pub is_spelled_otherwise: bool,
    /// Whether some service drops the members of this name because of another member: a text in the place of the object
    /// that contains them.
    pub is_in_doubt: bool,
}

/// A member's value, decoded once, on first use.
#[derive(Clone, Debug)]
pub struct EncodedValue<'r> {
    encoded: &'r str,
    decoded: OnceCell<Option<Decoded<'r>>>,
}

#[derive(Clone, Debug)]
struct Decoded<'r> {
    text: Cow<'r, str>,
    /// Some parsers read a `+` as a space.
    has_plus: bool,
}

impl QueryIndex {
    /// Adds a name, if it is new.
    pub fn add(&mut self, name: &str) -> NameId {
        let (id, is_new) = self.names.intern(name);
        if is_new {
            let mut parts = NameParts::default();
            parts.read(name);
            let folds = NameFolds {
                whole: self.add_fold(parts.whole()),
                containers: parts.beginnings().map(|container| self.add_fold(container)).collect(),
            };
            self.of_names.insert(id, folds);
        }
        id
    }

    fn add_fold(&mut self, fold: &str) -> NameId {
        let (id, _) = self.fold_texts.intern(fold);
        self.folds.add(fold.as_bytes(), id);
        id
    }

    /// Reads a query once. The cost depends on the query's bytes, not on the number of names.
    ///
    /// `None` if the names are ambiguous, so that any member could hide another: some parsers read `;` as `&`, read `+`
    /// in a name as a space, decode twice, or cut a name at a NUL.
    pub fn read<'r>(&self, query: &'r [u8]) -> Option<QueryMembers<'r>> {
        work::count(query.len());
        if query.contains(&b';') || !query.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        let mut found = QueryMembers::default();
        let mut parts = NameParts::default();
        let members = std::str::from_utf8(query).ok()?.split('&');
        for (index, member) in members.filter(|member| !member.is_empty()).enumerate() {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            if index >= MAX_QUERY_MEMBERS || name.contains('+') {
                return None;
            }
            let name = target::decode(name).ok()?;
            if target::has_escape(&name) || !parts.read(&name) {
                return None;
            }
            self.note(&name, value, &parts, &mut found);
        }
        Some(found)
    }

    fn note<'r>(&self, name: &str, value: &'r str, parts: &NameParts, found: &mut QueryMembers<'r>) {
        for fold in parts.runs().flat_map(|run| self.folds.find(run.as_bytes())) {
            work::count(1);
            let count = found.folds.entry(*fold).or_default();
            *count = count.saturating_add(1);
        }
        found.wholes.extend(self.folds.find(parts.whole().as_bytes()));
        if let Some(id) = self.names.id(name)
            && !may_belong_to_the_name(value)
        {
            let exact = found.exact.entry(id).or_insert_with(|| Exact {
                first: EncodedValue::new(value),
                count: 0,
            });
            exact.count = exact.count.saturating_add(1);
        }
    }

    /// The members of the name; `None` if no reading finds any.
    pub fn find<'m, 'r>(&self, members: &'m QueryMembers<'r>, id: NameId) -> Option<Found<'m, 'r>> {
        let folds = self.of_names.get(&id)?;
        let exact = members.exact.get(&id);
        let exactly = exact.map_or(0, |exact| exact.count);
        let of_this_fold = members.folds.get(&folds.whole).copied().unwrap_or(0);
        let found = Found {
            value: exact.map(|exact| &exact.first),
            is_repeated: exactly > 1,
            is_spelled_otherwise: of_this_fold > exactly,
            is_in_doubt: folds.containers.iter().any(|fold| members.wholes.contains(fold)),
        };
        (of_this_fold > 0 || found.is_in_doubt).then_some(found)
    }
}

impl<'r> EncodedValue<'r> {
    fn new(encoded: &'r str) -> Self {
        Self {
            encoded,
            decoded: OnceCell::new(),
        }
    }

    /// The value, percent-decoded once; `None` if it is ambiguous.
    pub fn decoded(&self) -> Option<&str> {
        let decoded = self.decode()?;
        (!decoded.has_plus).then_some(&decoded.text)
    }

    /// Whether the value can be percent-decoded. Go and Tomcat drop a member whose value cannot.
    pub fn can_be_decoded(&self) -> bool {
        self.decode().is_some()
    }

    fn decode(&self) -> Option<&Decoded<'r>> {
        let decode = || {
            work::count(self.encoded.len());
            let text = target::decode(self.encoded).ok()?;
            let has_plus = self.encoded.contains('+');
            Some(Decoded { text, has_plus })
        };
        self.decoded.get_or_init(decode).as_ref()
    }
}

/// Whether the `qs` of Node reads the beginning of a value as a part of the name: it splits a member at the first `]=`.
pub fn may_belong_to_the_name(value: &str) -> bool {
    // Few values have a second `=`.
    let mut equals = value.match_indices('=');
    equals.any(|(at, _)| {
        let before = value.get(..at).unwrap_or_default();
        before.ends_with(']') || before.ends_with("%5D") || before.ends_with("%5d")
    })
}

/// Whether some service confuses the two configured names.
pub fn are_alike(one: &str, other: &str) -> bool {
    let [mut first, mut second] = [NameParts::default(), NameParts::default()];
    first.read(one);
    second.read(other);
    first.whole() == second.whole()
        || first.beginnings().any(|beginning| beginning == second.whole())
        || second.beginnings().any(|beginning| beginning == first.whole())
}

/// Whether a name has more parts than the filter reads in a query.
pub fn has_too_many_parts(name: &str) -> bool {
    !NameParts::default().read(name)
}

/// A name's fold, and the positions of its parts.
#[derive(Clone, Debug, Default)]
struct NameParts {
    /// In lower case, with `_` as the separator of parts.
    fold: String,
    parts: Vec<Range<usize>>,
}

impl NameParts {
    /// Reads another name. `false` if it has more than [`MAX_PARTS`].
    fn read(&mut self, name: &str) -> bool {
        work::count(name.len());
        self.fold.clear();
        self.parts.clear();
        let mut start = None;
        // The end of the last character other than `_`: leading and trailing ones do not belong to a part.
        let mut end = 0;
        for character in name.chars() {
            if divides(character) {
                self.parts.extend(start.take().map(|start| start..end));
                self.fold.push('_');
                continue;
            }
            if character != '_' {
                start.get_or_insert(self.fold.len());
            }
            // Some services compare in upper case, and some in lower case.
            if character.is_ascii() {
                self.fold.push(character.to_ascii_lowercase());
            } else {
                let folded = character.to_uppercase().flat_map(char::to_lowercase);
                self.fold.extend(folded);
            }
            if character != '_' {
                end = self.fold.len();
            }
        }
        self.parts.extend(start.map(|start| start..end));
        self.parts.len() <= MAX_PARTS
    }

    /// The fold of the name as a whole; empty if it has no part.
    fn whole(&self) -> &str {
        match (self.parts.first(), self.parts.last()) {
            (Some(first), Some(last)) => self.text(first.start..last.end),
            _ => "",
        }
    }

    /// The folds of all runs of consecutive parts. Also of the empty run, unless the name is exactly one part.
    fn runs(&self) -> impl Iterator<Item = &str> {
        let runs = self.parts.iter().enumerate().flat_map(|(index, first)| {
            let rest = self.parts.get(index..).unwrap_or_default();
            rest.iter().map(|last| self.text(first.start..last.end))
        });
        let is_one_part = self.parts.first() == Some(&(0..self.fold.len()));
        runs.chain((!is_one_part).then_some(""))
    }

    /// The folds of the proper prefixes of the name.
    fn beginnings(&self) -> impl Iterator<Item = &str> {
        let first = self.parts.first().map_or(0, |first| first.start);
        let inner = self.parts.split_last().map(|(_, inner)| inner).unwrap_or_default();
        inner.iter().map(move |last| self.text(first..last.end))
    }

    fn text(&self, range: Range<usize>) -> &str {
        self.fold.get(range).unwrap_or_default()
    }
}

fn divides(character: char) -> bool {
    !(character.is_alphanumeric() || matches!(character, '_' | '-'))
}

/// Parts of one name, as in `a[b][c]`. The `qs` of Node reads six.
pub const MAX_PARTS: usize = 8;

/// Members of one query string, including ignored ones.
pub const MAX_QUERY_MEMBERS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_name_counts_and_others_are_noted() {
        let mut index = QueryIndex::default();
        let [a, b, c, d] = ["a", "b", "c[x]", "d"].map(|name| index.add(name));
        let query = b"a=%31&b=1&%62=2&B=3&c[x]=1&c=2&other=4";
        let members = index.read(query).unwrap();
        let found = |id| index.find(&members, id).unwrap();
        assert_eq!(found(a).value.as_ref().unwrap().decoded(), Some("1"));
        assert!(!found(a).is_repeated && !found(a).is_spelled_otherwise && !found(a).is_in_doubt);
        assert!(found(b).is_repeated && found(b).is_spelled_otherwise);
        assert!(found(c).value.is_some() && found(c).is_in_doubt);
        assert!(index.find(&members, d).is_none());
    }

    #[test]
    fn conflicting_names_are_alike() {
        for (one, other) in [
            ("a", "A"),
            ("a", "a[]"),
            ("a", "a[x]"),
            ("a", "[a]"),
            ("a_b", "a.b"),
            ("a[b]", "a.b"),
            ("a.", "a_"),
        ] {
            assert!(are_alike(one, other) && are_alike(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("a", "b"),
            ("a", "a_b"),
            ("a", "a-b"),
            ("page[size]", "page[number]"),
            ("page[size]", "size"),
            ("a-b", "a_b"),
        ] {
            assert!(!are_alike(one, other) && !are_alike(other, one), "{one} {other}");
        }
    }

    /// Compares the models below with the real parsers: PHP 8.2's `parse_str`, and `qs` 6.13 and 6.14.
    #[test]
    fn the_models_agree_with_the_parsers() {
        let cases = [
            ("full", Some("full"), "full", "full"),
            ("[full]", None, "full", "full"),
            ("full[export", Some("full_export"), "full[export", "full[export"),
            ("full.export", Some("full_export"), "full.export", "full"),
            (" full", Some("full"), " full", " full"),
            ("full ", Some("full_"), "full ", "full "),
            ("full]", Some("full]"), "full]", "full]"),
            ("[[full]]", None, "[", "["),
            ("full[]", Some("full"), "full", "full"),
            ("a[b.c", Some("a_b_c"), "a[b.c", "a[b"),
            ("a[b c[d", Some("a_b_c_d"), "a[b c[d", "a[b c[d"),
            (".full", Some("_full"), ".full", "full"),
            ("..full", Some("__full"), "..full", "."),
            ("a.b[c]", Some("a_b"), "a.b", "a"),
            ("[ full]", None, " full", " full"),
            ("a[b[c]", Some("a"), "a[b", "a[b"),
            ("full[x]y", Some("full"), "full", "full"),
            ("[full", None, "[full", "[full"),
        ];
        for (name, by_php, by_qs, by_qs_with_dots) in cases {
            assert_eq!(php(name).as_deref(), by_php, "{name}");
            assert_eq!(qs(name), by_qs, "{name}");
            assert_eq!(qs(&with_dots(name)), by_qs_with_dots, "{name}");
        }
    }

    /// If the filter reads that a query lacks a name, no parser finds it either.
    #[test]
    fn no_parser_finds_a_name_that_the_filter_does_not() {
        let asked = ["a", "b", "a_b", "a.b", "b_", "_a", "a[b]", "a-b", "A", "_", "."];
        let mut index = QueryIndex::default();
        let asked = asked.map(|name| (name, index.add(name)));
        let (mut random, mut taken, mut none) = (1_u64, 0, 0);
        for _ in 0..50_000 {
            let mut name = String::new();
            for _ in 0..1 + below(&mut random, 7) {
                name.push(['a', 'b', 'A', '[', ']', '.', ' ', '_', '-', '!', '$'][below(&mut random, 11)]);
            }
            let query = format!("{}=1", name.replace('[', "%5B").replace(']', "%5d").replace(' ', "%20"));
            let Some(members) = index.read(query.as_bytes()) else {
                continue;
            };
            let readings = [
                php(&name),
                php_5(&name),
                Some(qs(&name)),
                Some(qs(&with_dots(&name))),
                rack_1(&name),
                Some(name.to_uppercase()),
                name.strip_prefix(['!', '_', '$']).map(str::to_owned),
                name.rsplit('.').next().map(str::to_owned),
            ];
            for (asked, id) in asked {
                let is_taken = readings.iter().flatten().any(|reading| reading == asked);
                assert!(
                    !is_taken || index.find(&members, id).is_some(),
                    "{name:?} is {asked:?} to some"
                );
                taken += usize::from(is_taken && name != asked);
                none += usize::from(index.find(&members, id).is_none());
            }
        }
        assert!(taken > 5_000 && none > 100_000, "{taken} {none}");
    }

    #[test]
    fn the_cost_of_a_query_does_not_grow_with_the_number_of_names() {
        type Name = fn(usize) -> String;
        let cases: [(&str, Name); 3] = [
            ("n12[x]=%61&", |number| format!("n{number}")),
            // All in one object, with one member each.
            ("f&", |number| format!("f[n{number}]")),
            ("f_a&", |number| format!("f{}a", "._".repeat(1 + number % 7))),
        ];
        for (member, name) in cases {
            let query = member.repeat(MAX_QUERY_MEMBERS);
            let cost_with = |names| {
                let mut index = QueryIndex::default();
                (0..names).for_each(|number| _ = index.add(&name(number)));
                work::take();
                let members = index.read(query.as_bytes()).unwrap();
                let kept = members.exact.len() + members.folds.len() + members.wholes.len();
                assert!(kept <= 3 * MAX_QUERY_MEMBERS, "{member} {kept}");
                work::take()
            };
            let (with_100, with_10_000) = (cost_with(100), cost_with(10_000));
            assert!(with_10_000 <= 4 * query.len(), "{member} {with_10_000}");
            // Names of more lengths cause more look-ups.
            assert!(
                with_10_000 - with_100 <= 3 * MAX_QUERY_MEMBERS,
                "{member} {with_100} {with_10_000}"
            );
        }
    }

    // === Parsers, from what is written about them ===

    /// PHP 8: the name of the variable; `None` if there is none. `php_register_variable_ex` skips blanks, ends the name
    /// at the first `[` that has a `]`, and writes `_` for blanks, dots and any other `[`.
    fn php(name: &str) -> Option<String> {
        let name = name.trim_start_matches(' ');
        let name = match name.split_once('[') {
            Some((variable, rest)) if rest.contains(']') || variable.is_empty() => variable,
            _ => name,
        };
        (!name.is_empty()).then(|| name.replace([' ', '.', '['], "_"))
    }

    /// PHP 5 and 7: the text after an unclosed `[` is unchanged.
    fn php_5(name: &str) -> Option<String> {
        let name = name.trim_start_matches(' ');
        let (variable, rest) = name.split_once('[').unwrap_or((name, ""));
        let is_closed = rest.contains(']') || variable.is_empty() || rest.is_empty();
        let variable = variable.replace([' ', '.'], "_");
        let whole = match is_closed {
            true => variable,
            false => format!("{variable}_{rest}"),
        };
        (!whole.is_empty()).then_some(whole)
    }

    /// The `qs` of Node: the text before the first `[…]` without inner brackets, or, if that is empty, the text in it.
    fn qs(name: &str) -> String {
        let Some((start, end)) = first_brackets(name) else {
            return name.to_owned();
        };
        if start == 0 {
            name[1..end].to_owned()
        } else {
            name[..start].to_owned()
        }
    }

    fn first_brackets(name: &str) -> Option<(usize, usize)> {
        let mut start = None;
        for (at, character) in name.char_indices() {
            match (character, start) {
                ('[', _) => start = Some(at),
                (']', Some(start)) => return Some((start, at)),
                _ => {}
            }
        }
        None
    }

    /// The first step of `qs` with `allowDots`: `.b` becomes `[b]`.
    fn with_dots(name: &str) -> String {
        let mut bracketed = String::new();
        let mut rest = name;
        while let Some((before, after)) = rest.split_once('.') {
            bracketed.push_str(before);
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (part, left) = after.split_at(end);
            bracketed += &if part.is_empty() {
                ".".to_owned()
            } else {
                format!("[{part}]")
            };
            rest = left;
        }
        bracketed + rest
    }

    /// Rack 1, before Rails 5: skips leading brackets, and ends the name at the next one.
    fn rack_1(name: &str) -> Option<String> {
        let name = name.trim_start_matches(['[', ']']);
        name.split(['[', ']']).next().map(str::to_owned)
    }

    /// SplitMix64.
    fn below(state: &mut u64, bound: u64) -> usize {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound) as usize
    }
}
