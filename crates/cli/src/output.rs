//! Plain tables and JSON on standard output.

use serde::Serialize;
use std::io::Write;
use tierstone_base::{Error, ErrorKind, Result};

/// Prints `value` as JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("the result is no JSON: {error}")))?;
    print_line(&text)
}

/// Tells people something beside the output, as `format!`. Nobody may be there to read it, or no room for it: what the
/// program was asked to do goes on.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::output::write_aside(format_args!($($words)*))
    };
}

/// One line to the standard error output, if that takes it.
pub fn write_aside(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// Prints one line; a closed pipe ends the output, not the program.
pub fn print_line(line: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Lays rows out in columns; the first row is the head. Numbers are set to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| {
                let is_number = number > 0 && cell.replace(',', "").parse::<f64>().is_ok();
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        if number == 0 {
            let line: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            text.push_str(&line.join("  "));
            text.push('\n');
        }
    }
    text
}
