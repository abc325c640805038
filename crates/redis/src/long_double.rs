//! Decimal arithmetic as Redis does it for `INCRBYFLOAT`: in the extended format of x86, with a
//! mantissa of 64 bits, printed with 17 digits behind the point and without trailing zeros.
//!
//! A number is `mantissa × 2^exponent` with a mantissa of at most 64 bits; conversions and sums are
//! exact in big integers and rounded once, half to even, as the hardware does. Exponents are bounded
//! (±16,400), so that a hostile text costs a bounded number of steps.

use std::cmp::Ordering;

/// Digits behind the point in the printed form.
const PRINTED_DIGITS: u32 = 17;
/// Largest binary exponent of a finite number's first bit.
const EXPONENT_MAX: i32 = 16_383;
/// The longest text that is read.
const TEXT_MAX_BYTES: usize = 5 * 1024;

/// A number of the extended format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongDouble {
    /// `±mantissa × 2^exponent`.
    Finite {
        /// The sign.
        is_negative: bool,
        /// At most 64 bits; the highest is set unless the number is zero or very small.
        mantissa: u64,
        /// The weight of the mantissa's lowest bit.
        exponent: i32,
    },
    /// Beyond the largest number.
    Infinite {
        /// The sign.
        is_negative: bool,
    },
}

/// A natural number: 32-bit digits, low ones first, no zeros at the high end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl Natural {
    fn from_u64(value: u64) -> Self {
        let mut natural = Natural(vec![value as u32, (value >> 32) as u32]);
        natural.trim();
        natural
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |high| self.0.len() as u32 * 32 - high.leading_zeros())
    }

    fn trailing_zeros(&self) -> u32 {
        let zeros = self.0.iter().take_while(|digit| **digit == 0).count();
        zeros as u32 * 32 + self.0.get(zeros).map_or(0, |digit| digit.trailing_zeros())
    }

    fn times_plus(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_power_of_ten(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.times_plus(1_000_000_000, 0);
        }
        self.times_plus(10u32.pow(power % 9), 0);
    }

    /// Divides by `divisor`; the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for digit in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*digit);
            *digit = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        self.trim();
        rest as u32
    }

    fn shifted_left(&self, bits: u32) -> Natural {
        let mut digits = vec![0; bits as usize / 32];
        let shift = bits % 32;
        let mut carry = 0;
        for digit in &self.0 {
            digits.push(digit << shift | carry);
            carry = if shift == 0 { 0 } else { digit >> (32 - shift) };
        }
        digits.push(carry);
        let mut natural = Natural(digits);
        natural.trim();
        natural
    }

    /// The number without its lowest `bits` bits, and how those compare with half of one.
    fn shifted_right(&self, bits: u32) -> (Natural, Ordering) {
        if bits == 0 {
            return (self.clone(), Ordering::Less);
        }
        let bit = |index: u32| self.0.get(index as usize / 32).is_some_and(|d| d >> (index % 32) & 1 == 1);
        let words = (bits - 1) as usize / 32;
        let is_below_zero = self.0.iter().take(words).all(|digit| *digit == 0)
            && (words as u32 * 32..bits - 1).all(|index| !bit(index));
        let rest = match (bit(bits - 1), is_below_zero) {
            (false, _) => Ordering::Less,
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
        };
        let (skip, shift) = (bits as usize / 32, bits % 32);
        let digits = (skip..self.0.len()).map(|index| {
            let high = self.0.get(index + 1).copied().unwrap_or(0);
            if shift == 0 { self.0[index] } else { self.0[index] >> shift | high << (32 - shift) }
        });
        let mut natural = Natural(digits.collect());
        natural.trim();
        (natural, rest)
    }

    fn compare(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn plus(&self, other: &Natural) -> Natural {
        let mut carry = 0u64;
        let mut digits = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        for index in 0..self.0.len().max(other.0.len()) {
            carry += u64::from(self.0.get(index).copied().unwrap_or(0));
            carry += u64::from(other.0.get(index).copied().unwrap_or(0));
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        let mut natural = Natural(digits);
        natural.trim();
        natural
    }

    /// `self - other`, where `other` is not larger.
    fn minus(&self, other: &Natural) -> Natural {
        let mut borrow = 0i64;
        let mut digits = Vec::with_capacity(self.0.len());
        for (index, digit) in self.0.iter().enumerate() {
            let mut value = i64::from(*digit) - i64::from(other.0.get(index).copied().unwrap_or(0)) - borrow;
            borrow = i64::from(value < 0);
            value += borrow << 32;
            digits.push(value as u32);
        }
        let mut natural = Natural(digits);
        natural.trim();
        natural
    }

    fn low_u64(&self) -> u64 {
        let digit = |index: usize| u64::from(self.0.get(index).copied().unwrap_or(0));
        digit(1) << 32 | digit(0)
    }

    /// The quotient by `divisor` of at most 64 + a few bits, and whether something remains.
    fn quotient(&self, divisor: &Natural) -> (Natural, bool) {
        let mut rest = self.clone();
        let mut quotient = Natural::default();
        let top = self.bits().saturating_sub(divisor.bits());
        for shift in (0..=top).rev() {
            quotient.times_plus(2, 0);
            let part = divisor.shifted_left(shift);
            if rest.compare(&part) != Ordering::Less {
                rest = rest.minus(&part);
                quotient = quotient.plus(&Natural::from_u64(1));
            }
        }
        (quotient, !rest.is_zero())
    }
}

impl LongDouble {
    /// Zero.
    pub const ZERO: LongDouble = LongDouble::Finite { is_negative: false, mantissa: 0, exponent: 0 };

    /// Reads a whole text: an optional sign, then decimal digits with an optional point and exponent,
    /// the same in hexadecimal, or `inf` or `infinity`. `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() >= TEXT_MAX_BYTES {
            return None;
        }
        let (is_negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(LongDouble::Infinite { is_negative });
        }
        if let [b'0', b'x' | b'X', digits @ ..] = rest {
            return parse_hexadecimal(is_negative, digits);
        }
        let split = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
        let (digits, exponent) = rest.split_at(split);
        let exponent = match exponent {
            [] => 0,
            [_, text @ ..] => parse_exponent(text)?,
        };
        let mut natural = Natural::default();
        let mut count = 0;
        let mut behind_point: Option<i32> = None;
        for byte in digits {
            match byte {
                b'.' if behind_point.is_none() => behind_point = Some(0),
                b'0'..=b'9' => {
                    natural.times_plus(10, u32::from(byte - b'0'));
                    natural.trim();
                    count += 1;
                    behind_point = behind_point.map(|digits| digits + 1);
                }
                _ => return None,
            }
        }
        if count == 0 {
            return None;
        }
        let power = exponent.saturating_sub(behind_point.unwrap_or(0));
        from_decimal(is_negative, natural, power)
    }

    /// The sum, rounded to the format; `None` when it is not a number (`inf - inf`).
    pub fn plus(self, other: LongDouble) -> Option<LongDouble> {
        use LongDouble::{Finite, Infinite};
        let (left, right) = match (self, other) {
            (Infinite { is_negative: left }, Infinite { is_negative: right }) if left != right => {
                return None;
            }
            (Infinite { .. }, _) => return Some(self),
            (_, Infinite { .. }) => return Some(other),
            (
                Finite { is_negative, mantissa, exponent },
                Finite { is_negative: is_other_negative, mantissa: other_mantissa, exponent: other_exponent },
            ) => ((is_negative, mantissa, exponent), (is_other_negative, other_mantissa, other_exponent)),
        };
        let low = left.2.min(right.2);
        let raise = |(_, mantissa, exponent): (bool, u64, i32)| {
            Natural::from_u64(mantissa).shifted_left(exponent.abs_diff(low))
        };
        let (first, second) = (raise(left), raise(right));
        let (is_negative, sum) = if left.0 == right.0 {
            (left.0, first.plus(&second))
        } else if first.compare(&second) == Ordering::Less {
            (right.0, second.minus(&first))
        } else {
            (left.0, first.minus(&second))
        };
        Some(round(is_negative && !sum.is_zero(), sum, low, false))
    }

    /// Whether it is a number that can be stored.
    pub fn is_finite(self) -> bool {
        matches!(self, LongDouble::Finite { .. })
    }

    /// Appends the printed form: plain digits, at most 17 behind the point, no trailing zeros.
    pub fn print(self, out: &mut Vec<u8>) {
        let LongDouble::Finite { is_negative, mantissa, exponent } = self else {
            let is_negative = matches!(self, LongDouble::Infinite { is_negative: true });
            out.extend_from_slice(if is_negative { b"-inf" } else { b"inf" });
            return;
        };
        let mut scaled = Natural::from_u64(mantissa);
        scaled.times_power_of_ten(PRINTED_DIGITS);
        scaled.trim();
        let mut scaled = if exponent >= 0 {
            scaled.shifted_left(exponent.unsigned_abs())
        } else {
            let (whole, rest) = scaled.shifted_right(exponent.unsigned_abs());
            let is_odd = whole.0.first().is_some_and(|digit| digit & 1 == 1);
            if rest == Ordering::Greater || (rest == Ordering::Equal && is_odd) {
                whole.plus(&Natural::from_u64(1))
            } else {
                whole
            }
        };
        let mut digits = Vec::new();
        while !scaled.is_zero() {
            let mut nine = scaled.divide(1_000_000_000);
            for _ in 0..9 {
                digits.push(b'0' + (nine % 10) as u8);
                nine /= 10;
            }
        }
        digits.resize(digits.len().max(PRINTED_DIGITS as usize + 1), b'0');
        while digits.len() > PRINTED_DIGITS as usize + 1 && digits.last() == Some(&b'0') {
            digits.pop();
        }
        let fraction_start = digits.iter().take(PRINTED_DIGITS as usize).position(|digit| *digit != b'0');
        let is_zero = digits.iter().all(|digit| *digit == b'0');
        if is_negative && !is_zero {
            out.push(b'-');
        }
        out.extend(digits[PRINTED_DIGITS as usize..].iter().rev());
        if let Some(start) = fraction_start {
            out.push(b'.');
            out.extend(digits[start..PRINTED_DIGITS as usize].iter().rev());
        }
    }
}

/// Reads hexadecimal digits with an optional point and binary exponent (`1.8p3`).
fn parse_hexadecimal(is_negative: bool, text: &[u8]) -> Option<LongDouble> {
    let split = text.iter().position(|byte| matches!(byte, b'p' | b'P')).unwrap_or(text.len());
    let (digits, exponent) = text.split_at(split);
    let mut power = match exponent {
        [] => 0,
        [_, text @ ..] => parse_exponent(text)?,
    };
    let mut natural = Natural::default();
    let (mut count, mut is_behind_point) = (0, false);
    for byte in digits {
        if *byte == b'.' && !is_behind_point {
            is_behind_point = true;
            continue;
        }
        natural.times_plus(16, char::from(*byte).to_digit(16)?);
        natural.trim();
        count += 1;
        power -= if is_behind_point { 4 } else { 0 };
    }
    if count == 0 {
        return None;
    }
    if !natural.is_zero() && natural.bits() as i32 + power < -EXPONENT_MAX - 64 {
        return None;
    }
    Some(round(is_negative, natural, power.max(-EXPONENT_MAX * 2), false)).filter(|value| value.is_finite())
}

/// The exponent of a text, bounded far beyond what the format can hold.
fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i32, |value, byte| (value * 10 + i32::from(byte - b'0')).min(100_000));
    Some(sign * value)
}

/// `None` for what is beyond the format at either end, as in Redis.
fn from_decimal(is_negative: bool, mut natural: Natural, power: i32) -> Option<LongDouble> {
    natural.trim();
    if natural.is_zero() {
        return Some(LongDouble::Finite { is_negative, mantissa: 0, exponent: 0 });
    }
    // Decimal digits before the point, within one: enough to know what cannot be held.
    let magnitude = i64::from(natural.bits()) * 30_103 / 100_000 + i64::from(power);
    if !(-4_960..=4_940).contains(&magnitude) {
        return None;
    }
    if power >= 0 {
        natural.times_power_of_ten(power.unsigned_abs());
        return Some(round(is_negative, natural, 0, false)).filter(|value| value.is_finite());
    }
    let mut divisor = Natural::from_u64(1);
    divisor.times_power_of_ten(power.unsigned_abs());
    // Scaled so that the quotient has a few bits more than the mantissa, and not many more.
    let shift = 68 + divisor.bits() as i32 - natural.bits() as i32;
    let is_cut = shift < 0 && natural.trailing_zeros() < shift.unsigned_abs();
    let scaled = if shift < 0 {
        natural.shifted_right(shift.unsigned_abs()).0
    } else {
        natural.shifted_left(shift.unsigned_abs())
    };
    let (quotient, has_rest) = scaled.quotient(&divisor);
    Some(round(is_negative, quotient, -shift, has_rest || is_cut)).filter(|value| value.is_finite())
}

/// Rounds `natural × 2^exponent` (plus a little, when `has_rest`) to 64 bits, half to even.
fn round(is_negative: bool, natural: Natural, exponent: i32, has_rest: bool) -> LongDouble {
    let extra = natural.bits().saturating_sub(64);
    let (whole, mut rest) = natural.shifted_right(extra);
    if has_rest && rest == Ordering::Equal {
        rest = Ordering::Greater;
    }
    let mut mantissa = whole.low_u64();
    let mut exponent = exponent + extra as i32;
    if extra > 0 && (rest == Ordering::Greater || (rest == Ordering::Equal && mantissa & 1 == 1)) {
        match mantissa.checked_add(1) {
            Some(next) => mantissa = next,
            None => {
                mantissa = 1 << 63;
                exponent += 1;
            }
        }
    }
    let first_bit = exponent + 63 - mantissa.leading_zeros().min(63) as i32;
    if mantissa != 0 && first_bit > EXPONENT_MAX {
        return LongDouble::Infinite { is_negative };
    }
    LongDouble::Finite { is_negative, mantissa, exponent }
}

#[cfg(test)]
#[path = "long_double_test.rs"]
mod long_double_test;
