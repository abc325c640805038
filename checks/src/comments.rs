//! The comments of a Rust source with their lines. The parser drops comments, so this small lexer
//! finds them; it knows strings, raw strings and character literals, in which no comment starts.

/// One comment, without its marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// The line on which it starts, from 1.
    pub line: usize,
    /// Its text without the slashes and stars, trimmed.
    pub text: String,
    /// Whether it documents an item (`///`, `//!`, `/** */`).
    pub documents: bool,
}

/// All comments of `text`, in order. Line comments are one entry a line. Cost: one pass.
pub fn comments(text: &str) -> Vec<Comment> {
    let mut lexer = Lexer { bytes: text.as_bytes(), text, at: 0, line: 1, found: Vec::new() };
    lexer.run();
    lexer.found
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
    found: Vec<Comment>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self) {
        if self.peek(0) == b'\n' {
            self.line += 1;
        }
        self.at += 1;
    }

    fn run(&mut self) {
        let mut in_word = false;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'"' => self.string(),
                b'\'' => self.character_or_lifetime(),
                b'r' if !in_word && self.raw_hashes(1).is_some() => self.raw_string(1),
                b'b' | b'c' if !in_word && self.peek(1) == b'r' && self.raw_hashes(2).is_some() => {
                    self.raw_string(2)
                }
                byte => {
                    in_word = byte.is_ascii_alphanumeric() || byte == b'_';
                    self.step();
                    continue;
                }
            }
            in_word = false;
        }
    }

    fn line_comment(&mut self) {
        let start = self.at;
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            self.at += 1;
        }
        let comment = &self.text[start..self.at];
        let documents =
            comment.starts_with("//!") || comment.starts_with("///") && !comment.starts_with("////");
        let text = comment.trim_start_matches('/').trim_start_matches('!').trim().to_string();
        self.found.push(Comment { line: self.line, text, documents });
    }

    fn block_comment(&mut self) {
        let (start, line) = (self.at, self.line);
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        break;
                    }
                }
                _ => self.step(),
            }
        }
        let comment = &self.text[start..self.at.min(self.text.len())];
        let documents = comment.starts_with("/**") || comment.starts_with("/*!");
        let text = comment.trim_matches(['/', '*', '!']).trim().to_string();
        self.found.push(Comment { line, text, documents });
    }

    fn string(&mut self) {
        self.step();
        while self.at < self.bytes.len() && self.peek(0) != b'"' {
            if self.peek(0) == b'\\' {
                self.step();
            }
            self.step();
        }
        self.step();
    }

    fn character_or_lifetime(&mut self) {
        self.step();
        if self.peek(0) == b'\\' {
            self.at += 2;
            while self.at < self.bytes.len() && self.peek(0) != b'\'' {
                self.step();
            }
            self.step();
            return;
        }
        let width = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        if self.peek(width) == b'\'' {
            for _ in 0..=width {
                self.step();
            }
        }
    }

    /// The number of hashes of a raw string whose `r` ends `skip` bytes from here.
    fn raw_hashes(&self, skip: usize) -> Option<usize> {
        let rest = self.bytes.get(self.at + skip..)?;
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        (rest.get(hashes) == Some(&b'"')).then_some(hashes)
    }

    fn raw_string(&mut self, skip: usize) {
        let hashes = self.raw_hashes(skip).unwrap_or(0);
        let end = format!("\"{}", "#".repeat(hashes));
        self.at += skip + hashes + 1;
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(end.as_bytes()) {
            self.step();
        }
        self.at += end.len();
    }
}

#[cfg(test)]
#[path = "comments_test.rs"]
mod comments_test;
