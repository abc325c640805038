//! A result as files: `NAME/result.json`, a CSV a table, an SVG and a PNG a plot, a page; and the index
//! of all that are there.
//!
//! Crash: each file is written beside its name and then renamed, `result.json` last: a folder with a
//! whole `result.json` has everything it names.

use crate::experiments::ALL;
use crate::page;
use crate::result::ExperimentResult;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_plan::drawing;
use tierstone_plan::output::{csv_of, put};

/// Writes `result` into a folder of its name below `out`; files of an earlier run are replaced.
///
/// # Errors
/// When a file cannot be written or a plot cannot be drawn.
pub fn write(result: &ExperimentResult, out: &Path) -> Result<()> {
    let folder = out.join(&result.name);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Error::from(error).context(&format!("cannot make {}", folder.display())))?;
    for table in &result.tables {
        put(&folder, &format!("{}.csv", table.name), &csv_of(table)?)?;
    }
    for plot in &result.plots {
        put(&folder, &format!("{}.svg", plot.name), drawing::svg(plot)?.as_bytes())?;
        put(&folder, &format!("{}.png", plot.name), &drawing::png(plot)?)?;
    }
    put(&folder, "README.md", page::page(result).as_bytes())?;
    let json = serde_json::to_vec_pretty(result)
        .map_err(|error| Error::new(ErrorKind::Unsupported, format!("the result is no JSON: {error}")))?;
    put(&folder, "result.json", &json)
}

/// Writes `out/README.md`: what was run, and what came of it. Results that earlier runs left below `out` are in it too, behind
/// each other in the order of the experiments; one of `results` stands for those of its name.
///
/// # Errors
/// When `out` cannot be looked at or the file cannot be written.
pub fn write_index(results: &[ExperimentResult], out: &Path) -> Result<()> {
    let (mut all, mut unread) = (results.to_vec(), Vec::new());
    let looking = |error| Error::from(error).context(&format!("cannot look at {}", out.display()));
    for folder in std::fs::read_dir(out).map_err(looking)? {
        let folder = folder.map_err(looking)?;
        let (file, name) = (folder.path().join("result.json"), folder.file_name());
        let is_given = |name: &str| results.iter().any(|result| result.name == name);
        let Some(name) = name.to_str().filter(|name| !is_given(name) && file.is_file()) else { continue };
        match read(&file) {
            // What lies in a folder of another name was put there by hand: the page would not be found.
            Ok(result) if result.name == name => all.push(result),
            _ => unread.push(name.to_owned()),
        }
    }
    let place = |result: &ExperimentResult| ALL.iter().position(|experiment| experiment.name == result.name);
    all.sort_by_key(|result| (place(result).unwrap_or(usize::MAX), result.name.clone()));
    unread.sort();
    put(out, "README.md", page::index(&all, &unread).as_bytes())
}

/// Reads a result back.
///
/// # Errors
/// `Incompatible` for another version of the format, `InvalidInput` for what is no result.
pub fn read(file: &Path) -> Result<ExperimentResult> {
    let name = file.display();
    let bytes =
        std::fs::read(file).map_err(|error| Error::from(error).context(&format!("cannot read {name}")))?;
    let result: ExperimentResult = serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{name} is no result: {error}")))?;
    if result.format != crate::result::FORMAT {
        let message =
            format!("{name} has format {}, this program reads {}", result.format, crate::result::FORMAT);
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    Ok(result)
}

#[cfg(test)]
#[path = "output_test.rs"]
mod output_test;
