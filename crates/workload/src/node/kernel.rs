//! A cache-bound kernel: the transpose of a row-major matrix times a vector, column by column.
//!
//! Columns are strided, so each multiplication touches another cache line, and the rate falls where the matrix leaves
//! a cache. Data do not matter to the time; they are small whole numbers, so that sums are exact in any order.

use super::{Result, Watch, Work, for_seconds, wrong};

/// The bytes of the matrices that are tried: within the first cache, the second, the third, and beyond.
pub const SIZES_BYTES: [usize; 5] = [16 << 10, 128 << 10, 1 << 20, 8 << 20, 32 << 20];

/// A square matrix and a vector.
#[derive(Clone, Debug)]
pub struct Kernel {
    side: usize,
    matrix: Vec<f64>,
    vector: Vec<f64>,
    result: Vec<f64>,
}

impl Kernel {
    /// A kernel whose matrix has at most `bytes` bytes, and one number at least.
    pub fn new(bytes: usize) -> Kernel {
        let side = (bytes / 8).isqrt().max(1);
        let number = |place: usize| ((place * 7 + place / 13) % 16) as f64;
        Kernel {
            side,
            matrix: (0..side * side).map(number).collect(),
            vector: (0..side).map(|place| number(place + 3)).collect(),
            result: vec![0.0; side],
        }
    }

    /// One product; gives its multiplications.
    pub fn multiply(&mut self) -> u64 {
        for column in 0..self.side {
            let strided = self.matrix.iter().skip(column).step_by(self.side);
            self.result[column] = strided.zip(&self.vector).map(|(a, x)| a * x).sum();
        }
        std::hint::black_box(&self.result);
        (self.side * self.side) as u64
    }

    /// The same row by row.
    fn by_rows(&self) -> Vec<f64> {
        let mut result = vec![0.0; self.side];
        for (row, x) in self.matrix.chunks(self.side).zip(&self.vector) {
            result.iter_mut().zip(row).for_each(|(sum, a)| *sum += a * x);
        }
        result
    }

    /// Whether the result is that of the other order.
    pub fn is_right(&self) -> bool {
        self.result == self.by_rows()
    }
}

/// Runs the kernel of `bytes` in `threads` threads for `seconds`.
///
/// # Errors
/// A wrong product, or a thread that died.
pub fn run(bytes: usize, threads: usize, seconds: f64, watch: &mut dyn Watch) -> Result<Work> {
    let mut once = Kernel::new(bytes);
    once.multiply();
    if !once.is_right() {
        return Err(wrong("the product of matrix and vector is wrong"));
    }
    let (amount, seconds) = for_seconds((threads, seconds), watch, |_| once.clone(), Kernel::multiply)?;
    Ok(Work {
        name: format!("cache-bound kernel, {} KiB a thread", bytes >> 10),
        unit: "FLOP",
        amount: amount as f64,
        seconds,
        note: format!("multiplications, {threads} threads; the product by rows is the same"),
        device: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_right_at_every_side_and_wrong_ones_are_seen() {
        for bytes in [1, 8, 32, 1_000, 16 << 10] {
            let mut kernel = Kernel::new(bytes);
            assert_eq!(kernel.multiply(), (kernel.side * kernel.side) as u64);
            assert!(kernel.is_right(), "{bytes}");
            kernel.result[0] += 1.0;
            assert!(!kernel.is_right(), "{bytes}");
        }
        assert!(run(1 << 10, 2, 0.001, &mut ()).is_ok_and(|work| work.amount > 0.0));
    }
}
