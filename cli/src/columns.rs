//! Text in columns.

use std::io::{self, Write};

/// Prints rows, the first of which may be a heading. Each column is as wide as its widest cell.
pub(crate) fn print<const N: usize>(rows: &[[String; N]], out: &mut impl Write) -> io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["ID", "NAME", "Y"], ["a", "long é", "x"], ["bcd", "", ""]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        print(&rows, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID   NAME    Y\na    long é  x\nbcd\n");
    }
}
