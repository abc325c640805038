//! What little there is of scripting: nothing to flush.

use crate::context::{Halt, fail};
use crate::control::{Control, Flow};

pub(crate) fn function_flush(control: &mut Control<'_>) -> Result<Flow, Halt> {
    match (control.args.len(), control.args.get(2)) {
        (2, _) => {}
        (3, Some(mode)) if mode.eq_ignore_ascii_case(b"ASYNC") || mode.eq_ignore_ascii_case(b"SYNC") => {}
        _ => return fail("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
    }
    control.reply.ok();
    Ok(Flow::Done)
}
