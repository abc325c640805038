//! Mixes the bits of keys.

/// Each bit of `key` in all bits of what is given.
pub(crate) fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 32)).wrapping_mul(0x9E6C_63D0_876A_68A5);
    let key = (key ^ (key >> 29)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    key ^ (key >> 32)
}
