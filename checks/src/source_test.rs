use super::*;

#[test]
fn a_function_is_measured_from_its_signature_to_its_brace() {
    let text = "/// Doc.\n#[inline]\nfn a(\n    x: u8,\n) -> u8 {\n    x\n}\nimpl B { fn c(&self) {} }\nimpl D for B { fn e(&self) {} }";
    let functions = Source::parse(text).unwrap().functions;
    assert_eq!(functions[0], Function { name: "a".into(), line: 3, lines: 5 });
    assert_eq!(functions[1].name, "B::c");
    assert_eq!(functions[2].name, "B::D::e");
}

#[test]
fn a_function_inside_a_trait_or_another_function_is_measured_too() {
    let text = "trait T { fn a(&self); fn b(&self) { fn inner() {} } }";
    let names: Vec<String> = Source::parse(text).unwrap().functions.into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["T::b", "inner"]);
}

#[test]
fn module_declarations_carry_their_path_and_their_tests() {
    let text = "mod a;\n#[cfg(test)]\n#[path = \"b_test.rs\"]\nmod b_test;\nmod c { mod d; }\n#[cfg_attr(unix, path = \"e_unix.rs\")] mod e;";
    let modules = Source::parse(text).unwrap().modules;
    assert_eq!(
        modules[0],
        ModuleDeclaration { inside: vec![], name: "a".into(), path: None, test_only: false }
    );
    assert!(modules[1].test_only);
    assert_eq!(modules[1].path.as_deref(), Some("b_test.rs"));
    assert_eq!(modules[2].inside, ["c"]);
    assert_eq!(modules[3].path.as_deref(), Some("e_unix.rs"));
}

#[test]
fn only_conditions_that_need_a_test_build_mark_test_lines() {
    let text = "#[cfg(test)]\nmod a {\n    fn x() {}\n}\n#[cfg(any(test, feature = \"y\"))]\nfn b() {}\n#[cfg(all(test, unix))]\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n#[test]\nfn e() {}";
    let source = Source::parse(text).unwrap();
    let lines: Vec<usize> = (1..=12).filter(|line| source.is_test_line(*line)).collect();
    assert_eq!(lines, [1, 2, 3, 4, 7, 8, 11, 12]);
}

#[test]
fn imports_are_written_out_in_full() {
    let text = "use std::{thread::{self, Builder}, net as network, time::*};";
    let paths: Vec<String> = Source::parse(text).unwrap().imports.into_iter().map(|i| i.path).collect();
    assert_eq!(paths, ["std::thread::", "std::thread::Builder", "std::net", "std::time::*"]);
}

#[test]
fn tokens_inside_macros_are_seen_and_those_inside_strings_are_not() {
    let source =
        Source::parse("fn f() { m! { todo!(\"x\") }; let _ = \"todo!()\"; }\n/// todo!()\nfn g() {}")
            .unwrap();
    assert_eq!(source.lines_of(&["todo", "!"]).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_file_that_does_not_parse_says_where() {
    assert!(Source::parse("fn a() {\n  let\n}").unwrap_err().contains("line"));
}
