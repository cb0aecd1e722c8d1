//! The filter's module: its exports, and copies with instructions inserted.
//!
//! The product has no way to cause a trap, and needs none for tests. Instead, this reads the built module (WebAssembly
//! 1.0, binary format), and inserts instructions at the start of one function that Envoy calls. The rest of the module
//! is unchanged.

use crate::Failure;

/// The names of the module's exports, sorted.
///
/// # Errors
/// If it is not a module.
pub fn exports(module: &[u8]) -> Result<Vec<String>, Failure> {
    let mut names = exported_names(module).ok_or_else(|| Failure::new("the module cannot be read"))?;
    names.sort_unstable();
    Ok(names)
}

/// The module with `instructions` inserted at the start of the function exported as `export`.
///
/// # Errors
/// If it is not a module, or exports no such function.
pub fn with_instructions(module: &[u8], export: &str, instructions: &[u8]) -> Result<Vec<u8>, Failure> {
    rewrite(module, export, instructions)
        .ok_or_else(|| Failure::new(format!("the module cannot be read, or exports no function {export}")))
}

/// Traps if the function's third parameter is 0. In `proxy_on_request_headers`, that parameter says whether the headers
/// end the request, so every request with a body traps.
///
/// `local.get 2`, `i32.eqz`, `if`, `unreachable`, `end`
pub const TRAP_IF_THIRD_IS_ZERO: &[u8] = &[0x20, 0x02, 0x45, 0x04, 0x40, 0x00, 0x0b];

/// `unreachable`
pub const TRAP: &[u8] = &[0x00];

fn rewrite(module: &[u8], export: &str, instructions: &[u8]) -> Option<Vec<u8>> {
    let (magic, mut rest) = module.split_at_checked(8)?;
    let mut rewritten = magic.to_vec();
    let (mut imported, mut wanted) = (0, None);
    while let Some((&section, body)) = rest.split_first() {
        let (size, body) = number(body)?;
        let (content, after) = body.split_at_checked(size)?;
        rest = after;
        match section {
            IMPORTS => imported = imported_functions(content)?,
            EXPORTS => wanted = exported_function(content, export)?.checked_sub(imported),
            _ => {}
        }
        let content = match section {
            CODE => with_code(content, wanted?, instructions)?,
            _ => content.to_vec(),
        };
        rewritten.push(section);
        rewritten.extend(encoded(content.len()));
        rewritten.extend(content);
    }
    wanted.map(|_| rewritten)
}

fn exported_names(module: &[u8]) -> Option<Vec<String>> {
    let mut rest = module.get(8..)?;
    while let Some((&section, body)) = rest.split_first() {
        let (size, body) = number(body)?;
        let (content, after) = body.split_at_checked(size)?;
        rest = after;
        if section == EXPORTS {
            let (count, mut content) = number(content)?;
            let mut names = Vec::new();
            for _ in 0..count {
                let (name, after) = text(content)?;
                names.push(String::from_utf8_lossy(name).into_owned());
                content = number(after.get(1..)?)?.1;
            }
            return Some(names);
        }
    }
    None
}

fn imported_functions(section: &[u8]) -> Option<usize> {
    let (count, mut rest) = number(section)?;
    let mut functions = 0;
    for _ in 0..count {
        for _ in ["module", "name"] {
            rest = text(rest)?.1;
        }
        let (kind, after) = rest.split_first()?;
        // Our module imports only functions.
        (*kind == FUNCTION).then_some(())?;
        functions += 1;
        rest = number(after)?.1;
    }
    Some(functions)
}

fn exported_function(section: &[u8], wanted: &str) -> Option<usize> {
    let (count, mut rest) = number(section)?;
    for _ in 0..count {
        let (name, after) = text(rest)?;
        let (kind, after) = after.split_first()?;
        let (index, after) = number(after)?;
        if name == wanted.as_bytes() && *kind == FUNCTION {
            return Some(index);
        }
        rest = after;
    }
    None
}

fn with_code(section: &[u8], wanted: usize, instructions: &[u8]) -> Option<Vec<u8>> {
    let (count, mut rest) = number(section)?;
    let mut rewritten = encoded(count);
    for index in 0..count {
        let (size, body) = number(rest)?;
        let (function, after) = body.split_at_checked(size)?;
        rest = after;
        let function = if index == wanted {
            let code = behind_locals(function)?;
            let (locals, code) = function.split_at_checked(function.len() - code.len())?;
            [locals, instructions, code].concat()
        } else {
            function.to_vec()
        };
        rewritten.extend(encoded(function.len()));
        rewritten.extend(function);
    }
    Some(rewritten)
}

/// A function starts with its local variables: a count for each type.
fn behind_locals(function: &[u8]) -> Option<&[u8]> {
    let (groups, mut rest) = number(function)?;
    for _ in 0..groups {
        rest = number(rest)?.1.split_first()?.1;
    }
    Some(rest)
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(length)
}

/// An unsigned LEB128 number: seven bits a byte, least significant first.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

fn encoded(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
const FUNCTION: u8 = 0;
