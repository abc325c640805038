//! A change of the databases that the caller is asked to make durable.

use tierstone_store::{MapChange, TaskId};

/// One change, asked for by a suspended request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// Who waits for it.
    pub task: TaskId,
    /// What changes.
    pub change: MapChange,
}
