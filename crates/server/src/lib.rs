//! The doors of Tierstone: sockets, the loop of each thread, and what answers behind them.
//!
//! Reading order:
//! 1. [`service`] is the seam: a state machine that takes the bytes of many connections and gives
//!    replies; it makes no system call;
//! 2. [`gate`] keeps the replies of one connection in order and back until they may be seen;
//! 3. [`connections`] is what a step sees of its clients;
//! 4. [`driver`] is the loop of one thread over a [`reactor`]: io_uring or epoll;
//! 5. [`wake`] and [`mailbox`] carry batches from thread to thread;
//! 6. [`manual`] is a driver whose owner is its kernel, for simulations;
//! 7. [`null`] answers without storing, for measuring the machine; [`http`] tells health and metrics.
//!
//! Invariants:
//! 1. A client sees its replies in the order of its requests, and none before what it tells is
//!    durable.
//! 2. Whatever a peer does, the memory that its connection holds is bounded by the settings.
//! 3. In the steady state a turn of a loop makes one system call (io_uring) or one for the wait and
//!    two for each connection that was heard (epoll), and allocates nothing.

pub mod connections;
pub mod driver;
pub mod gate;
pub mod http;
mod input;
mod line;
pub mod listen;
pub mod mailbox;
pub mod manual;
pub mod null;
pub mod process;
pub mod reactor;
pub mod redis;
pub mod service;
pub mod settings;
mod tls;
mod together;
mod turn;
pub mod wake;

pub use connections::{Connections, Link};
pub use driver::{DriverBuilder, DriverHandle, DriverReport, Parts, StopHandle, check_pins};
pub use gate::{ReplyQueue, SlotId};
pub use listen::{ListenAddress, Listener};
pub use mailbox::{MailReceiver, MailSender, mailbox};
pub use manual::ManualDriver;
pub use reactor::{Device, WakingDevice};
pub use service::{ConnectionId, ConnectionMemory, Peer, Service, Want};
pub use settings::{DriverKind, OutputLimits, TransportChange, TransportSettings};
pub use tls::{TlsClients, TlsSettings};
pub use wake::Waker;
