//! Floating-point numbers as Redis writes them.

use std::io::Write;

/// Room for any double: sign, 17 digits, point, exponent, or 17 digits with leading zeros.
pub const DOUBLE_TEXT_MAX_BYTES: usize = 32;

/// Writes `value` with the fewest digits that read back as the same double; the written part.
///
/// The layout is that of Redis 7 (its `fpconv_dtoa`): plain digits while the number stays short
/// (`10`, `3.5`, `0.0001`), else an exponent with its sign (`1e+21`, `1.5e-8`); `inf`, `-inf`, `nan`.
/// Cost: about 200 ns, no allocation.
pub fn format_double(value: f64, buffer: &mut [u8; DOUBLE_TEXT_MAX_BYTES]) -> &[u8] {
    let mut text = Text { buffer, len: 0 };
    if value.is_nan() {
        text.push(b"nan");
    } else {
        if value.is_sign_negative() {
            text.push(b"-");
        }
        if value.is_infinite() {
            text.push(b"inf");
        } else if value == 0.0 {
            text.push(b"0");
        } else {
            push_finite(value.abs(), &mut text);
        }
    }
    let Text { buffer, len } = text;
    &buffer[..len]
}

struct Text<'a> {
    buffer: &'a mut [u8; DOUBLE_TEXT_MAX_BYTES],
    len: usize,
}

impl Text<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.buffer[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    fn push_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.push(b"0");
        }
    }
}

fn push_finite(value: f64, text: &mut Text<'_>) {
    // The standard library's exponent form carries the shortest digits: `D.DDDeX`.
    let mut scratch = [0u8; DOUBLE_TEXT_MAX_BYTES];
    let mut cursor = &mut scratch[..];
    let room = cursor.len();
    let written = match write!(cursor, "{value:e}") {
        Ok(()) => room - cursor.len(),
        Err(error) => unreachable!("25 bytes hold any double: {error}"),
    };
    let mut digits = [0u8; 20];
    let mut count = 0;
    let mut exponent = 0i32;
    for (index, byte) in scratch[..written].iter().enumerate() {
        match byte {
            b'.' => {}
            b'e' => {
                let rest = std::str::from_utf8(&scratch[index + 1..written]).unwrap_or_default();
                exponent = rest.parse().unwrap_or_default();
                break;
            }
            digit => {
                digits[count] = *digit;
                count += 1;
            }
        }
    }
    lay_out(&digits[..count], exponent, text);
}

/// Writes `digits` whose first has the weight 10^`exponent`.
fn lay_out(digits: &[u8], exponent: i32, text: &mut Text<'_>) {
    let count = digits.len() as i32;
    // Weight of the last digit.
    let last = exponent - (count - 1);
    let size = exponent.unsigned_abs() as usize;
    if last >= 0 && size < digits.len() + 7 {
        text.push(digits);
        text.push_zeros(last as usize);
    } else if last < 0 && (last > -7 || size < 4) {
        if exponent < 0 {
            text.push(b"0.");
            text.push_zeros(size - 1);
            text.push(digits);
        } else {
            let (whole, fraction) = digits.split_at(size + 1);
            text.push(whole);
            text.push(b".");
            text.push(fraction);
        }
    } else {
        text.push(&digits[..1]);
        if digits.len() > 1 {
            text.push(b".");
            text.push(&digits[1..]);
        }
        text.push(if exponent < 0 { b"e-" } else { b"e+" });
        text.push(itoa::Buffer::new().format(size).as_bytes());
    }
}

#[cfg(test)]
#[path = "double_test.rs"]
mod double_test;
