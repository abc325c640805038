//! Over a production region the primitives are the machine code of the same steps written without the trait: what
//! tracing and tests need costs nothing where they are not used.
//!
//! The program `production_code` is compiled as for release (its dependencies stay as they are), without the features of
//! tests, so that rules which tests break are what they are in production. The functions `trait_…` and `plain_…` of its
//! assembly are compared. Where it cannot be compiled the test says so.
//!
//! The program is compiled with incremental state, because the compiler then leaves a pass out that takes small functions
//! into their callers before it knows the types of a generic function: with it the steps by hand, whose types are known,
//! leave that pass in another form, and the way out with an error moves the error through other registers. The way
//! without an error is the same instructions with that pass too (compared by eye, rustc 1.95).

#[path = "../src/bin/production_code.rs"]
mod both_ways;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// The assembly of the program, or why there is none.
fn assembly() -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").ok_or("there is no cargo around this test")?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = target.join(format!("production_code-{}.s", std::process::id()));
    let emit = format!("--emit=asm={}", file.display());
    let incremental = format!("-Cincremental={}", target.join("production_code").display());
    let arguments =
        ["rustc", "--offline", "--quiet", "--features=production-code", "--bin=production_code", "--"];
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .args(["-Copt-level=3", "-Ccodegen-units=1", "-Cdebug-assertions=off", "-Coverflow-checks=off"])
        .args([&incremental, &emit])
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo rustc failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(&file);
    Ok(text)
}

/// The functions of the assembly by their symbols: their instructions. What a function is an alias of stands for it.
fn functions(assembly: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut aliases = Vec::new();
    let mut open: Option<String> = None;
    for line in assembly.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((symbol, other)) = line.strip_prefix(".set").and_then(|pair| pair.split_once(',')) {
            aliases.push((symbol.trim().to_owned(), other.trim().to_owned()));
        } else if let Some(symbol) = line.strip_suffix(':').filter(|symbol| !symbol.starts_with(".L")) {
            open = Some(symbol.to_owned());
        } else if line.starts_with(".size") || line.starts_with(".cfi_endproc") {
            open = None;
        } else if let Some(symbol) = &open
            && (!line.starts_with('.') || line.starts_with(".L"))
        {
            found.entry(symbol.clone()).or_default().push(line.to_owned());
        }
    }
    for (alias, other) in aliases {
        if let Some(body) = found.get(&other).cloned() {
            found.insert(alias, body);
        }
    }
    found
}

/// The last part of a mangled path, without the hash: `publish` of `_ZN…10primitives7publish17h…E`.
fn name(symbol: &str) -> Option<String> {
    let mut rest = symbol.strip_prefix("_ZN")?;
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let len: usize = rest[..digits].parse().ok()?;
        parts.push(rest.get(digits..digits + len)?);
        rest = &rest[digits + len..];
    }
    parts.pop().filter(|hash| hash.len() == 17 && hash.starts_with('h'))?;
    parts.pop().map(str::to_owned)
}

/// The code of the function `wanted` of the program; `None` when it is not there by itself. Where all that it does is to
/// go to another function, that one's.
fn code(functions: &BTreeMap<String, Vec<String>>, wanted: &str) -> Option<Vec<String>> {
    let own =
        |symbol: &&String| symbol.contains("production_code") && name(symbol).as_deref() == Some(wanted);
    let mut body = &functions[functions.keys().find(own)?];
    while let [only] = body.iter().filter(|line| !line.ends_with(':')).collect::<Vec<_>>().as_slice() {
        let gone_to = only.strip_prefix("jmp").or_else(|| only.strip_prefix("b"));
        match gone_to.and_then(|symbol| functions.get(symbol.trim())) {
            Some(other) => body = other,
            None => break,
        }
    }
    Some(normalised(body))
}

/// Functions that are called go by their names, so that a primitive and its copy by hand are the same.
fn normalised(body: &[String]) -> Vec<String> {
    let called = |line: &String| {
        let Some(at) = line.find("_ZN") else { return line.clone() };
        let end = line[at..].find(|c: char| !c.is_alphanumeric() && !"_$.".contains(c));
        let symbol = &line[at..end.map_or(line.len(), |end| at + end)];
        name(symbol).map_or_else(|| line.clone(), |name| line.replace(symbol, &name))
    };
    // A label that nothing goes to holds a place for the debugger, as its line numbers do.
    let lines: Vec<String> = body.iter().map(called).collect();
    let is_used = |label: &str| lines.iter().any(|line| !line.starts_with(".L") && line.contains(label));
    let kept = lines.iter().filter(|line| line.strip_suffix(':').is_none_or(is_used)).cloned();
    numbered(&kept.collect::<Vec<_>>())
}

/// Local labels, and constants such as a line number of a panic, get the numbers of their first use.
fn numbered(body: &[String]) -> Vec<String> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut renamed = Vec::new();
    for line in body {
        let mut text = String::new();
        let mut rest = line.as_str();
        while let Some(at) = rest.find(".L") {
            let (before, after) = rest.split_at(at);
            let end = after[2..]
                .find(|c: char| !c.is_alphanumeric() && !"_.".contains(c))
                .map_or(after.len(), |end| end + 2);
            let next = numbers.len();
            let number = *numbers.entry(after[..end].to_owned()).or_insert(next);
            text += &format!("{before}label{number}");
            rest = &after[end..];
        }
        renamed.push(text + rest);
    }
    renamed
}

#[test]
fn primitives_over_a_production_region_are_the_code_of_the_same_steps_by_hand() {
    let assembly = match assembly() {
        Ok(assembly) => assembly,
        Err(why) => {
            println!("SKIP: the machine code of production is not compared: {why}");
            return;
        }
    };
    let functions = functions(&assembly);
    for of in ["publish", "persist", "append_streaming", "persist_wal", "persist_page"] {
        let both = ["trait", "plain"].map(|way| code(&functions, &format!("{way}_{of}")));
        let lines =
            both.iter().flatten().map(Vec::len).max().unwrap_or_else(|| panic!("no function of {of}"));
        // Neither may be inlined, and `main` calls both: where one is missing the compiler has found them equal itself.
        if let [Some(by_trait), Some(plain)] = &both {
            assert_eq!(by_trait, plain, "{of}");
        }
        println!("{of}: {lines} lines of assembly, the same by the trait and by hand");
        // Functions that are called have equal names; those of the log must be equal themselves, where they are called.
        for called in ["put", "place"] {
            let bodies: BTreeSet<_> = functions
                .iter()
                .filter(|(symbol, _)| name(symbol).as_deref() == Some(called))
                .map(|(_, body)| normalised(body))
                .collect();
            assert!(bodies.len() < 2, "{called}: {bodies:?}");
        }
    }
    // What records is other code, which neither the compiler nor the comparison takes for the same.
    let recording = code(&functions, "counted_publish");
    assert!(recording.is_some_and(|code| Some(code) != self::code(&functions, "plain_publish")));
}

#[test]
fn primitives_over_a_production_region_leave_the_bytes_of_the_same_steps_by_hand() {
    if let Err(error) = both_ways::main() {
        panic!("{error}");
    }
}
