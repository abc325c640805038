use super::*;
use crate::tree::Tree;

fn found(path: &str, text: &str) -> usize {
    findings(&Modules::of(&Tree::of(&[(path, text)]))).len()
}

#[test]
fn unsafe_elsewhere_is_found_in_every_form() {
    let forms = [
        "fn f() { unsafe { g() } }",
        "unsafe fn f() {}",
        "struct A; unsafe impl Send for A {}",
        "macro_rules! m { () => { unsafe { g() } } }",
        "#[unsafe(no_mangle)] fn f() {}",
        "#[cfg(test)] mod t { fn f() { unsafe { g() } } }",
    ];
    for form in forms {
        assert_eq!(found("crates/base/src/lib.rs", form), 1, "{form}");
    }
}

#[test]
fn the_named_modules_may_use_it() {
    assert_eq!(found("crates/media/src/buffer.rs", "unsafe fn f() {}"), 0);
    assert_eq!(found("crates/media/src/file/ring.rs", "unsafe fn f() {}"), 0);
    assert_eq!(found("crates/media/src/buffer_more.rs", "unsafe fn f() {}"), 1);
}

#[test]
fn the_word_in_lints_texts_and_comments_is_not_the_token() {
    assert_eq!(
        found("crates/base/src/lib.rs", "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";"),
        0
    );
}
