use super::*;

fn texts(source: &str) -> Vec<(usize, String)> {
    comments(source).into_iter().map(|comment| (comment.line, comment.text)).collect()
}

#[test]
fn line_and_block_comments_are_found_with_their_lines() {
    let found = texts("fn a() {} // one\n/* two\n /* nested */ end */\n//! three\n");
    assert_eq!(found[0], (1, "one".to_string()));
    assert_eq!(found[1].0, 2);
    assert!(found[1].1.starts_with("two"));
    assert_eq!(found[2], (4, "three".to_string()));
}

#[test]
fn no_comment_starts_inside_a_literal() {
    assert!(
        texts(r##"let a = "// no"; let b = r#"" // no"#; let c = b"\"// no"; let d = '"'; let e = '\'';"##)
            .is_empty()
    );
}

#[test]
fn a_lifetime_is_not_a_character() {
    assert_eq!(texts("fn f<'a>(x: &'a str) {} // yes").len(), 1);
    assert_eq!(texts("let x = 'é'; // yes").len(), 1);
    assert_eq!(texts("let quote = '\"'; // yes").len(), 1);
}

#[test]
fn unfinished_literals_end_at_the_end() {
    for source in ["\"abc", "r#\"abc", "'", "/* abc", "'\\", "b", "r#"] {
        comments(source);
    }
}

#[test]
fn documentation_is_told_from_plain_comments() {
    let found = comments("/// doc\n// plain\n//// plain\n//! doc");
    let documents: Vec<bool> = found.iter().map(|comment| comment.documents).collect();
    assert_eq!(documents, [true, false, false, true]);
}
