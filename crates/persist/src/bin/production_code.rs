//! The primitives over a production region, beside the same steps without the trait and without rules that tests break:
//! `tests/production_code.rs` compares the machine code of both. Run, it fails unless they do the same.

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use tierstone_base::Result;
use tierstone_crash::Mutations;
use tierstone_media::Guarantee;
use tierstone_media::region::{MappedRegion, Region, RegionSettings};
use tierstone_persist::primitives::{PageLog, PersistentLog, append_streaming, persist, publish};

/// The steps of the primitives on one kind of region, without rules that could be broken.
pub mod by_hand {
    use tierstone_base::checksum::checksum;
    use tierstone_base::{Error, ErrorKind, Result};
    use tierstone_media::region::{MappedRegion, Region};
    use tierstone_persist::primitives::PageLog;

    #[inline]
    pub fn publish(region: &MappedRegion, offset: u64, value: u64) -> Result<()> {
        region.store_word(offset, value);
        persist(region, offset, 8)
    }

    #[inline]
    pub fn persist(region: &MappedRegion, offset: u64, len: u64) -> Result<()> {
        region.write_back(offset, len);
        region.fence()
    }

    pub fn append_streaming(
        region: &MappedRegion,
        offset: u64,
        bytes: &[u8],
        published: u64,
        value: u64,
    ) -> Result<()> {
        region.store_streaming(offset, bytes);
        region.fence()?;
        publish(region, published, value)
    }

    pub struct Log<'a> {
        pub region: &'a MappedRegion,
        pub start: u64,
        pub bytes: u64,
        pub end: u64,
        pub needed: u64,
    }

    impl Log<'_> {
        pub fn persist_wal(&mut self, records: &[&[u8]]) -> Result<()> {
            let total: u64 = records.iter().map(|body| 24 + padded(body.len() as u64)).sum();
            if self.end - self.needed + total > self.bytes {
                let message = format!(
                    "{total} bytes of records do not fit the log of {} bytes; release some",
                    self.bytes
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
            let mut at = self.end;
            for body in records {
                let len = body.len() as u64;
                self.put(at, &len.to_le_bytes());
                self.put(at + 8, &checksum(at, body).to_le_bytes());
                self.put(at + 16, body);
                at += 24 + padded(len);
            }
            self.region.fence()?;
            let mut at = self.end;
            for body in records {
                let len = padded(body.len() as u64);
                let place = self.place(at + 16 + len);
                self.region.store_word(place, at + 1);
                self.region.write_back(place, 8);
                at += 24 + len;
            }
            self.region.fence()?;
            self.end = at;
            Ok(())
        }

        fn place(&self, position: u64) -> u64 {
            self.start + position % self.bytes
        }

        fn put(&self, position: u64, bytes: &[u8]) {
            let first = (self.bytes - position % self.bytes).min(bytes.len() as u64) as usize;
            let (head, rest) = bytes.split_at(first);
            self.region.store_streaming(self.place(position), head);
            self.region.store_streaming(self.start, rest);
        }
    }

    #[inline]
    fn padded(len: u64) -> u64 {
        len.next_multiple_of(8)
    }

    pub fn persist_page(log: &PageLog, region: &MappedRegion, page: u64, fresh: &[u8]) -> Result<()> {
        let mut old = vec![0; log.page_bytes as usize];
        region.load(page, &mut old);
        region.store_streaming(log.offset + 64, &old);
        region.fence()?;
        region.store_word(log.offset, page + 1);
        region.write_back(log.offset, 8);
        region.fence()?;
        region.store(page, &fresh[..log.page_bytes as usize]);
        region.write_back(page, log.page_bytes);
        region.fence()?;
        region.store_word(log.offset, 0);
        region.write_back(log.offset, 8);
        region.fence()
    }
}

#[inline(never)]
pub fn trait_publish(region: &MappedRegion, offset: u64, value: u64) -> Result<()> {
    publish(region, offset, value)
}

#[inline(never)]
pub fn plain_publish(region: &MappedRegion, offset: u64, value: u64) -> Result<()> {
    by_hand::publish(region, offset, value)
}

#[inline(never)]
pub fn trait_persist(region: &MappedRegion, offset: u64, len: u64) -> Result<()> {
    persist(region, offset, len)
}

#[inline(never)]
pub fn plain_persist(region: &MappedRegion, offset: u64, len: u64) -> Result<()> {
    by_hand::persist(region, offset, len)
}

#[inline(never)]
pub fn trait_append_streaming(region: &MappedRegion, bytes: &[u8], published: u64, value: u64) -> Result<()> {
    append_streaming(region, 64, bytes, published, value, &Mutations::none())
}

#[inline(never)]
pub fn plain_append_streaming(region: &MappedRegion, bytes: &[u8], published: u64, value: u64) -> Result<()> {
    by_hand::append_streaming(region, 64, bytes, published, value)
}

#[inline(never)]
pub fn trait_persist_wal(log: &mut PersistentLog<'_, MappedRegion>, records: &[&[u8]]) -> Result<()> {
    log.persist_wal(records)
}

#[inline(never)]
pub fn plain_persist_wal(log: &mut by_hand::Log<'_>, records: &[&[u8]]) -> Result<()> {
    log.persist_wal(records)
}

#[inline(never)]
pub fn trait_persist_page(log: &PageLog, region: &MappedRegion, page: u64, fresh: &[u8]) -> Result<()> {
    log.persist_page(region, page, fresh, &Mutations::none())
}

#[inline(never)]
pub fn plain_persist_page(log: &PageLog, region: &MappedRegion, page: u64, fresh: &[u8]) -> Result<()> {
    by_hand::persist_page(log, region, page, fresh)
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

/// One way of one primitive.
type Way<'a> = &'a dyn Fn(&MappedRegion) -> Result<()>;

/// Does everything in both ways.
///
/// # Errors
/// When a primitive and its steps by hand do not leave the same bytes.
pub fn main() -> std::result::Result<(), Box<dyn Error>> {
    // The compiler must not know the numbers, or it would make other code of them.
    let (word, value) = black_box((8, 7));
    let records = black_box(vec![b"a record".as_slice(), b"another, and longer"]);
    let (log, fresh) = black_box((PageLog { offset: 4096, page_bytes: 128 }, vec![5; 128]));
    let ways: [(&str, Way<'_>, Way<'_>); 6] = [
        ("publish", &|region| trait_publish(region, word, value), &|region| {
            plain_publish(region, word, value)
        }),
        ("persist", &|region| trait_persist(region, word, value), &|region| {
            plain_persist(region, word, value)
        }),
        ("counted", &|region| counted_publish(&Counted(region, Cell::new(0)), word, value), &|region| {
            plain_publish(region, word, value)
        }),
        ("append_streaming", &|region| trait_append_streaming(region, &fresh, word, value), &|region| {
            plain_append_streaming(region, &fresh, word, value)
        }),
        (
            "persist_wal",
            &|region| {
                let mut log = PersistentLog::new(region, 64, 1024, 0, &Mutations::none())?;
                (0..30).try_for_each(|_| {
                    trait_persist_wal(&mut log, &records)?;
                    log.release(log.end());
                    Ok(())
                })
            },
            &|region| {
                let mut log = by_hand::Log { region, start: 64, bytes: 1024, end: 0, needed: 0 };
                (0..30).try_for_each(|_| {
                    plain_persist_wal(&mut log, &records)?;
                    log.needed = log.end;
                    Ok(())
                })
            },
        ),
        ("persist_page", &|region| trait_persist_page(&log, region, 8192, &fresh), &|region| {
            plain_persist_page(&log, region, 8192, &fresh)
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
        let (found, wanted) = (image(by_trait)?, image(by_hand)?);
        if found != wanted || found.iter().all(|byte| *byte == 0) != (name == "persist") {
            return Err(format!("{name}: the steps by hand are not those of the primitive").into());
        }
    }
    Ok(())
}
