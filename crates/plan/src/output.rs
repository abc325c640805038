//! A report as files: `NAME/report.json`, a CSV a table, an SVG and a PNG a plot, and `report.html`, a
//! page that opens without a network.
//!
//! Crash: each file is written beside its name and then renamed, `report.json` last: a folder with a
//! whole `report.json` has everything it names.

use crate::parts::{Cell, Table};
use crate::report::{FORMAT, Report};
use crate::{drawing, html};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};

/// Writes `report` into a folder of its name below `out`, which is made if it is not there; files of an
/// earlier plan are replaced. Returns the folder.
///
/// # Errors
/// When a file cannot be written, a plot cannot be drawn, or a name of the report is no file's name.
pub fn write(report: &Report, out: &Path) -> Result<PathBuf> {
    let folder = out.join(file_name(&report.name)?);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Error::from(error).context(&format!("cannot make {}", folder.display())))?;
    for table in &report.tables {
        put(&folder, &format!("{}.csv", file_name(&table.name)?), &csv_of(table)?)?;
    }
    for plot in &report.plots {
        let name = file_name(&plot.name)?;
        put(&folder, &format!("{name}.svg"), drawing::svg(plot)?.as_bytes())?;
        put(&folder, &format!("{name}.png"), &drawing::png(plot)?)?;
    }
    put(&folder, "report.html", html::page(report)?.as_bytes())?;
    let json = serde_json::to_vec_pretty(report)
        .map_err(|error| Error::new(ErrorKind::Unsupported, format!("the report is no JSON: {error}")))?;
    put(&folder, "report.json", &json)?;
    Ok(folder)
}

/// Reads a report back.
///
/// # Errors
/// `Incompatible` for another version of the format, `InvalidInput` for what is no report.
pub fn read(file: &Path) -> Result<Report> {
    let name = file.display();
    let bytes =
        std::fs::read(file).map_err(|error| Error::from(error).context(&format!("cannot read {name}")))?;
    let report: Report = serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{name} is no report: {error}")))?;
    if report.format != FORMAT {
        let message = format!("{name} has format {}, this program reads {FORMAT}", report.format);
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    Ok(report)
}

/// Names come from plans, never from descriptions; one that leaves the folder would be a mistake here.
fn file_name(name: &str) -> Result<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(plain) {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::Unsupported, format!("'{name}' is no name of a file")))
}

/// Writes `folder/name` beside its name, then renames it.
///
/// # Errors
/// When it cannot be written.
pub fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, beside) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, &path));
    written.map_err(|error| Error::from(error).context(&format!("cannot write {}", path.display())))
}

/// `table` as CSV, numbers in full.
///
/// # Errors
/// `Unsupported` when a row has not as many cells as there are columns.
pub fn csv_of(table: &Table) -> Result<Vec<u8>> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unsupported, format!("{}: {error}", table.name))
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&table.columns).map_err(|error| refused(&error))?;
    for row in &table.rows {
        let cells = row.iter().map(|cell| match cell {
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => text.clone(),
        });
        writer.write_record(cells).map_err(|error| refused(&error))?;
    }
    writer.into_inner().map_err(|error| refused(&error))
}

#[cfg(test)]
#[path = "output_test.rs"]
mod output_test;
