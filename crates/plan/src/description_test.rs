use super::*;
use crate::quantity::{Money, Power};
use serde::Deserialize;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    title: String,
    place: Option<Place>,
    node: Vec<Node>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    floors: u32,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: String,
    price: Money,
    power: Option<Power>,
}

const TOML: &str = r#"
title = "Two, at most"
[place]
floors = 3
[[node]]
name = "a"
price = "2 k$"
power = "15 W"
[[node]]
name = "b"
price = "5 $"
"#;

const CSV: &str = "\u{feff}[],title,,\n,\"Two, at most\"\n# a remark,,\n,,,\n[place],floors\n,3\n\n\
[[node]],name,price,power\n,a,2 k$,15 W\n,b,5 $,\n";

#[test]
fn toml_and_csv_say_the_same() {
    let toml: Asked = Description::toml("t", TOML).parse().unwrap();
    let csv: Asked = Description::csv("c", CSV).parse().unwrap();
    assert_eq!(toml, csv);
    assert_eq!(toml.node.len(), 2);
}

#[test]
fn an_unknown_field_is_named_with_its_line() {
    let text = TOML.replace("floors", "flors");
    let error = Description::toml("plant.toml", &text).parse::<Asked>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for words in ["plant.toml", "line 4", "flors"] {
        assert!(error.message().contains(words), "{error}");
    }
    let error = Description::csv("plant.csv", &CSV.replace("floors", "flors")).parse::<Asked>().unwrap_err();
    assert!(error.message().contains("unknown field `flors`"), "{error}");
}

#[test]
fn csv_that_is_no_description_is_refused_with_its_line() {
    for (text, words) in [
        (",3", "line 1: values before any table"),
        ("title\n,x", "line 1: 'title' in the first cell"),
        ("[],title\n,a\n,b", "line 3: [] has one row"),
        ("[],title\n,a\n[],title\n,b", "line 4: title is given twice"),
        ("[place],floors\n[],title\n,a", "line 1: the table [place] has no row"),
        ("[],title,,x\n,a", "line 1: column 3 of [] has no name"),
        ("[],title\n,a,b", "line 2: 2 values for 1 columns"),
        ("[],title,title\n,a,b", "line 2: two columns are called title"),
        ("[[]],title\n,a", "names no table"),
        ("[],title\n,\"a", "unknown field"),
        ("[],title\n,a\n[[node]],name,price\n,x,7", "7 has no unit"),
    ] {
        match Description::csv("f", text).parse::<Asked>() {
            Err(error) => {
                assert!(error.message().contains(words) || words == "unknown field", "{text}: {error}")
            }
            Ok(asked) => panic!("{text} was taken for {asked:?}"),
        }
    }
}

#[test]
fn a_field_of_a_csv_error_is_named() {
    let text = "[],title\n,a\n[[node]],name,price,power\n,x,7 $,12\n";
    let error = Description::csv("f", text).parse::<Asked>().unwrap_err();
    assert!(error.message().contains("12 has no unit"), "{error}");
    assert!(error.message().contains("power"), "{error}");
}

#[test]
fn long_texts_and_unknown_endings_are_refused() {
    let long = Description::toml("f", &" ".repeat(LONGEST + 1));
    assert!(long.parse::<Asked>().unwrap_err().message().contains("longer than"));
    let error = Description::read(Path::new("plan.yaml")).unwrap_err();
    assert!(error.message().contains("ends in .toml or .csv"), "{error}");
    assert!(Description::read(Path::new("no-such-file.toml")).is_err());
}
