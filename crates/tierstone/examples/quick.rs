//! The first use of the library: `cargo run --example quick -p tierstone [DIRECTORY]`.

use tierstone::{Batch, DatabaseOptions, Result, Store};

fn main() -> Result<()> {
    let given = std::env::args().nth(1);
    let directory = given.map_or_else(|| std::env::temp_dir().join("tierstone-quick"), Into::into);
    let mut store = Store::open(&DatabaseOptions::new(&directory))?;

    // Durable when the call returns.
    store.put(b"planet:3", b"Earth")?;

    // All or nothing, in one write of the device.
    let mut batch = Batch::new();
    batch.put(b"planet:4", b"Mars").put(b"moon:3:1", b"Moon").delete(b"planet:9");
    store.write(&batch)?;

    for entry in store.scan() {
        let entry = entry?;
        println!("{} = {}", entry.key.escape_ascii(), entry.value.escape_ascii());
    }
    println!("{} keys, {:?} durable", store.len(), store.database().storage().guarantee());
    store.close()
}
