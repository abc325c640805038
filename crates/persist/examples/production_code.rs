//! The primitives over a production region, beside the same steps without the trait: `tests/production_code.rs` compares the
//! machine code of both. Run, it shows that they do the same.

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use tierstone_base::Result;
use tierstone_media::Guarantee;
use tierstone_media::region::{MappedRegion, Region, RegionSettings};
use tierstone_persist::primitives::{persist, publish};

#[inline(never)]
pub fn trait_publish(region: &MappedRegion, offset: u64, value: u64) -> Result<()> {
    publish(region, offset, value)
}

#[inline(never)]
pub fn plain_publish(region: &MappedRegion, offset: u64, value: u64) -> Result<()> {
    region.store_word(offset, value);
    region.write_back(offset, 8);
    region.fence()
}

#[inline(never)]
pub fn trait_persist(region: &MappedRegion, offset: u64, len: u64) -> Result<()> {
    persist(region, offset, len)
}

#[inline(never)]
pub fn plain_persist(region: &MappedRegion, offset: u64, len: u64) -> Result<()> {
    region.write_back(offset, len);
    region.fence()
}

/// A region that counts its stores: what recording would cost. Its code must differ, or the comparison says nothing.
pub struct Counted<'a>(&'a MappedRegion, Cell<u64>);

#[inline(never)]
pub fn counted_publish(region: &Counted<'_>, offset: u64, value: u64) -> Result<()> {
    publish(region, offset, value)
}

impl Region for Counted<'_> {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }
    fn load_word(&self, offset: u64) -> u64 {
        self.0.load_word(offset)
    }
    fn store_word(&self, offset: u64, value: u64) {
        self.1.set(self.1.get() + 1);
        self.0.store_word(offset, value);
    }
    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        self.0.compare_exchange_word(offset, expected, new)
    }
    fn load(&self, offset: u64, into: &mut [u8]) {
        self.0.load(offset, into);
    }
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.0.store(offset, bytes);
    }
    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.0.store_streaming(offset, bytes);
    }
    fn write_back(&self, offset: u64, len: u64) {
        self.0.write_back(offset, len);
    }
    fn fence(&self) -> Result<()> {
        self.0.fence()
    }
}

/// Both ways of one primitive.
type Way<'a> = &'a dyn Fn(&MappedRegion) -> Result<()>;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    // The compiler must not know the numbers, or it would make other code of them.
    let (word, value) = black_box((8, 7));
    let ways: [(&str, Way<'_>, Way<'_>); 3] = [
        ("publish", &|region| trait_publish(region, word, value), &|region| {
            plain_publish(region, word, value)
        }),
        ("persist", &|region| trait_persist(region, word, value), &|region| {
            plain_persist(region, word, value)
        }),
        ("counted", &|region| counted_publish(&Counted(region, Cell::new(0)), word, value), &|region| {
            plain_publish(region, word, value)
        }),
    ];
    for (name, by_trait, by_hand) in ways {
        let image = |way: Way<'_>| -> Result<Vec<u8>> {
            let region = MappedRegion::anonymous(64 << 10, &RegionSettings::default())?;
            way(&region)?;
            let mut bytes = vec![0; region.bytes() as usize];
            region.load(0, &mut bytes);
            Ok(bytes)
        };
        if image(by_trait)? != image(by_hand)? {
            return Err(format!("{name}: the steps by hand are not those of the primitive").into());
        }
        println!("{name}: the same bytes");
    }
    Ok(())
}
