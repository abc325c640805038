use super::source::{Csv, Entry, Faulty, Ndjson, Place, Tree};
use super::*;

type Found = std::result::Result<(u64, String, String), (u64, String)>;

fn found(source: impl Iterator<Item = std::result::Result<Entry, Faulty>>) -> Vec<Found> {
    let line = |place: Place| match place {
        Place::Line(line) => line,
        Place::File(_) => 0,
    };
    source
        .map(|entry| match entry {
            Ok(Entry { place, key, value }) => {
                Ok((line(place), String::from_utf8(key).unwrap(), String::from_utf8(value).unwrap()))
            }
            Err(Faulty::Entry(place, message)) => Err((line(place), message)),
            Err(Faulty::Source(error)) => Err((u64::MAX, error.to_string())),
        })
        .collect()
}

fn good(line: u64, key: &str, value: &str) -> Found {
    Ok((line, key.to_owned(), value.to_owned()))
}

#[test]
fn values_of_ndjson_are_texts_or_json_as_written() {
    let text = concat!(
        "{\"key\":\"a\",\"value\":\"x\\ny\"}\n",
        "\n",
        "{\"other\":1,\"value\":{\"b\": 1.50, \"a\":[12345678901234567890123]},\"key\":7}\r\n",
        "{\"key\":\"n\",\"value\":null}",
    );
    assert_eq!(
        found(Ndjson::new(text.as_bytes(), "key", "value")),
        [
            good(1, "a", "x\ny"),
            good(3, "7", "{\"b\": 1.50, \"a\":[12345678901234567890123]}"),
            good(4, "n", "null")
        ]
    );
    assert_eq!(found(Ndjson::new("{\"id\":\"k\",\"v\":true}".as_bytes(), "id", "v")), [good(1, "k", "true")]);
}

#[test]
fn a_bad_line_of_ndjson_is_told_and_the_next_is_read() {
    let text =
        "{\"key\":\n{\"key\":\"a\"}\n{\"key\":{},\"value\":1}\n[1]\n\u{0}\n{\"key\":\"b\",\"value\":\"c\"}\n";
    let found = found(Ndjson::new(text.as_bytes(), "key", "value"));
    let bad: Vec<u64> =
        found.iter().filter_map(|entry| entry.as_ref().err()).map(|(line, _)| *line).collect();
    assert_eq!(bad, [1, 2, 3, 4, 5]);
    assert!(found[1].as_ref().unwrap_err().1.contains("no field 'value'"));
    assert_eq!(found[5], good(6, "b", "c"));
}

#[test]
fn rows_of_csv_become_columns_or_json() {
    let text = "id,name,note\n1,\"a, b\",\"two\nlines\"\n2,c,\"q\"\"q\"\n";
    let rows = found(Csv::new(text.as_bytes(), b',', (None, None)).unwrap());
    assert_eq!(
        rows,
        [
            good(2, "1", "{\"id\":\"1\",\"name\":\"a, b\",\"note\":\"two\\nlines\"}"),
            good(4, "2", "{\"id\":\"2\",\"name\":\"c\",\"note\":\"q\\\"q\"}")
        ]
    );
    let columns = found(Csv::new(text.as_bytes(), b',', (Some("name"), Some("id"))).unwrap());
    assert_eq!(columns, [good(2, "a, b", "1"), good(4, "c", "2")]);
    let refused = Csv::new(text.as_bytes(), b',', (Some("nome"), None)).unwrap_err();
    assert!(refused.message().contains("id, name, note"), "{refused}");
}

#[test]
fn a_bad_row_of_csv_is_told_and_the_next_is_read() {
    let rows = found(Csv::new("k\tv\n1\n2\t3\t4\n5\t6\n".as_bytes(), b'\t', (None, Some("v"))).unwrap());
    assert_eq!(rows[2], good(4, "5", "6"));
    let bad: Vec<u64> = rows.iter().filter_map(|entry| entry.as_ref().err()).map(|(line, _)| *line).collect();
    assert_eq!(bad, [2, 3]);
}

#[test]
fn a_quote_that_is_never_closed_does_not_fill_memory() {
    use std::io::Read;
    let endless = "k,v\n\"".as_bytes().chain(std::io::repeat(b'x').take(200 << 20));
    let rows = found(Csv::new(endless, b',', (None, None)).unwrap());
    assert_eq!(rows.len(), 1);
    assert!(rows[0].as_ref().unwrap_err().1.contains("64 MiB"), "{rows:?}");
}

#[test]
fn a_tree_gives_paths_below_its_root() {
    let root = std::env::temp_dir().join(format!("tierstone-load-{}", std::process::id()));
    std::fs::create_dir_all(root.join("b")).unwrap();
    std::fs::write(root.join("b/c"), "two").unwrap();
    std::fs::write(root.join("a"), "one").unwrap();
    std::os::unix::fs::symlink("a", root.join("link")).unwrap();
    let mut tree = Tree::new(&root);
    let entries = found(&mut tree);
    let skipped = source::Source::skipped(&tree);
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(entries, [good(0, "a", "one"), good(0, "b/c", "two")]);
    assert_eq!(skipped, 1);
}
