//! Many commands in one write.

use tierstone_base::Result;
use tierstone_wire::resp::{Value, encode_command};

use crate::connection::Connection;

/// Commands that wait to be sent together; made by [`Connection::pipeline`].
#[derive(Debug)]
pub struct Pipeline<'a> {
    connection: &'a mut Connection,
    encoded: Vec<u8>,
    count: usize,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(connection: &'a mut Connection) -> Self {
        let encoded = connection.take_storage();
        Pipeline { connection, encoded, count: 0 }
    }

    /// Adds a command, its name first.
    pub fn command(&mut self, arguments: &[&[u8]]) -> &mut Self {
        encode_command(arguments, &mut self.encoded);
        self.count += 1;
        self
    }

    /// Commands added so far.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sends all commands and waits for all replies, which come in the order of the commands.
    ///
    /// The commands are sent as one piece; replies that come meanwhile are taken in, so that neither
    /// side waits for the other however long the pipeline is. They are held, all of them, until the last has come.
    ///
    /// Errors: those of [`Connection::command`], and `Incompatible` where the server sends more replies than there are
    /// commands. The replies that were received are dropped then; those still outstanding can be received one by one.
    pub fn execute(self) -> Result<Vec<Value>> {
        let Pipeline { connection, encoded, count } = self;
        connection.exchange(encoded, count)
    }
}
