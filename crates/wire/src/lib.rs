//! Protocols without input or output: bytes in, requests and replies out, and back.
//!
//! Reading order:
//! 1. [`resp::request`] finds the requests in what a Redis client has sent (the server's hot path);
//! 2. [`resp::reply`] encodes answers in protocol 2 or 3;
//! 3. [`rdb`] is one value in Redis's snapshot format, for `DUMP` and `RESTORE`;
//! 4. [`resp::value`] and [`resp::reply_parser`] read those answers on the client's side;
//!    [`resp::skim`] only counts them, for load generators.
//!
//! Invariants:
//! 1. No code here reads a socket, a clock or the environment: the same bytes give the same result.
//! 2. Every decoder takes hostile bytes: it is bounded by its limits, never panics, and its result
//!    does not depend on how the bytes were cut into pieces.
//! 3. The caller owns every buffer; decoders keep offsets, encoders append to a `Vec<u8>`.

pub mod rdb;
pub mod resp;
