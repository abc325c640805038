//! RocksDB: an LSM-tree, by the C interface of the system's shared library (Debian: `librocksdb7.8`). Each write
//! is followed by a sync of the log. No compression, Bloom filters of 10 bits a key.

use super::{Engine, Handle, failed};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tierstone_base::Result;
use tierstone_workload::Target;

const LIBRARIES: [&str; 4] = ["librocksdb.so.7.8", "librocksdb.so.8", "librocksdb.so.9", "librocksdb.so"];

type Any = *mut c_void;
type Text = *mut *mut c_char;

/// Declares the functions that are used, as the header `rocksdb/c.h` has them.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            _library: Library,
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            /// The library must be a RocksDB.
            unsafe fn load(library: Library) -> std::result::Result<Functions, libloading::Error> {
                // SAFETY: the caller's word, and the header's declarations.
                unsafe {
                    $(let $name = *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                        concat!("rocksdb_", stringify!($name)).as_bytes())?;)*
                    Ok(Functions { _library: library, $($name,)* })
                }
            }
        }
    };
}

functions! {
    options_create: fn() -> Any;
    options_set_create_if_missing: fn(Any, c_uchar);
    options_increase_parallelism: fn(Any, c_int);
    options_set_compression: fn(Any, c_int);
    options_set_write_buffer_size: fn(Any, usize);
    options_set_block_based_table_factory: fn(Any, Any);
    options_set_bytes_per_sync: fn(Any, u64);
    block_based_options_create: fn() -> Any;
    block_based_options_set_block_cache: fn(Any, Any);
    block_based_options_set_filter_policy: fn(Any, Any);
    block_based_options_set_cache_index_and_filter_blocks: fn(Any, c_uchar);
    cache_create_lru: fn(usize) -> Any;
    filterpolicy_create_bloom_full: fn(c_double) -> Any;
    writeoptions_create: fn() -> Any;
    writeoptions_set_sync: fn(Any, c_uchar);
    readoptions_create: fn() -> Any;
    open: fn(Any, *const c_char, Text) -> Any;
    close: fn(Any);
    put: fn(Any, Any, *const u8, usize, *const u8, usize, Text);
    get_pinned: fn(Any, Any, *const u8, usize, Text) -> Any;
    pinnableslice_value: fn(Any, *mut usize) -> *const u8;
    pinnableslice_destroy: fn(Any);
    write: fn(Any, Any, Any, Text);
    writebatch_create: fn() -> Any;
    writebatch_put: fn(Any, *const u8, usize, *const u8, usize);
    writebatch_destroy: fn(Any);
    create_iterator: fn(Any, Any) -> Any;
    iter_seek: fn(Any, *const u8, usize);
    iter_valid: fn(Any) -> c_uchar;
    iter_next: fn(Any);
    iter_key: fn(Any, *mut usize) -> *const u8;
    iter_value: fn(Any, *mut usize) -> *const u8;
    iter_get_error: fn(Any, Text);
    iter_destroy: fn(Any);
    free: fn(Any);
}

/// Pointers of the library, whose objects may be used by all threads.
struct Shared {
    functions: Functions,
    database: Any,
    write_options: Any,
    read_options: Any,
}

// SAFETY: the database is made for many threads, and the options are only read.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nobody uses it any more.
        unsafe { (self.functions.close)(self.database) };
    }
}

#[derive(Clone)]
struct Tree(Arc<Shared>);

pub fn open(directory: &Path, memory_bytes: u64) -> Result<Box<dyn Engine>> {
    let functions = functions()?;
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(failed)?;
    // Half for blocks; two write buffers take up to a quarter, the page cache the rest.
    let memory = memory_bytes as usize;
    // SAFETY: arguments as the header declares them; what is made is handed over or kept.
    let shared = unsafe {
        let table = (functions.block_based_options_create)();
        (functions.block_based_options_set_block_cache)(table, (functions.cache_create_lru)(memory / 2));
        (functions.block_based_options_set_filter_policy)(
            table,
            (functions.filterpolicy_create_bloom_full)(10.0),
        );
        (functions.block_based_options_set_cache_index_and_filter_blocks)(table, 1);
        let options = (functions.options_create)();
        (functions.options_set_create_if_missing)(options, 1);
        (functions.options_increase_parallelism)(options, 2);
        (functions.options_set_compression)(options, 0);
        (functions.options_set_write_buffer_size)(options, (memory / 8).min(64 << 20));
        (functions.options_set_bytes_per_sync)(options, 1 << 20);
        (functions.options_set_block_based_table_factory)(options, table);
        let write_options = (functions.writeoptions_create)();
        (functions.writeoptions_set_sync)(write_options, 1);
        let read_options = (functions.readoptions_create)();
        let mut error = std::ptr::null_mut();
        let database = (functions.open)(options, path.as_ptr(), &mut error);
        check(&functions, error)?;
        Shared { functions, database, write_options, read_options }
    };
    Ok(Box::new(Tree(Arc::new(shared))))
}

fn functions() -> Result<Functions> {
    let mut last = String::new();
    for name in LIBRARIES {
        // SAFETY: the system's own library; its initialisers are trusted as those of any linked one.
        match unsafe { Library::new(name).and_then(|library| Functions::load(library)) } {
            Ok(functions) => return Ok(functions),
            Err(error) => last = error.to_string(),
        }
    }
    Err(failed(format!(
        "RocksDB's shared library is not there (Debian: apt-get install librocksdb7.8): {last}"
    )))
}

/// The error that a call left.
fn check(functions: &Functions, error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a text of the library, which is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        (functions.free)(error.cast());
        text
    };
    Err(failed(text))
}

impl Engine for Tree {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(self.clone()))
    }
}

impl Target for Tree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let Shared { functions, database, read_options, .. } = &*self.0;
        let mut error = std::ptr::null_mut();
        // SAFETY: pointers and lengths belong together; the slice is let go after its bytes are copied.
        unsafe {
            let slice = (functions.get_pinned)(*database, *read_options, key.as_ptr(), key.len(), &mut error);
            check(functions, error)?;
            if slice.is_null() {
                return Ok(false);
            }
            let mut length = 0;
            let bytes = (functions.pinnableslice_value)(slice, &mut length);
            value.extend_from_slice(std::slice::from_raw_parts(bytes, length));
            (functions.pinnableslice_destroy)(slice);
        }
        Ok(true)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Shared { functions, database, write_options, .. } = &*self.0;
        let mut error = std::ptr::null_mut();
        // SAFETY: pointers and lengths belong together, and the call keeps none.
        unsafe {
            (functions.put)(
                *database,
                *write_options,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &mut error,
            );
        }
        check(functions, error)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let Shared { functions, database, write_options, .. } = &*self.0;
        let mut error = std::ptr::null_mut();
        // SAFETY: pointers and lengths belong together; the batch copies them and is destroyed here.
        unsafe {
            let batch = (functions.writebatch_create)();
            for (key, value) in records {
                (functions.writebatch_put)(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            (functions.write)(*database, *write_options, batch, &mut error);
            (functions.writebatch_destroy)(batch);
        }
        check(functions, error)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let Shared { functions, database, read_options, .. } = &*self.0;
        let mut error = std::ptr::null_mut();
        // SAFETY: key and value are the iterator's until it moves; it is destroyed here.
        unsafe {
            let iterator = (functions.create_iterator)(*database, *read_options);
            (functions.iter_seek)(iterator, key.as_ptr(), key.len());
            let mut left = count;
            while left > 0 && (functions.iter_valid)(iterator) != 0 {
                let (mut key_length, mut value_length) = (0, 0);
                let key = (functions.iter_key)(iterator, &mut key_length);
                let value = (functions.iter_value)(iterator, &mut value_length);
                each(
                    std::slice::from_raw_parts(key, key_length),
                    std::slice::from_raw_parts(value, value_length),
                );
                (functions.iter_next)(iterator);
                left -= 1;
            }
            (functions.iter_get_error)(iterator, &mut error);
            (functions.iter_destroy)(iterator);
        }
        Some(check(functions, error))
    }
}
